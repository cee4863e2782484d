/* An action profile, and a selector that hashes two fields with crc16. */
#include "include/common.p4"

control Body(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action_profile(16) profile;
    action_selector(HashAlgorithm.crc16, 32w16, 32w16) selector;

    action send(bit<9> port, bit<16> mark) {
        standard.egress_spec = port;
        hdr.data.c = mark;
    }
    action drop() {
        mark_to_drop(standard);
    }
    table chosen {
        key = {
            hdr.data.kind: exact;
            hdr.data.a: selector;
            hdr.data.b: selector;
        }
        actions = {
            send;
            drop;
            NoAction;
        }
        implementation = selector;
    }
    table direct {
        key = {
            hdr.data.kind: ternary;
        }
        actions = {
            send;
            drop;
            NoAction;
        }
        implementation = profile;
    }

    apply {
        standard.egress_spec = 7;
        if (!chosen.apply().hit) {
            direct.apply();
        }
    }
}

SWITCH(Body)
