// varbit: a length from the packet, assignment of headers, comparison, a length beyond the maximum.
#include "include/begin.p4"

header option_t {
    bit<4> n;
    bit<4> k;
    varbit<64> v;
    bit<8> z;
}

struct headers_t {
    data_t data;
    option_t option;
    option_t copy;
}

struct metadata_t {
}

#define PARSER
parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.data);
        packet.extract(hdr.option, (bit<32>)hdr.data.d * 8);
        transition accept;
    }
}

control In(ALL) {
    apply {
        standard.egress_spec = 1;
        if (standard.parser_error == error.HeaderTooShort) {
            hdr.data.e = 1;
        }
        if (hdr.option.isValid()) {
            hdr.copy = hdr.option;
            hdr.copy.k = 0xF;
            if (hdr.copy.v == hdr.option.v) {
                hdr.option.z = 0x77;
            }
        }
    }
}

#include "include/end.p4"
