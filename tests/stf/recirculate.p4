// recirculate: what the deparser made comes in again, until it does not ask for it any more.
#include "include/begin.p4"

struct headers_t {
    data_t data;
}

struct metadata_t {
    @field_list(2)
    bit<8> round;
}

control In(ALL) {
    apply {
        standard.egress_spec = 1;
        if (standard.instance_type == 4) {
            hdr.data.b = hdr.data.b + (bit<32>)meta.round;
        }
        meta.round = meta.round + 1;
        hdr.data.d = hdr.data.d + 1;
    }
}

#define EGRESS
control Out(ALL) {
    apply {
        if (hdr.data.d < 3) {
            recirculate_preserving_field_list(2);
        }
    }
}

#include "include/end.p4"
