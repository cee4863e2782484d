// Enums, enums with values in a header, errors: assigned, compared, cast; a value that is no member.
#include "include/begin.p4"

enum colour_t {
    RED,
    GREEN
}
enum bit<8> kind_t {
    ONE = 1,
    TWO = 2,
    THREE = 0x33
}
error {
    Odd
}
header more_t {
    kind_t kind;
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
        packet.extract(hdr.more);
        transition accept;
    }
}

control In(ALL) {
    apply {
        standard.egress_spec = 1;
        colour_t colour = colour_t.GREEN;
        if (hdr.data.d == 1) {
            colour = colour_t.RED;
        }
        if (colour == colour_t.RED) {
            hdr.data.c = 0xEED;
        }
        if (hdr.more.kind == kind_t.TWO) {
            hdr.data.e = 2;
            hdr.more.kind = kind_t.ONE;
        } else if (hdr.more.kind == (kind_t)0x77) {
            hdr.data.e = (bit<8>)kind_t.THREE;
        }
        error problem = error.NoError;
        if (hdr.data.d == 2) {
            problem = error.Odd;
        }
        hdr.data.f = problem == error.Odd ? 32w1 : 0;
    }
}

#include "include/end.p4"
