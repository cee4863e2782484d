// Counters of packets and bytes, by index and of table entries.
#include "include/begin.p4"

struct headers_t {
    data_t data;
}

struct metadata_t {
}

control In(ALL) {
    counter(8, CounterType.packets_and_bytes) octets;
    counter(2, CounterType.packets) frames;
    direct_counter(CounterType.packets_and_bytes) hits;
    action mark() {
        hdr.data.e = 1;
    }
    table t {
        key = {
            hdr.data.b: exact;
        }
        actions = {
            mark;
            NoAction;
        }
        counters = hits;
    }

    apply {
        standard.egress_spec = 1;
        octets.count((bit<32>)hdr.data.d);
        frames.count(1);
        t.apply();
    }
}

#include "include/end.p4"
