// Clones at the end of ingress and of egress: what ingress left counts, metadata of the field list goes along.
#include "include/begin.p4"

struct headers_t {
    data_t data;
}

struct metadata_t {
    @field_list(1)
    bit<8> kept;
    bit<8> lost;
}

control In(ALL) {
    apply {
        standard.egress_spec = 1;
        meta.kept = 7;
        meta.lost = 8;
        if (hdr.data.d == 1 || hdr.data.d == 3) {
            clone_preserving_field_list(CloneType.I2E, 5, 1);
        }
        hdr.data.a = 0xAAAAAAAA;
        if (hdr.data.d == 3) {
            mark_to_drop(standard);
        }
    }
}

#define EGRESS
control Out(ALL) {
    apply {
        hdr.data.b = standard.instance_type;
        hdr.data.c = meta.kept ++ meta.lost;
        if (standard.instance_type == 0 && hdr.data.d == 2) {
            clone(CloneType.E2E, 6);
            hdr.data.e = 1;
        }
    }
}

#include "include/end.p4"
