/* Three random numbers: of 0 .. 3, of 5 .. 5, of all 16 bits. */
#include "include/common.p4"

control Body(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = 1;
        random(hdr.data.a, 0, 3);
        random(hdr.data.b, 5, 5);
        random(hdr.data.c, 0, 0xFFFF);
    }
}

SWITCH(Body)
