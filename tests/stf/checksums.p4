// Checksums: verified after the parser, updated after egress, only under their conditions.
#include "include/begin.p4"

struct headers_t {
    data_t data;
}

struct metadata_t {
}

control In(ALL) {
    apply {
        standard.egress_spec = 1;
        if (standard.checksum_error == 1) {
            hdr.data.e = 0xEE;
        }
    }
}

#define VERIFY
control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.data.d != 9, { hdr.data.a, hdr.data.b, hdr.data.d, hdr.data.e }, hdr.data.c, HashAlgorithm.csum16);
    }
}
#define COMPUTE
control Compute(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.data.d != 8, { hdr.data.a, hdr.data.b, hdr.data.d, hdr.data.e }, hdr.data.c, HashAlgorithm.csum16);
    }
}

#include "include/end.p4"
