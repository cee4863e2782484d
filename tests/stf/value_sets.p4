// Value sets of one value and of structs with match kinds.
#include "include/begin.p4"

struct headers_t {
    data_t data;
}

struct metadata_t {
    bit<8> found;
}

#define PARSER
parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    value_set<bit<9>>(4) numbers;
    state start {
        packet.extract(hdr.data);
        transition select(hdr.data.b[8:0]) {
            numbers: known;
            0x1FF: accept;
            default: other;
        }
    }
    state known {
        meta.found = 1;
        transition accept;
    }
    state other {
        meta.found = 2;
        transition accept;
    }
}

control In(ALL) {
    apply {
        standard.egress_spec = 1;
        hdr.data.e = meta.found;
    }
}

#include "include/end.p4"
