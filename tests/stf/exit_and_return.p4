// return leaves the block, exit the whole of ingress or egress; egress still runs after an exit in ingress.
#include "include/begin.p4"

control Inner(inout data_t data) {
    apply {
        if (data.e == 1) {
            return;
        }
        if (data.e == 2) {
            exit;
        }
        data.c = data.c + 0x100;
    }
}

struct headers_t {
    data_t data;
}

struct metadata_t {
}

control In(ALL) {
    Inner() inner;
    action leave() {
        exit;
    }

    apply {
        standard.egress_spec = 1;
        if (hdr.data.d == 1) {
            return;
        }
        inner.apply(hdr.data);
        hdr.data.c = hdr.data.c + 1;
        if (hdr.data.d == 2) {
            leave();
        }
        hdr.data.c = hdr.data.c + 0x10;
    }
}

#define EGRESS
control Out(ALL) {
    apply {
        hdr.data.f = 0xEEEEEEEE;
        if (hdr.data.a == 1) {
            return;
        }
        hdr.data.b = 0xBBBBBBBB;
    }
}

#include "include/end.p4"
