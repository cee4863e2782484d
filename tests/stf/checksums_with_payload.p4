// Checksums over fields and all that follows the parsed headers, of odd length too.
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
        verify_checksum_with_payload(true, { hdr.data.a, hdr.data.b }, hdr.data.c, HashAlgorithm.csum16);
    }
}
#define COMPUTE
control Compute(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum_with_payload(hdr.data.d == 0, { hdr.data.a, hdr.data.b }, hdr.data.c, HashAlgorithm.csum16);
    }
}

#include "include/end.p4"
