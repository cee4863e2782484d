// Header unions: the member that becomes valid last counts; isValid of the union; stacks of unions.
#include "include/begin.p4"

header left_t {
    bit<8> x;
}
header right_t {
    bit<16> y;
}
header_union either_t {
    left_t left;
    right_t right;
}

struct headers_t {
    data_t data;
    either_t one;
    either_t[2] more;
}

struct metadata_t {
}

#define PARSER
parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.data);
        transition select(hdr.data.d) {
            0: left;
            default: right;
        }
    }
    state left {
        packet.extract(hdr.one.left);
        transition accept;
    }
    state right {
        packet.extract(hdr.more.next.right);
        transition accept;
    }
}

control In(ALL) {
    apply {
        standard.egress_spec = 1;
        if (hdr.data.e == 1) {
            hdr.one.right.setValid();
            hdr.one.right.y = 0xBEEF;
        }
        if (hdr.one.isValid()) {
            hdr.data.c = 1;
        }
        if (hdr.more[0].right.isValid()) {
            hdr.more[1].left.setValid();
            hdr.more[1].left.x = 0x11;
        }
    }
}

#include "include/end.p4"
