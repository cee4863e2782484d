// select: masks, ranges, several keys, the first case that fits; lookahead and advance.
#include "include/begin.p4"

struct headers_t {
    data_t data;
}

struct metadata_t {
    bit<8> way;
}

#define PARSER
parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        bit<16> ahead = packet.lookahead<bit<16>>();
        transition select(ahead) {
            0xDEAD: skip;
            default: whole;
        }
    }
    state skip {
        packet.advance(32);
        transition whole;
    }
    state whole {
        packet.extract(hdr.data);
        transition select(hdr.data.d, hdr.data.c) {
            (0x10 &&& 0xF0, 1): first;
            (0x10 .. 0x1F, 2 .. 3): second;
            (_, 1): third;
            (7, _): fourth;
            default: accept;
        }
    }
    state first {
        meta.way = 1;
        transition accept;
    }
    state second {
        meta.way = 2;
        transition accept;
    }
    state third {
        meta.way = 3;
        transition accept;
    }
    state fourth {
        meta.way = 4;
        transition accept;
    }
}

control In(ALL) {
    apply {
        standard.egress_spec = 1;
        hdr.data.e = meta.way;
    }
}

#include "include/end.p4"
