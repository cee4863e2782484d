// Errors of the parser: verify, a packet too short; ingress sees which.
#include "include/begin.p4"

error {
    DIsOdd
}
header more_t {
    bit<32> x;
}

struct headers_t {
    data_t data;
    more_t more;
}

struct metadata_t {
}

#define PARSER
parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.data);
        verify(hdr.data.d[0:0] == 0, error.DIsOdd);
        transition select(hdr.data.d) {
            0: accept;
            2: more;
            default: accept;
        }
    }
    state more {
        packet.extract(hdr.more);
        transition accept;
    }
}

control In(ALL) {
    apply {
        standard.egress_spec = 1;
        if (standard.parser_error == error.PacketTooShort) {
            hdr.data.e = 1;
        } else if (standard.parser_error == error.DIsOdd) {
            hdr.data.e = 3;
        }
    }
}

#include "include/end.p4"
