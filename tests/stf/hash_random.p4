// HashAlgorithm.random: any value of the range.
#include "include/begin.p4"

struct headers_t {
    data_t data;
}

struct metadata_t {
}

control In(ALL) {
    apply {
        standard.egress_spec = 1;
        bit<32> h;
        hash(h, HashAlgorithm.random, 32w6, { hdr.data.a }, 64w1);
        hdr.data.f = h;
        hash(h, HashAlgorithm.random, 32w8, { hdr.data.a }, 64w2);
        hdr.data.b = h & 0xFFFFFFFE;
    }
}

#include "include/end.p4"
