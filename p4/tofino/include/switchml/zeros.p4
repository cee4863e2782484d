/* Zeros: a packet that stands for zeros is counted and answered as one of values from its arrival on; and a sum to which no packet has
 * brought values leaves as one that stands for it, without the passes that would take it along. The program says of which types these
 * are (../../../include/omnireduce/headers.p4).
 */
#ifndef INA_TOFINO_ZEROS_P4
#define INA_TOFINO_ZEROS_P4

#include "headers.p4"

control Zeros(inout packet_t hdr) {
    action as_values() {
        hdr.bridge.coded = 1;
        hdr.switchml.msg_type = TYPE_OF_VALUES;
        hdr.switchml.size = SIZE_CODE;
        hdr.ipv4.total_len = hdr.ipv4.total_len + VALUES_BYTES;
        hdr.udp.length = hdr.udp.length + VALUES_BYTES;
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

/* Remembers for each row whether all packets of the phase so far stood for zeros. */
control Brought(inout bridge_t bridge) {
    Register<bit<8>, place_t>(ROWS, 0) nothing;
    RegisterAction<bit<8>, place_t, bit<1>>(nothing) begin_ = {
        void apply(inout bit<8> yet, out bit<1> now) {
            yet = 1;
            now = yet[0:0];
        }
    };
    RegisterAction<bit<8>, place_t, bit<1>>(nothing) bring_ = {
        void apply(inout bit<8> yet, out bit<1> now) {
            yet = 0;
            now = yet[0:0];
        }
    };
    RegisterAction<bit<8>, place_t, bit<1>>(nothing) look_ = {
        void apply(inout bit<8> yet, out bit<1> now) {
            now = yet[0:0];
        }
    };

    action begin() {
        bridge.empty = begin_.execute(bridge.row);
    }
    action bring() {
        bridge.empty = bring_.execute(bridge.row);
    }
    action look() {
        bridge.empty = look_.execute(bridge.row);
    }
    table values {
        key = { bridge.op: ternary; bridge.first: ternary; bridge.coded: ternary; }
        actions = { begin; bring; look; NoAction; }
        const entries = {
            (Op.NOTHING, _, _): NoAction();
            (Op.LOOK,    _, _): look();
            (_,          1, 1): begin();
            (_,          _, 1): look();
            (_,          _, 0): bring();
        }
        const default_action = NoAction();
        size = 5;
    }
    apply {
        values.apply();
    }
}

control NoValues(inout packet_t hdr) {
    action as_zeros() {
        hdr.switchml.msg_type = TYPE_OF_ZEROS;
        hdr.switchml.size = SIZE_NONE;
        hdr.ipv4.total_len = hdr.ipv4.total_len - VALUES_BYTES;
        hdr.udp.length = hdr.udp.length - VALUES_BYTES;
    }
    table leave {
        actions = { as_zeros; }
        const default_action = as_zeros();
        size = 1;
    }
    apply {
        leave.apply();
    }
}

#endif
