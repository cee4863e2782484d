/* Lanes: 32 values, which is what one pass handles. A packet with more goes round once for each 32 of them (docs/tna-programs.md).
 *
 * One lane is one stateful ALU: a pair of 32-bit words for each cell, the sum and its overflow flag, four instructions of at
 * most two conditions, one access in a pass, one word out of it. So what a packet adds, and what the sum then is, are two
 * passes: the first gives the flag, the second, if the packet is to carry the sum, the sum.
 *
 * The program that includes this has `state_t` with `op`, `cell`, `first` and `overflow0` .. `overflow3`.
 */
#ifndef INA_TOFINO_LANES_P4
#define INA_TOFINO_LANES_P4

#include "passes.p4"

struct cell_t {
    int<32> sum;
    bit<32> overflow;  // 1: since it began, two operands of one sign gave a sum of the other
}

const int<32> LARGEST  = 0x7fffffff;
const int<32> SMALLEST = -0x7fffffff - 1;

/* Conditions say before the addition whether it will overflow: what a stateful ALU compares is what was there. */
control Lane(inout int<32> value, inout bit<32> overflow, in state_t meta) {
    Register<cell_t, bit<32>>(CELLS, {0, 0}) cells;

    RegisterAction<cell_t, bit<32>, bit<32>>(cells) larger_ = {
        void apply(inout cell_t cell, out bit<32> flag) {
            if (meta.first == 1 || value > cell.sum) {
                cell.sum = value;
            }
            cell.overflow = 0;
            flag = 0;
        }
    };
    RegisterAction<cell_t, bit<32>, bit<32>>(cells) rise_ = {  // value >= 0
        void apply(inout cell_t cell, out bit<32> flag) {
            if (cell.sum > LARGEST - value) {
                cell.overflow = 1;
            }
            cell.sum = cell.sum + value;
            flag = cell.overflow;
        }
    };
    RegisterAction<cell_t, bit<32>, bit<32>>(cells) fall_ = {  // value < 0
        void apply(inout cell_t cell, out bit<32> flag) {
            if (cell.sum < SMALLEST - value) {
                cell.overflow = 1;
            }
            cell.sum = cell.sum + value;
            flag = cell.overflow;
        }
    };
    RegisterAction<cell_t, bit<32>, int<32>>(cells) load_ = {
        void apply(inout cell_t cell, out int<32> sum) {
            sum = cell.sum;
        }
    };

    action larger() {
        larger_.execute(meta.cell);
    }
    action rise() {
        overflow = overflow | rise_.execute(meta.cell);
    }
    action fall() {
        overflow = overflow | fall_.execute(meta.cell);
    }
    action load() {
        value = load_.execute(meta.cell);
    }
    table operate {
        key = {
            meta.op: exact;
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

control Lanes(inout lanes_t lanes, inout state_t meta) {
#define LANE(i) Lane() value##i;
    FOR_EACH_LANE(LANE)

    action forget() {
#define FORGET(i) lanes.v##i = 0;
        FOR_EACH_LANE(FORGET)
    }

// Four to a stage, each with an accumulator of its own.
#define APPLY_4(a, b, c, d) \
    value##a.apply(lanes.v##a, meta.overflow0, meta); value##b.apply(lanes.v##b, meta.overflow1, meta); \
    value##c.apply(lanes.v##c, meta.overflow2, meta); value##d.apply(lanes.v##d, meta.overflow3, meta);
    apply {
        if (meta.op == Op.LOOK) {
            forget();
        }
        APPLY_4(00, 01, 02, 03) APPLY_4(04, 05, 06, 07) APPLY_4(08, 09, 0a, 0b) APPLY_4(0c, 0d, 0e, 0f)
        APPLY_4(10, 11, 12, 13) APPLY_4(14, 15, 16, 17) APPLY_4(18, 19, 1a, 1b) APPLY_4(1c, 1d, 1e, 1f)
    }
}

#endif
