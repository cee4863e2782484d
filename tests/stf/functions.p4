// Functions and actions: in, out and inout parameters are copied in and out, also where arguments overlap.
#include "include/begin.p4"

bit<32> sum(in bit<32> x, in bit<32> y) {
    if (x == 0) {
        return 0xFFFFFFFF;
    }
    return x + y;
}
void split(in bit<16> x, out bit<8> high, out bit<8> low) {
    high = x[15:8];
    low = x[7:0];
}

struct headers_t {
    data_t data;
}

struct metadata_t {
}

control In(ALL) {
    action twice(inout bit<8> x, inout bit<8> y) {
        x = x + 1;
        y = y + x;
    }
    action copy_and_exit(in bit<8> x, out bit<8> y) {
        y = x;
        exit;
    }

    apply {
        standard.egress_spec = 1;
        twice(hdr.data.d, hdr.data.d);
        hdr.data.a = sum(hdr.data.a, hdr.data.b);
        bit<8> r;
        split(hdr.data.c, r, hdr.data.e);
        hdr.data.f[7:0] = r;
        if (hdr.data.b == 1) {
            copy_and_exit(8w7, hdr.data.e);
        }
        hdr.data.f[15:8] = 9;
    }
}

#include "include/end.p4"
