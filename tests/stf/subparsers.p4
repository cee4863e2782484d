// A parser applied within a parser, with its own errors; a parser instantiated twice.
#include "include/begin.p4"

header pair_t {
    bit<8> x;
    bit<8> y;
}
error {
    XIsZero
}
parser Pair(packet_in packet, out pair_t pair, inout bit<16> sum)(bit<16> more) {
    state start {
        packet.extract(pair);
        verify(pair.x != 0, error.XIsZero);
        sum = sum + more;
        transition accept;
    }
}

struct headers_t {
    data_t data;
    pair_t one;
    pair_t two;
}

struct metadata_t {
    bit<16> sum;
}

#define PARSER
parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    Pair(1) first;
    Pair(0x100) second;
    state start {
        packet.extract(hdr.data);
        meta.sum = 0;
        first.apply(packet, hdr.one, meta.sum);
        transition select(hdr.one.y) {
            0: accept;
            default: again;
        }
    }
    state again {
        second.apply(packet, hdr.two, meta.sum);
        transition accept;
    }
}

control In(ALL) {
    apply {
        standard.egress_spec = 1;
        if (standard.parser_error != error.NoError) {
            hdr.data.e = 0xEE;
        }
        hdr.data.c = meta.sum;
    }
}

#include "include/end.p4"
