// Controls applied within a control: each instance has its own registers and tables.
#include "include/begin.p4"

control Count(inout bit<32> x, inout bit<16> sum)(bit<32> step) {
    register<bit<32>>(1) total;
    bit<32> now;
    action add(bit<16> n) {
        sum = sum + n;
    }
    table t {
        actions = {
            add;
            NoAction;
        }
        default_action = NoAction;
    }
    apply {
        total.read(now, 0);
        now = now + step;
        total.write(0, now);
        x = now;
        t.apply();
    }
}

struct headers_t {
    data_t data;
}

struct metadata_t {
}

control In(ALL) {
    Count(1) first;
    Count(2) third;
    Count(0x10) second;

    apply {
        standard.egress_spec = 1;
        first.apply(hdr.data.a, hdr.data.c);
        second.apply(hdr.data.b, hdr.data.c);
        third.apply(hdr.data.f, hdr.data.c);
    }
}

#include "include/end.p4"
