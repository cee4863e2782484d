// Saturating addition and subtraction, unsigned and signed.
#include "include/begin.p4"

struct headers_t {
    data_t data;
}

struct metadata_t {
}

control In(ALL) {
    apply {
        standard.egress_spec = 1;
        int<8> d = (int<8>)hdr.data.d;
        int<8> e = (int<8>)hdr.data.e;
        hdr.data.a = hdr.data.a |+| hdr.data.f;
        hdr.data.b = hdr.data.b |-| hdr.data.f;
        hdr.data.d = (bit<8>)(d |+| e);
        hdr.data.e = (bit<8>)(d |-| e);
    }
}

#include "include/end.p4"
