/* Levels (Li et al., NSDI'24): a packet of indices becomes one of values, which is treated as any other from then on. */
#ifndef INA_LEVELS_P4
#define INA_LEVELS_P4

#include "headers.p4"

/* By index, the last one first: 0 3 5 7 9 11 13 14 16 17 19 21 23 25 27 30, THC's table for 1/32 of all values outside. A byte has room for
 * the sums of 8 workers. */
const bit<128> LEVELS = 0x1e1b191715131110_0e0d0b0907050300;
#define LEVEL(index) ((bit<8>)(LEVELS >> ((index) ++ 3w0)))

control Levels(inout headers_t hdr) {
    action look_up() {
#define LOOK_UP(i) hdr.values.v##i = LEVEL(hdr.indices.v##i[15:12]) ++ LEVEL(hdr.indices.v##i[11:8]) \
                                     ++ LEVEL(hdr.indices.v##i[7:4]) ++ LEVEL(hdr.indices.v##i[3:0]);
        FOR_EACH_VALUE(LOOK_UP)
    }

    apply {
        if (hdr.indices.isValid()) {
            hdr.values.setValid();
            look_up();
            hdr.indices.setInvalid();
            hdr.switchml.msg_type = SWITCHML_DATA;
            hdr.ipv4.total_len = hdr.ipv4.total_len + INDICES_LENGTH;
            hdr.udp.length = hdr.udp.length + INDICES_LENGTH;
        }
    }
}

#endif
