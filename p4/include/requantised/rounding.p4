/* Rounding: a packet of bytes, which comes from the switch above, becomes one of lanes, with each byte in the upper half of its lane, and
 * is treated as any other from then on; lanes that go down become bytes. Rounding what has come as bytes changes nothing, so sums are
 * rounded once, at the root of a tree. */
#ifndef INA_ROUNDING_P4
#define INA_ROUNDING_P4

#include "headers.p4"
#include "../switchml/metadata.p4"

control FromBytes(inout headers_t hdr, out bool from_above) {  // it has come as bytes
    action put() {
#define PUT(i) hdr.values.v##i = hdr.bytes.v##i[15:8] ++ 8w0 ++ hdr.bytes.v##i[7:0] ++ 8w0;
        FOR_EACH_VALUE(PUT)
        hdr.switchml.msg_type = SWITCHML_LANES;
        hdr.ipv4.total_len = hdr.ipv4.total_len + BYTES_LENGTH;
        hdr.udp.length = hdr.udp.length + BYTES_LENGTH;
    }

    apply {
        from_above = hdr.bytes.isValid();
        if (from_above) {
            hdr.values.setValid();
            put();
            hdr.bytes.setInvalid();
        }
    }
}

control ToBytes(inout headers_t hdr) {
    action take() {
#define TAKE(i) hdr.bytes.v##i = (hdr.values.v##i[31:16] |+| 128)[15:8] ++ (hdr.values.v##i[15:0] |+| 128)[15:8];
        FOR_EACH_VALUE(TAKE)
        hdr.switchml.msg_type = SWITCHML_BYTES;
        hdr.switchml.overflow = 0;  // an upper lane uses the sign
        hdr.ipv4.total_len = hdr.ipv4.total_len - BYTES_LENGTH;
        hdr.udp.length = hdr.udp.length - BYTES_LENGTH;
    }

    apply {
        if (hdr.switchml.msg_type == SWITCHML_LANES && hdr.values.isValid()) {
            hdr.bytes.setValid();
            take();
            hdr.values.setInvalid();
        }
    }
}

#endif
