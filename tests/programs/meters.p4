/* Colours: of a meter of packets (index a) into b, of a meter of bytes into c, of a table's direct meter into `to`. */
#include "include/common.p4"

control Body(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    meter(4, MeterType.packets) packets;
    meter(4, MeterType.bytes) octets;
    direct_meter<bit<48>>(MeterType.packets) each;
    direct_counter(CounterType.packets_and_bytes) counts;

    action measure() {
        each.read(hdr.data.to);
    }
    table kinds {
        key = {
            hdr.data.kind: exact;
        }
        actions = {
            measure;
            NoAction;
        }
        meters = each;
        counters = counts;
    }

    apply {
        standard.egress_spec = 1;
        bit<32> first = 9;
        bit<32> second = 9;
        packets.execute_meter(hdr.data.a & 3, first);
        octets.execute_meter(hdr.data.a & 3, second);
        hdr.data.b = first;
        hdr.data.c = (bit<16>)second;
        kinds.apply();
    }
}

SWITCH(Body)
