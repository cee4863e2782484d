/* Patch panel: frames go from one port to another as they are. It gives links (rate, delay, queue, loss) to switches that have
 * none of their own: each port of such a switch is patched to a port with the link.
 */
#include <core.p4>
#include <v1model.p4>

struct headers_t {}
struct metadata_t {}

parser PatchParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        transition accept;
    }
}

control PatchVerify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control PatchIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action to(bit<9> port) {
        standard.egress_spec = port;
    }
    action nowhere() {
        mark_to_drop(standard);
    }
    table patch {
        key = { standard.ingress_port: exact; }
        actions = { to; nowhere; }
        default_action = nowhere();
        size = 512;
    }
    apply {
        patch.apply();
    }
}

control PatchEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {}
}

control PatchUpdate(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control PatchDeparser(packet_out packet, in headers_t hdr) {
    apply {}
}

V1Switch(PatchParser(), PatchVerify(), PatchIngress(), PatchEgress(), PatchUpdate(), PatchDeparser()) main;
