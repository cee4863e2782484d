// hash with every algorithm whose result is defined, with base and maximum.
#include "include/begin.p4"

struct headers_t {
    data_t data;
}

struct metadata_t {
    bit<32> h;
}

control In(ALL) {
    apply {
        standard.egress_spec = 1;
        if (hdr.data.d == 0) {
            hash(meta.h, HashAlgorithm.crc32, 32w0, { hdr.data.a, hdr.data.b, hdr.data.c }, 64w0x1_0000_0000);
        } else if (hdr.data.d == 1) {
            hash(meta.h, HashAlgorithm.crc32_custom, 32w0, { hdr.data.a, hdr.data.b, hdr.data.c }, 64w0x1_0000_0000);
        } else if (hdr.data.d == 2) {
            hash(meta.h, HashAlgorithm.crc16, 32w0, { hdr.data.a, hdr.data.b, hdr.data.c }, 64w0x1_0000_0000);
        } else if (hdr.data.d == 3) {
            hash(meta.h, HashAlgorithm.crc16_custom, 32w0, { hdr.data.a, hdr.data.b, hdr.data.c }, 64w0x1_0000_0000);
        } else if (hdr.data.d == 4) {
            hash(meta.h, HashAlgorithm.csum16, 32w0, { hdr.data.a, hdr.data.b, hdr.data.c }, 64w0x1_0000_0000);
        } else if (hdr.data.d == 5) {
            hash(meta.h, HashAlgorithm.xor16, 32w0, { hdr.data.a, hdr.data.b, hdr.data.c }, 64w0x1_0000_0000);
        } else if (hdr.data.d == 6) {
            hash(meta.h, HashAlgorithm.identity, 32w0, { hdr.data.a, hdr.data.b, hdr.data.c }, 64w0x1_0000_0000);
        } else if (hdr.data.d == 7) {
            hash(meta.h, HashAlgorithm.crc16, 32w100, { hdr.data.a }, 64w10);
        }
        hdr.data.f = meta.h;
    }
}

#include "include/end.p4"
