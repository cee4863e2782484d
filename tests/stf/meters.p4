// Meters: green, yellow and red by index and of table entries. The rates are so small that only the bursts pass.
#include "include/begin.p4"

struct headers_t {
    data_t data;
}

struct metadata_t {
}

control In(ALL) {
    meter(4, MeterType.packets) packets;
    direct_meter<bit<16>>(MeterType.packets) colours;
    action mark() {
        colours.read(hdr.data.c);
    }
    table t {
        key = {
            hdr.data.b: exact;
        }
        actions = {
            mark;
            NoAction;
        }
        meters = colours;
    }

    apply {
        standard.egress_spec = 1;
        packets.execute_meter((bit<32>)hdr.data.d, hdr.data.e);
        t.apply();
        }
}

#include "include/end.p4"
