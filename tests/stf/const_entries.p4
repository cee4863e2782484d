// Const entries and default actions with arguments, const ones too.
#include "include/begin.p4"

struct headers_t {
    data_t data;
}

struct metadata_t {
}

control In(ALL) {
    action set(bit<8> v) {
        hdr.data.e = hdr.data.e + v;
    }
    action add(bit<16> v) {
        hdr.data.c = hdr.data.c + v;
    }
    table fixed {
        key = {
            hdr.data.a: ternary;
            hdr.data.d: range;
        }
        actions = {
            set;
            NoAction;
        }
        const entries = {
            (0x11000000 &&& 0xFF000000, 1 .. 5): set(1);
            (0x11220000 &&& 0xFFFF0000, 0 .. 9): set(2);
            (_, 7): set(3);
        }
        const default_action = set(0x80);
    }
    table fallback {
        key = {
            hdr.data.b: exact;
        }
        actions = {
            add;
        }
        default_action = add(0x1000);
    }
    table keyless {
        actions = {
            set;
        }
        default_action = set(0x40);
    }

    apply {
        standard.egress_spec = 1;
        fixed.apply();
        if (fallback.apply().miss) {
            hdr.data.c = hdr.data.c + 0x100;
        }
        keyless.apply();
    }
}

#include "include/end.p4"
