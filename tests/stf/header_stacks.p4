// Header stacks: next, last, lastIndex, an index known at run time, push_front, pop_front; too many elements.
#include "include/begin.p4"

header item_t {
    bit<7> v;
    bit<1> bottom;
}

struct headers_t {
    data_t data;
    item_t[3] items;
}

struct metadata_t {
    bit<32> last;
}

#define PARSER
parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.data);
        transition items;
    }
    state items {
        packet.extract(hdr.items.next);
        meta.last = hdr.items.lastIndex;
        transition select(hdr.items.last.bottom) {
            1: accept;
            default: items;
        }
    }
}

control In(ALL) {
    apply {
        standard.egress_spec = 1;
        hdr.data.c = (bit<16>)meta.last;
        if (standard.parser_error == error.StackOutOfBounds) {
            hdr.data.e = 0xEE;
        }
        if (hdr.data.d == 1) {
            hdr.items.push_front(1);
            hdr.items[0].setValid();
            hdr.items[0].v = 0x99;
        } else if (hdr.data.d == 2) {
            hdr.items.pop_front(2);
        } else if (hdr.data.d == 3) {
            hdr.items[hdr.data.b[1:0]].v = hdr.items[hdr.data.a[1:0]].v;
        }
    }
}

#include "include/end.p4"
