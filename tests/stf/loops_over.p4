// for loops over ranges, lists and header stacks.
#include "include/begin.p4"

header item_t {
    bit<8> v;
}

struct headers_t {
    data_t data;
    item_t[3] items;
}

struct metadata_t {
}

#define PARSER
parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.data);
        packet.extract(hdr.items.next);
        packet.extract(hdr.items.next);
        transition accept;
    }
}

control In(ALL) {
    apply {
        standard.egress_spec = 1;
        for (bit<8> i in 1 .. 5) {
            if (i == 2) {
                continue;
            }
            if (i > 4) {
                break;
            }
            hdr.data.a = hdr.data.a + (bit<32>)i;
        }
        for (bit<8> i in 250 .. 255) {
            hdr.data.d = hdr.data.d + 1;
        }
        for (bit<16> x in (list<bit<16>>){ 1, 10, 100 }) {
            hdr.data.c = hdr.data.c + x;
        }
        for (item_t item in hdr.items) {
            if (item.isValid()) {
                hdr.data.e = hdr.data.e + item.v;
            }
        }
    }
}

#include "include/end.p4"
