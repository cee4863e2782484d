/* Action profiles and selectors, meters, value sets: what a controller can do with v1model's other objects. */
#include <core.p4>
#include <v1model.p4>

header data_t { bit<8> kind; bit<8> key; bit<16> flow; bit<8> colour; bit<8> verdict; }
struct headers_t { data_t data; }
struct metadata_t { bit<8> colour; bit<8> direct; bit<1> known; }

parser P(packet_in p, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    value_set<bit<8>>(2) kinds;
    state start { p.extract(hdr.data); transition select(hdr.data.kind) { kinds: known; default: accept; } }
    state known { meta.known = 1; transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    action_selector(HashAlgorithm.crc16, 8, 8) paths;
    meter(2, MeterType.packets) rate;
    direct_meter<bit<8>>(MeterType.packets) limit;

    action drop() { mark_to_drop(sm); }
    action send(bit<9> port) { sm.egress_spec = port; }
    action limited() { limit.read(meta.direct); }
    table hop {
        key = { hdr.data.key: exact @name("key"); hdr.data.flow: selector; }
        actions = { send; drop; }
        implementation = paths;
    }
    table metered {
        key = { hdr.data.key: exact @name("key"); }
        actions = { limited; NoAction; }
        meters = limit;
    }
    apply {
        sm.egress_spec = 1;
        hop.apply();
        metered.apply();
        rate.execute_meter((bit<32>)0, meta.colour);
        hdr.data.colour = meta.colour << 4 | meta.direct;
        hdr.data.verdict = (bit<8>)meta.known;
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out p, in headers_t hdr) { apply { p.emit(hdr.data); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
