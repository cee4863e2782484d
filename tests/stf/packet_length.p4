// length() in the parser.
#include "include/begin.p4"

struct headers_t {
    data_t data;
}

struct metadata_t {
}

#define PARSER
parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        transition select(packet.length()) {
            0 .. 19: accept;
            default: whole;
        }
    }
    state whole {
        packet.extract(hdr.data);
        transition accept;
    }
}

control In(ALL) {
    apply {
        standard.egress_spec = 1;
        if (!hdr.data.isValid()) {
            mark_to_drop(standard);
        }
    }
}

#include "include/end.p4"
