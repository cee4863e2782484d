// for loops over counters, with break and continue, one within another.
#include "include/begin.p4"

struct headers_t {
    data_t data;
}

struct metadata_t {
}

control In(ALL) {
    apply {
        standard.egress_spec = 1;
        for (bit<8> k = 0; k < 3; k = k + 1) {
            hdr.data.b = hdr.data.b * 2 + 1;
        }
        for (bit<8> i = 1, bit<8> j = 9; i < j; i = i + 1, j = j - 1) {
            if (i == 2) {
                continue;
            }
            for (bit<8> k = 0; k < 4; k = k + 1) {
                if (k == i) {
                    break;
                }
                hdr.data.a = hdr.data.a + 1;
            }
            hdr.data.c = hdr.data.c + (bit<16>)j;
        }
    }
}

#include "include/end.p4"
