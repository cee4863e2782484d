/* Zeros: a packet that stands for one of zeros becomes that packet, which is treated as any other from then on; and a sum to which no
 * packet has brought values leaves as one that stands for it. The program says of which types these are (omnireduce/headers.p4). */
#ifndef INA_ZEROS_P4
#define INA_ZEROS_P4

#include "headers.p4"
#include "metadata.p4"

control Zeros(inout headers_t hdr, out bit<8> values) {  // values: 0 if there were none
    action put() {
        hdr.values.setValid();
#define PUT_ZERO(i) hdr.values.v##i = 0;
        FOR_EACH_VALUE(PUT_ZERO)
        hdr.switchml.msg_type = TYPE_OF_VALUES;
        hdr.switchml.size = SIZE_CODE;
        hdr.ipv4.total_len = hdr.ipv4.total_len + VALUES_BYTES;
        hdr.udp.length = hdr.udp.length + VALUES_BYTES;
    }

    apply {
        values = 1;
        if (hdr.check.isValid() && hdr.switchml.msg_type == TYPE_OF_ZEROS && hdr.switchml.size == SIZE_NONE) {
            put();
            values = 0;
        }
    }
}

control NoValues(inout headers_t hdr, in metadata_t meta, in bit<8> values) {
    register<bit<8>>(ROWS) brought;  // 1: some packet of the phase has brought values

    apply {
        bit<8> any;
        brought.read(any, meta.row);
        if (meta.repeated == 0) {
            any = meta.first == 1 ? values : any | values;
            brought.write(meta.row, any);
        }
        if (meta.complete == 1 && any == 0) {
            hdr.values.setInvalid();
            hdr.switchml.msg_type = TYPE_OF_ZEROS;
            hdr.switchml.size = SIZE_NONE;
            hdr.ipv4.total_len = hdr.ipv4.total_len - VALUES_BYTES;
            hdr.udp.length = hdr.udp.length - VALUES_BYTES;
        }
    }
}

#endif
