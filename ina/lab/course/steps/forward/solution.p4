/* exercise: forward
 *
 * Forwards by Ethernet's destination address.
 */
#include "course.p4"

control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action forward(bit<9> port) {
        standard.egress_spec = port;
    }
    action drop() {
        mark_to_drop(standard);
    }
    table hosts {
        key = {
            hdr.ethernet.dst: exact;
        }
        actions = {
            forward;
            drop;
        }
        default_action = drop();
        size = 64;
    }

    apply {
        if (standard.parser_error != error.NoError) {
            drop();
            return;
        }
        hosts.apply();
        if (standard.egress_spec == standard.ingress_port) {
            drop();
        }
        if (hdr.sum.isValid()) {
            if (hdr.sum.hops <= 1) {
                drop();
            }
            hdr.sum.hops = hdr.sum.hops - 1;
        }
    }
}

control Leave(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {}
}

V1Switch(Parse(), Verify(), Forward(), Leave(), Update(), Deparse()) main;
