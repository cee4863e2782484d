/* Aggregation, but for the values (lanes.p4): the row's largest exponents, the overflow flags that packets bring, check words. */
#ifndef INA_TOFINO_AGGREGATION_P4
#define INA_TOFINO_AGGREGATION_P4

#include "headers.p4"

/* Largest exponent of the phase. Published clients carry two, ours one and the incarnation, which stays as it is. */
control Largest(inout int<8> exponent, in bridge_t bridge) {
    Register<int<8>, place_t>(ROWS, 0) exponents;
    RegisterAction<int<8>, place_t, int<8>>(exponents) begin_ = {
        void apply(inout int<8> largest, out int<8> now) {
            largest = exponent;
            now = largest;
        }
    };
    RegisterAction<int<8>, place_t, int<8>>(exponents) join_ = {
        void apply(inout int<8> largest, out int<8> now) {
            largest = max(largest, exponent);
            now = largest;
        }
    };
    RegisterAction<int<8>, place_t, int<8>>(exponents) look_ = {
        void apply(inout int<8> largest, out int<8> now) {
            now = largest;
        }
    };

    action begin() {
        begin_.execute(bridge.row);
    }
    action join() {
        join_.execute(bridge.row);
    }
    action join_and_give() {
        exponent = join_.execute(bridge.row);
    }
    action give() {
        exponent = look_.execute(bridge.row);
    }
    table largest {
        key = { bridge.first: ternary; bridge.op: ternary; bridge.complete: ternary; }
        actions = { begin; join; join_and_give; give; NoAction; }
        const entries = {
            (1, _,          _): begin();
            (_, Op.LOOK,    _): give();
            (_, Op.NOTHING, _): NoAction();
            (_, _,          0): join();
            (_, _,          1): join_and_give();
        }
        const default_action = NoAction();
        size = 5;
    }
    apply {
        largest.apply();
    }
}

/* Whether a packet of this phase came with the overflow flag set. */
control Flags(inout packet_t hdr, in state_t meta) {
    Register<bit<8>, place_t>(ROWS, 0) overflows;
    RegisterAction<bit<8>, place_t, bit<1>>(overflows) begin_ = {
        void apply(inout bit<8> overflow, out bit<1> now) {
            overflow = (bit<8>)hdr.switchml.overflow;
            now = overflow[0:0];
        }
    };
    RegisterAction<bit<8>, place_t, bit<1>>(overflows) join_ = {
        void apply(inout bit<8> overflow, out bit<1> now) {
            overflow = overflow | (bit<8>)hdr.switchml.overflow;
            now = overflow[0:0];
        }
    };
    RegisterAction<bit<8>, place_t, bit<1>>(overflows) look_ = {
        void apply(inout bit<8> overflow, out bit<1> now) {
            now = overflow[0:0];
        }
    };

    action begin() {
        begin_.execute(hdr.bridge.row);
    }
    action join() {
        join_.execute(hdr.bridge.row);
    }
    action join_and_give() {
        hdr.switchml.overflow = join_.execute(hdr.bridge.row);
    }
    action give() {
        hdr.switchml.overflow = look_.execute(hdr.bridge.row);
    }
    action none() {
        hdr.switchml.overflow = 0;
    }
    table any {
        key = {
            meta.has_values: ternary;
            hdr.bridge.first: ternary;
            hdr.bridge.op: ternary;
            hdr.bridge.complete: ternary;
        }
        actions = { begin; join; join_and_give; give; none; NoAction; }
        const entries = {
            (0, _, _,          _): none();
            (_, 1, _,          _): begin();
            (_, _, Op.ADD,     0): join();
            (_, _, Op.ADD,     1): join_and_give();
            (_, _, Op.LOOK,    _): give();
            (_, _, Op.MAXIMUM, 1): give();
        }
        const default_action = NoAction();
        size = 6;
    }
    apply {
        any.apply();
    }
}

/* One of the two check words, of packets with values: added as they are, but in one access, as nothing is to be found out of it.
 * In maxima it stays that of the first packet.
 */
control Word(inout bit<32> word, in bridge_t bridge) {
    Register<bit<32>, place_t>(ROWS, 0) words;
    RegisterAction<bit<32>, place_t, bit<32>>(words) begin_ = {
        void apply(inout bit<32> sum) {
            sum = word;
        }
    };
    RegisterAction<bit<32>, place_t, bit<32>>(words) join_ = {
        void apply(inout bit<32> sum, out bit<32> now) {
            sum = sum + word;
            now = sum;
        }
    };
    RegisterAction<bit<32>, place_t, bit<32>>(words) look_ = {
        void apply(inout bit<32> sum, out bit<32> now) {
            now = sum;
        }
    };

    action begin() {
        begin_.execute(bridge.row);
    }
    action join() {
        join_.execute(bridge.row);
    }
    action join_and_give() {
        word = join_.execute(bridge.row);
    }
    action give() {
        word = look_.execute(bridge.row);
    }
    table operate {
        key = { bridge.first: ternary; bridge.op: ternary; bridge.complete: ternary; }
        actions = { begin; join; join_and_give; give; NoAction; }
        const entries = {
            (1, _,          _): begin();
            (_, Op.ADD,     0): join();
            (_, Op.ADD,     1): join_and_give();
            (_, Op.LOOK,    _): give();
            (_, Op.MAXIMUM, 1): give();
        }
        const default_action = NoAction();
        size = 5;
    }
    apply {
        operate.apply();
    }
}

#endif
