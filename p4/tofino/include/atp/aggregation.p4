/* Aggregation, but for the values (lanes.p4): the largest exponent of a sum, its flags, its check words. */
#ifndef INA_TOFINO_ATP_AGGREGATION_P4
#define INA_TOFINO_ATP_AGGREGATION_P4

#include "headers.p4"

control Marks(inout packet_t hdr, in state_t meta) {
    bit<8> seen = 0;

    Register<int<8>, place_t>(SLOTS, 0) exponents;
    RegisterAction<int<8>, place_t, int<8>>(exponents) begin_exponent = {
        void apply(inout int<8> largest) {
            largest = hdr.atp.exponent;
        }
    };
    RegisterAction<int<8>, place_t, int<8>>(exponents) join_exponent = {
        void apply(inout int<8> largest, out int<8> now) {
            largest = max(largest, hdr.atp.exponent);
            now = largest;
        }
    };
    RegisterAction<int<8>, place_t, int<8>>(exponents) look_at_exponent = {
        void apply(inout int<8> largest, out int<8> now) {
            now = largest;
        }
    };

    Register<bit<8>, place_t>(SLOTS, 0) flags;  // collision, ECN: of the packets in the sum, and that asked for it
    RegisterAction<bit<8>, place_t, bit<8>>(flags) begin_flags = {
        void apply(inout bit<8> of_sum) {
            of_sum = meta.flags;
        }
    };
    RegisterAction<bit<8>, place_t, bit<8>>(flags) join_flags = {
        void apply(inout bit<8> of_sum, out bit<8> now) {
            of_sum = of_sum | meta.flags;
            now = of_sum;
        }
    };

    Register<bit<8>, place_t>(SLOTS, 0) overflows;  // whether a packet in the sum came with the overflow flag set
    RegisterAction<bit<8>, place_t, bit<1>>(overflows) begin_overflow = {
        void apply(inout bit<8> overflow) {
            overflow = (bit<8>)hdr.atp.overflow;
        }
    };
    RegisterAction<bit<8>, place_t, bit<1>>(overflows) join_overflow = {
        void apply(inout bit<8> overflow, out bit<1> now) {
            overflow = overflow | (bit<8>)hdr.atp.overflow;
            now = overflow[0:0];
        }
    };
    RegisterAction<bit<8>, place_t, bit<1>>(overflows) look_at_overflow = {
        void apply(inout bit<8> overflow, out bit<1> now) {
            now = overflow[0:0];
        }
    };

    action begin() {
        begin_exponent.execute(ROW);
    }
    action join() {
        join_exponent.execute(ROW);
    }
    action join_and_give() {
        hdr.atp.exponent = join_exponent.execute(ROW);
    }
    action give() {
        hdr.atp.exponent = look_at_exponent.execute(ROW);
    }
    @stage(11)
    table marks {
        key = { meta.store: ternary; meta.add: ternary; hdr.bridge.load: ternary; }
        actions = { begin; join; join_and_give; give; NoAction; }
        const entries = {
            (1, _, _): begin();
            (_, 1, 0): join();
            (_, 1, 1): join_and_give();
            (_, 0, 1): give();
        }
        const default_action = NoAction();
        size = 4;
    }

    action begin_flag() {
        begin_flags.execute(ROW);
    }
    action join_flag() {
        seen = join_flags.execute(ROW);
    }
    @stage(10)
    table flagged {
        key = { meta.store: ternary; meta.add: ternary; hdr.bridge.load: ternary; }
        actions = { begin_flag; join_flag; NoAction; }
        const entries = {
            (1, _, _): begin_flag();
            (_, 1, _): join_flag();
            (_, _, 1): join_flag();
        }
        const default_action = NoAction();
        size = 4;
    }

    action begin_overflows() {
        begin_overflow.execute(ROW);
    }
    action join_overflows() {
        join_overflow.execute(ROW);
    }
    action join_and_give_overflow() {
        hdr.atp.overflow = join_overflow.execute(ROW);
    }
    action give_overflow() {
        hdr.atp.overflow = look_at_overflow.execute(ROW);
    }
    @stage(10)
    table any {
        key = {
            hdr.lanes.isValid(): ternary;
            hdr.bridge.op: ternary;
            meta.add: ternary;
            hdr.bridge.load: ternary;
        }
        actions = { begin_overflows; join_overflows; join_and_give_overflow; give_overflow; NoAction; }
        const entries = {
            (false, _,        _, _): NoAction();
            (_,     Op.STORE, _, _): begin_overflows();
            (_,     Op.ADD,   _, 0): join_overflows();
            (_,     Op.ADD,   _, 1): join_and_give_overflow();
            (_,     _,        _, 1): give_overflow();
        }
        const default_action = NoAction();
        size = 6;
    }

    apply {
        any.apply();
        marks.apply();
        flagged.apply();
        if (hdr.bridge.load == 1) {
            hdr.atp.collision = seen[1:1];
            hdr.atp.ecn = seen[0:0];
        }
    }
}

/* One of the two check words, of packets with values: added as they are, but in one access, as nothing is to be found out of it.
 * In maxima it stays that of the first packet.
 */
control Word(inout bit<32> word, in packet_t hdr) {
    Register<bit<32>, place_t>(SLOTS, 0) words;
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
        begin_.execute(ROW);
    }
    action join() {
        join_.execute(ROW);
    }
    action join_and_give() {
        word = join_.execute(ROW);
    }
    action give() {
        word = look_.execute(ROW);
    }
    @stage(11)
    table operate {
        key = {
            hdr.lanes.isValid(): ternary;
            hdr.bridge.op: ternary;
            hdr.bridge.load: ternary;
        }
        actions = { begin; join; join_and_give; give; NoAction; }
        const entries = {
            (false, _,        _): NoAction();
            (_,     Op.STORE, _): begin();
            (_,     Op.ADD,   0): join();
            (_,     Op.ADD,   1): join_and_give();
            (_,     _,        1): give();
        }
        const default_action = NoAction();
        size = 5;
    }
    apply {
        operate.apply();
    }
}

#endif
