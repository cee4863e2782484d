/* Levels: a packet of indices is counted and answered as one of values from its arrival on; the values that its next pass adds are
 * looked up in egress, where nothing else has so much to do: two bytes of 32 values in each table.
 */
#ifndef INA_TOFINO_LEVELS_P4
#define INA_TOFINO_LEVELS_P4

#include "headers.p4"
#include "../../../include/thc/levels.p4"

control Arrival(inout packet_t hdr) {
    action as_values() {
        hdr.bridge.coded = 1;
        hdr.switchml.msg_type = SWITCHML_DATA;
        hdr.ipv4.total_len = hdr.ipv4.total_len + INDICES_LENGTH;
        hdr.udp.length = hdr.udp.length + INDICES_LENGTH;
    }
    table treat {
        actions = { as_values; }
        const default_action = as_values();
        size = 1;
    }
    apply {
        treat.apply();
    }
}

control Level(in bit<8> indices, out bit<16> levels) {
    action set(bit<16> values) {
        levels = values;
    }
    table look_up {
        key = { indices: exact; }
        actions = { set; }
#define ENTRY(i) 0x##i: set(LEVEL(8w0x##i[7:4]) ++ LEVEL(8w0x##i[3:0]));
        const entries = {
            FOR_16(ENTRY, 0) FOR_16(ENTRY, 1) FOR_16(ENTRY, 2) FOR_16(ENTRY, 3)
            FOR_16(ENTRY, 4) FOR_16(ENTRY, 5) FOR_16(ENTRY, 6) FOR_16(ENTRY, 7)
            FOR_16(ENTRY, 8) FOR_16(ENTRY, 9) FOR_16(ENTRY, a) FOR_16(ENTRY, b)
            FOR_16(ENTRY, c) FOR_16(ENTRY, d) FOR_16(ENTRY, e) FOR_16(ENTRY, f)
        }
        const default_action = set(0);
        size = 256;
    }
    apply {
        look_up.apply();
    }
}

control LaneLevels(inout packet_t hdr) {
#define LEVELS_OF_LANE(i) Level() high##i; Level() low##i;
    FOR_EACH_LANE(LEVELS_OF_LANE)
    apply {
        hdr.levels.setValid();
#define LOOK_UP_LANE(i) high##i.apply(hdr.indices.high##i, hdr.levels.high##i); low##i.apply(hdr.indices.low##i, hdr.levels.low##i);
        FOR_EACH_LANE(LOOK_UP_LANE)
        hdr.indices.setInvalid();
    }
}

#endif
