// digest: values for the control plane, as they are at the end of ingress.
#include "include/begin.p4"

struct seen_t {
    bit<32> a;
    bit<8> e;
}

struct headers_t {
    data_t data;
}

struct metadata_t {
}

control In(ALL) {
    apply {
        standard.egress_spec = 1;
        if (hdr.data.d == 1) {
            digest<seen_t>(1, { hdr.data.a, hdr.data.e });
            hdr.data.a = 0;
        }
    }
}

#include "include/end.p4"
