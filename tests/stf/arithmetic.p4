// Wrapping arithmetic of bit<W> and int<W>, division by constants, shifts past the width, concatenation, slices.
#include "include/begin.p4"

struct headers_t {
    data_t data;
}

struct metadata_t {
}

control In(ALL) {
    apply {
        standard.egress_spec = 1;
        bit<32> a = hdr.data.a;
        bit<32> b = hdr.data.b;
        int<8> d = (int<8>)hdr.data.d;
        int<8> e = (int<8>)hdr.data.e;
        bit<32> r = 0;
        if (hdr.data.c == 1) {
            r = a + b;
        } else if (hdr.data.c == 2) {
            r = a - b;
        } else if (hdr.data.c == 3) {
            r = a * b;
        } else if (hdr.data.c == 4) {
            r = (a / 16) ^ (a % 16);
        } else if (hdr.data.c == 5) {
            r = (a << hdr.data.d) | (b >> hdr.data.e);
        } else if (hdr.data.c == 6) {
            r = (bit<32>)(bit<8>)(d >> 3);
        } else if (hdr.data.c == 7) {
            r = (d < e ? 32w1 : 0) | (d * e > 0 ? 32w2 : 0) | (-d == e ? 32w4 : 0);
        } else if (hdr.data.c == 8) {
            r = ~a & b | (a ^ b);
        } else if (hdr.data.c == 9) {
            r = a[15:8] ++ b[7:0] ++ hdr.data.d ++ hdr.data.e;
        } else if (hdr.data.c == 10) {
            r[23:8] = a[31:16];
        }
        hdr.data.f = r;
    }
}

#include "include/end.p4"
