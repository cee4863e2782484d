/* Tells the control plane which address it saw at which port, when the kind is 1. */
#include "include/common.p4"

struct learn_t {
    bit<48> address;
    bit<9>  port;
    bit<32> what;
}

control Body(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = 1;
        if (hdr.data.kind == 1) {
            digest<learn_t>(1, { hdr.data.from, standard.ingress_port, hdr.data.a });
        }
    }
}

SWITCH(Body)
