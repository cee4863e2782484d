// truncate: of what leaves, no more than so many bytes.
#include "include/begin.p4"

struct headers_t {
    data_t data;
}

struct metadata_t {
}

control In(ALL) {
    apply {
        standard.egress_spec = 1;
        if (hdr.data.d != 0) {
            truncate((bit<32>)hdr.data.d);
        }
    }
}

#include "include/end.p4"
