// Registers: read, written; of narrow, signed and wide cells; set by the control plane.
#include "include/begin.p4"

struct headers_t {
    data_t data;
}

struct metadata_t {
}

control In(ALL) {
    register<bit<32>>(4) words;
    register<bit<5>>(2) narrow;
    register<bit<48>>(1) wide;

    apply {
        standard.egress_spec = 1;
        bit<32> x;
        bit<5> y;
        bit<48> z;
        words.read(x, (bit<32>)hdr.data.d);
        words.write((bit<32>)hdr.data.d, x + hdr.data.b);
        hdr.data.a = x;
        narrow.read(y, 1);
        y = y + 9;
        narrow.write(1, y);
        hdr.data.e = (bit<8>)y;
        wide.read(z, 0);
        z = z + 0xFFFF_FFFF;
        wide.write(0, z);
        hdr.data.f = z[47:16];
    }
}

#include "include/end.p4"
