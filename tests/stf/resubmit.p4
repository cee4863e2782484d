// resubmit: the packet as it came, once more through the parser, with the metadata of a field list.
#include "include/begin.p4"

struct headers_t {
    data_t data;
}

struct metadata_t {
    @field_list(3)
    bit<8> kept;
    bit<8> lost;
}

control In(ALL) {
    apply {
        standard.egress_spec = 1;
        if (standard.instance_type == 6) {
            hdr.data.d = meta.kept;
            hdr.data.e = meta.lost;
        } else if (hdr.data.c == 1) {
            meta.kept = 7;
            meta.lost = 8;
            hdr.data.a = 1;
            resubmit_preserving_field_list(3);
        }
    }
}

#include "include/end.p4"
