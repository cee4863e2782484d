// A select without a case that fits ends in error.NoMatch.
#include "include/begin.p4"

struct headers_t {
    data_t data;
}

struct metadata_t {
}

#define PARSER
parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.data);
        transition select(hdr.data.d) {
            0: accept;
        }
    }
}

control In(ALL) {
    apply {
        standard.egress_spec = 1;
        if (standard.parser_error == error.NoMatch) {
            hdr.data.e = 2;
        }
    }
}

#include "include/end.p4"
