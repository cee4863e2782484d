/* Lanes: 32 values (-DLANES=16: 16), which is what one pass handles. A packet with more goes round once for each 32 of them
 * (docs/design/tna-programs.md).
 *
 * One lane is one stateful ALU: a pair of 32-bit words for each cell, the sum and its overflow flag, four instructions of at
 * most two conditions, one access in a pass, one word out of it. So what a packet adds, and what the sum then is, are two
 * passes: the first gives the flag, the second, if the packet is to carry the sum, the sum.
 *
 * The program that includes this has `bridge_t` with `op`, `cell` and `first`.
 */
#ifndef INA_TOFINO_LANES_P4
#define INA_TOFINO_LANES_P4

#include "passes.p4"

#ifndef EGRESS_STAGE
#define EGRESS_STAGE
#endif

struct cell_t {
    int<32> sum;
    int<32> overflow;  // 1: since it began, two operands of one sign gave a sum of the other
}

/* Conditions say before the addition whether it will overflow: what a stateful ALU compares is what was there. Two operands of
 * one sign, and a sum, which wraps, of the other: two conditions for each sign of the value, which the table has looked at.
 */
control Lane(inout int<32> value, inout bit<8> flag, in bridge_t bridge) {
    Register<cell_t, cell_place_t>(CELLS, {0, 0}) cells;

    RegisterAction<cell_t, cell_place_t, int<32>>(cells) larger_ = {
        void apply(inout cell_t cell) {
            if (bridge.first == 1 || value > cell.sum) {
                cell.sum = value;
            }
            cell.overflow = 0;
        }
    };
    RegisterAction<cell_t, cell_place_t, int<32>>(cells) rise_ = {  // value >= 0
        void apply(inout cell_t cell, out int<32> said) {
            if (cell.sum >= 0 && cell.sum + value < 0) {
                cell.overflow = 1;
            }
            cell.sum = cell.sum + value;
            said = cell.overflow;
        }
    };
    RegisterAction<cell_t, cell_place_t, int<32>>(cells) fall_ = {  // value < 0
        void apply(inout cell_t cell, out int<32> said) {
            if (cell.sum < 0 && cell.sum + value >= 0) {
                cell.overflow = 1;
            }
            cell.sum = cell.sum + value;
            said = cell.overflow;
        }
    };
    RegisterAction<cell_t, cell_place_t, int<32>>(cells) load_ = {
        void apply(inout cell_t cell, out int<32> sum) {
            sum = cell.sum;
        }
    };

    action larger() {
        larger_.execute(bridge.cell);
    }
    action rise() {
        flag = flag | rise_.execute(bridge.cell)[7:0];
    }
    action fall() {
        flag = flag | fall_.execute(bridge.cell)[7:0];
    }
    action load() {
        value = load_.execute(bridge.cell);
    }
    table operate {
        key = {
            bridge.op: exact;
            value[31:31]: ternary @name("negative");
        }
        actions = { larger; rise; fall; load; @defaultonly NoAction; }
        const entries = {
            (Op.STORE,   _): larger();
            (Op.MAXIMUM, _): larger();
            (Op.ADD,     0): rise();
            (Op.ADD,     1): fall();
            (Op.LOOK,    _): rise();  // of nothing: `forget` comes before
            (Op.LOAD,    _): load();
        }
        const default_action = NoAction();
        size = 6;
    }
    apply {
        operate.apply();
    }
}

control Lanes(inout lanes_t lanes, inout flags_t flags, in bridge_t bridge) {
#define LANE(i) Lane() value##i;
    FOR_EACH_LANE(LANE)

#ifndef PARSER_FORGETS
    action forget() {
#define FORGET(i) lanes.v##i = 0;
        FOR_EACH_LANE(FORGET)
    }
#endif

    apply {
#ifndef PARSER_FORGETS
        if (bridge.op == Op.LOOK) {
            forget();
        }
#endif
#define APPLY(i) value##i.apply(lanes.v##i, flags.f##i, bridge);
        FOR_EACH_LANE(APPLY)
    }
}

/* Whether any of the sums that a packet carries has overflowed. */
control Overflows(in flags_t flags, inout bit<1> overflow) {
    action mark() {
        overflow = 1;
    }
#define FLAG_KEY(i) flags.f##i: ternary;
#define NONE_SET(i) , 0
    EGRESS_STAGE
    table any {
        key = {
            overflow: ternary;
            FOR_EACH_LANE(FLAG_KEY)
        }
        actions = { mark; NoAction; }
        const entries = {
            (0 FOR_EACH_LANE(NONE_SET)): NoAction();
        }
        const default_action = mark();
        size = 1;
    }
    apply {
        any.apply();
    }
}

#endif
