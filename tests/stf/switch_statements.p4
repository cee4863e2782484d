// switch on the action that a table ran, on expressions, on an enum; labels that share a body.
#include "include/begin.p4"

struct headers_t {
    data_t data;
}

struct metadata_t {
}

control In(ALL) {
    action one() {
        hdr.data.a = 1;
    }
    action two() {
        hdr.data.a = 2;
    }
    action three() {
        hdr.data.a = 3;
    }
    table t {
        key = {
            hdr.data.d: exact;
        }
        actions = {
            one;
            two;
            three;
            NoAction;
        }
    }

    apply {
        standard.egress_spec = 1;
        switch (t.apply().action_run) {
            one: {
                hdr.data.c = 0x0100;
            }
            two:
            three: {
                hdr.data.c = 0x0200;
            }
            default: {
                hdr.data.c = 0xFF00;
            }
        }
        switch (hdr.data.e) {
            1:
            2: {
                hdr.data.c = hdr.data.c + 12;
            }
            0x80: {
                hdr.data.c = hdr.data.c + 0x80;
            }
            default: {
                hdr.data.c = hdr.data.c + 0xFF;
            }
        }
        switch (hdr.data.b) {
            7: {
                hdr.data.f = 7;
            }
        }
    }
}

#include "include/end.p4"
