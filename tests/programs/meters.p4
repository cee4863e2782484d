/* The colour of an indirect meter (by index a) goes into b, that of a table's direct meter into c. */
#include "common.p4"

control Body(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    meter(4, MeterType.packets) packets;
    meter(4, MeterType.bytes) octets;

    apply {
        standard.egress_spec = 1;
        bit<32> first = 9;
        bit<32> second = 9;
        packets.execute_meter(hdr.data.a & 3, first);
        octets.execute_meter(hdr.data.a & 3, second);
        hdr.data.b = first;
        hdr.data.c = (bit<16>)second;
    }
}

SWITCH(Body)
