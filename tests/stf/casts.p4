// Casts: widening with and without sign, truncation, bool, changes of sign; integers of any width become those of the context.
#include "include/begin.p4"

struct headers_t {
    data_t data;
}

struct metadata_t {
}

control In(ALL) {
    apply {
        standard.egress_spec = 1;
        int<8> s = (int<8>)hdr.data.d;
        hdr.data.a = (bit<32>)(int<32>)s;
        hdr.data.b = (bit<32>)(bit<8>)s;
        hdr.data.c = (bit<16>)hdr.data.f;
        bool odd = (bool)hdr.data.e[0:0];
        hdr.data.e = (bit<8>)(bit<1>)(!odd) + 0x10;
        const int N = 1 << 70;
        hdr.data.f = (bit<32>)(N >> 66) + 3;
    }
}

#include "include/end.p4"
