// Action selectors: a group's member by the hash of the selector's keys; one member; an empty key.
#include "include/begin.p4"

struct headers_t {
    data_t data;
}

struct metadata_t {
}

control In(ALL) {
    action_selector(HashAlgorithm.crc16, 16, 14) chooser;
    action set(bit<8> v) {
        hdr.data.e = v;
    }
    table t {
        key = {
            hdr.data.a: exact;
            hdr.data.b: selector;
            hdr.data.d: selector;
        }
        actions = {
            set;
            NoAction;
        }
        implementation = chooser;
    }

    apply {
        standard.egress_spec = 1;
        if (!t.apply().hit) {
            hdr.data.c = 0xFFFF;
        }
    }
}

#include "include/end.p4"
