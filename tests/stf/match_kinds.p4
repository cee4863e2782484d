// All match kinds; the longest prefix and the highest priority win.
#include "include/begin.p4"

struct headers_t {
    data_t data;
}

struct metadata_t {
}

control In(ALL) {
    action set(bit<32> v) {
        hdr.data.f = hdr.data.f + v;
    }
    table by_exact {
        key = {
            hdr.data.a: exact;
        }
        actions = {
            set;
            NoAction;
        }
    }
    table by_lpm {
        key = {
            hdr.data.b: lpm;
            hdr.data.d: exact;
        }
        actions = {
            set;
            NoAction;
        }
    }
    table by_ternary {
        key = {
            hdr.data.a: ternary;
            hdr.data.b: lpm;
        }
        actions = {
            set;
            NoAction;
        }
    }
    table by_range {
        key = {
            hdr.data.c: range;
            hdr.data.d: ternary;
        }
        actions = {
            set;
            NoAction;
        }
    }
    table by_optional {
        key = {
            hdr.data.d: optional;
            hdr.data.e: exact;
        }
        actions = {
            set;
            NoAction;
        }
    }

    apply {
        standard.egress_spec = 1;
        by_exact.apply();
        by_lpm.apply();
        by_ternary.apply();
        by_range.apply();
        by_optional.apply();
    }
}

#include "include/end.p4"
