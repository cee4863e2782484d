// Entries that a program begins with and the control plane adds to; priorities of their own.
#include "include/begin.p4"

struct headers_t {
    data_t data;
}

struct metadata_t {
}

control In(ALL) {
    action add(bit<16> v) {
        hdr.data.c = hdr.data.c + v;
    }
    table first {
        key = {
            hdr.data.b: exact;
        }
        actions = {
            add;
            NoAction;
        }
        entries = {
            5: add(1);
            const 6: add(2);
        }
    }
    table ranked {
        key = {
            hdr.data.d: ternary;
        }
        actions = {
            add;
            NoAction;
        }
        largest_priority_wins = false;
        entries = {
            priority = 10: 0x10 &&& 0xF0: add(0x100);
            priority = 5: 0x11: add(0x200);
            _: add(0x300);
        }
    }

    apply {
        standard.egress_spec = 1;
        first.apply();
        ranked.apply();
    }
}

#include "include/end.p4"
