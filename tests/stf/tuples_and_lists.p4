// Tuples, list expressions, initialisers with names, defaults (...) and {#}, comparison of structs and headers.
#include "include/begin.p4"

struct point_t {
    bit<8> x;
    bit<8> y;
}

struct headers_t {
    data_t data;
    data_t copy;
}

struct metadata_t {
}

control In(ALL) {
    apply {
        standard.egress_spec = 1;
        tuple<bit<32>, bit<16>> t = { hdr.data.a, hdr.data.c };
        hdr.data.b = t[0] + (bit<32>)t[1];
        point_t p = { x = hdr.data.d, ... };
        point_t q = { hdr.data.d, 0 };
        if (p == q) {
            hdr.data.e = 1;
        }
        t = { 7, 8 };
        hdr.data.c = t[1];
        hdr.copy = hdr.data;
        if (hdr.copy == hdr.data) {
            hdr.copy.f = 0xAAAAAAAA;
        }
        if (hdr.data.d == 9) {
            hdr.copy = {#};
        }
        if (hdr.copy != hdr.data) {
            hdr.data.f = 0xBBBBBBBB;
        }
    }
}

#include "include/end.p4"
