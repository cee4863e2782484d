/* Zeros: where an aggregator takes a packet that stands for one of zeros, it becomes that packet, which is treated as any other from
 * then on; and a sum to which no packet has brought values goes up as one that stands for it. */
#ifndef INA_ATP_ROUTES_ZEROS_P4
#define INA_ATP_ROUTES_ZEROS_P4

#include "headers.p4"
#include "../atp/metadata.p4"

control Zeros(inout headers_t hdr, in metadata_t meta, out bit<8> brings) {  // brings: 0 if the packet stands for one of zeros
    action put() {
        hdr.values.setValid();
#define PUT_ZERO(i) hdr.values.v##i = 0;
        FOR_EACH_VALUE(PUT_ZERO)
        hdr.ipv4.total_len = hdr.ipv4.total_len + VALUES_BYTES;
        hdr.udp.length = hdr.udp.length + VALUES_BYTES;
    }

    apply {
        brings = 1;
        if (hdr.receivers.isValid() && !hdr.values.isValid() && (meta.store == 1 || meta.add == 1 || meta.load == 1)) {
            put();
            brings = 0;
        }
    }
}

control NoValues(inout headers_t hdr, in metadata_t meta, in bit<8> brings) {
    register<bit<8>>(SLOTS) brought;  // 1: some packet of the sum has brought values

    apply {
        if (hdr.receivers.isValid() && (meta.store == 1 || meta.add == 1 || meta.load == 1)) {
            bit<8> any;
            brought.read(any, meta.row);
            if (meta.store == 1) {
                any = brings;
            } else if (meta.add == 1) {
                any = any | brings;
            }
            brought.write(meta.row, any);
            if (meta.load == 1 && any == 0) {
                hdr.values.setInvalid();
                hdr.ipv4.total_len = hdr.ipv4.total_len - VALUES_BYTES;
                hdr.udp.length = hdr.udp.length - VALUES_BYTES;
            }
        }
    }
}

#endif
