// random within its bounds: one that has only one value, one of two, and the widest.
#include "include/begin.p4"

struct headers_t {
    data_t data;
}

struct metadata_t {
}

control In(ALL) {
    apply {
        standard.egress_spec = 1;
        bit<8> x;
        bit<8> y;
        bit<32> z;
        random(x, 5, 5);
        hdr.data.d = x;
        random(y, 6, 7);
        hdr.data.e = y & 0xFE;
        random(z, 0, 0xFFFFFFFF);
        hdr.data.f = z;
    }
}

#include "include/end.p4"
