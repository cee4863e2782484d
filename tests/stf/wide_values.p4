// Values of more than 128 bits: arithmetic, shifts by an amount of the packet, comparison with sign, slices.
#include "include/begin.p4"

header wide_t {
    bit<192> x;
    int<200> y;
}

struct headers_t {
    data_t data;
    wide_t wide;
}

struct metadata_t {
}

#define PARSER
parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.data);
        packet.extract(hdr.wide);
        transition accept;
    }
}

control In(ALL) {
    apply {
        standard.egress_spec = 1;
        hdr.wide.x = (hdr.wide.x + 1) << 8;
        hdr.wide.y = hdr.wide.y >> hdr.data.d;
        hdr.data.e = hdr.wide.y < -1 ? 8w1 : 8w2;
        hdr.data.c = hdr.wide.x[191:176] ^ (bit<16>)hdr.wide.x;
    }
}

#include "include/end.p4"
