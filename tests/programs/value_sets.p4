/* Value sets; what the parser found goes into c. (BMv2's client handles widths of 8n + 1 bits only.) */
#define OWN_PARSER
#include "include/common.p4"

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    value_set<bit<9>>(4) kinds;
    value_set<bit<17>>(4) names;

    state start {
        packet.extract(hdr.data);
        transition select(hdr.data.kind[8:0]) {
            0x100: common;
            kinds: rare;
            default: accept;
        }
    }
    state common {
        meta.found = 1;
        transition select(hdr.data.a[16:0]) {
            names: named;
            default: accept;
        }
    }
    state named {
        meta.found = 3;
        transition accept;
    }
    state rare {
        meta.found = 2;
        transition accept;
    }
}

control Body(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = 1;
        hdr.data.c = (bit<16>)meta.found;
    }
}

SWITCH(Body)
