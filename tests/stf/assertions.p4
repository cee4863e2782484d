// assert and assume end a packet that does not keep to them (BMv2 ends itself).
#include "include/begin.p4"

struct headers_t {
    data_t data;
}

struct metadata_t {
}

control In(ALL) {
    apply {
        standard.egress_spec = 1;
        assert(hdr.data.d != 1);
        assume(hdr.data.d != 2);
    }
}

#include "include/end.p4"
