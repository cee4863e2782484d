// Action profiles: entries that name members; tables that share them.
#include "include/begin.p4"

struct headers_t {
    data_t data;
}

struct metadata_t {
}

control In(ALL) {
    action_profile(8) shared;
    action set(bit<8> v) {
        hdr.data.e = hdr.data.e + v;
    }
    action wide(bit<48> v) {
        hdr.data.f = v[47:16];
    }
    table t {
        key = {
            hdr.data.a: exact;
        }
        actions = {
            set;
            wide;
            NoAction;
        }
        implementation = shared;
    }
    table u {
        key = {
            hdr.data.b: ternary;
        }
        actions = {
            set;
            wide;
            NoAction;
        }
        implementation = shared;
    }

    apply {
        standard.egress_spec = 1;
        t.apply();
        u.apply();
    }
}

#include "include/end.p4"
