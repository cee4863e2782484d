/* Numbers: eight floats, which is what one pass handles. A number is an exponent and a mantissa with a sign
 * (../../../include/fpisa/numbers.p4); its lane is one stateful ALU with a pair of words.
 *
 * A lane cannot shift what it has, so a number is shifted before it is added, by as many places as the lane has said: two passes.
 * Both are for the sums, too: what is compared with 0 gives the exponent, what 0 is added to gives the mantissa.
 */
#ifndef INA_TOFINO_FPISA_NUMBERS_P4
#define INA_TOFINO_FPISA_NUMBERS_P4

#include "headers.p4"

const int<32> MOST  = 0x7fffffff;  // mantissas: a sum that has come to one of them stays there
const int<32> LEAST = -0x80000000;

struct number_t {
    int<32> mantissa;
    int<32> limit;     // the exponent, and 7: the largest that still fits into the head-room
}

control NumberLane(inout int<32> mantissa, inout int<32> exponent, in bridge_t bridge) {
    Register<number_t, cell_place_t>(ROWS * (VALUES / NUMBERS), {0, 0}) numbers;

    RegisterAction<number_t, cell_place_t, int<32>>(numbers) store_ = {
        void apply(inout number_t number) {
            number.mantissa = mantissa;
            number.limit = exponent + 7;
        }
    };
    RegisterAction<number_t, cell_place_t, int<32>>(numbers) compare_ = {
        void apply(inout number_t number, out int<32> limit) {
            limit = number.limit;
            if (exponent - number.limit > 0) {
                number.mantissa = mantissa;
                number.limit = exponent + 7;
            }
        }
    };
    RegisterAction<number_t, cell_place_t, int<32>>(numbers) add_ = {
        void apply(inout number_t number, out int<32> sum) {
            if (number.mantissa != MOST && number.mantissa != LEAST) {
                number.mantissa = number.mantissa |+| mantissa;
            }
            sum = number.mantissa;
        }
    };

    // The exponent becomes the number of places by which the mantissa is to be shifted: less than 0, nothing of it is left to add.
    action store() {
        store_.execute(bridge.cell);
        exponent = -1;
    }
    action compare() {
        exponent = compare_.execute(bridge.cell) - exponent;
    }
    action add() {
        mantissa = add_.execute(bridge.cell);
    }
    table operate {
        key = { bridge.pass: ternary; bridge.op: ternary; }
        actions = { store; compare; add; @defaultonly NoAction; }
        const entries = {
            (Pass.COMPARE,   Op.STORE): store();
            (Pass.COMPARE,   _):        compare();
            (Pass.EXPONENTS, _):        compare();  // with 0
            (Pass.SUM,       _):        add();
            (Pass.MANTISSAS, _):        add();      // 0
        }
        const default_action = NoAction();
        size = 5;
    }
    apply {
        operate.apply();
    }
}

control NumberLanes(inout numbers_t numbers, in bridge_t bridge) {
#define NUMBER_LANE(i) NumberLane() number##i;
    FOR_EACH_NUMBER(NUMBER_LANE)
    apply {
#define APPLY_NUMBER_LANE(i) number##i.apply(numbers.mantissa##i, numbers.exponent##i, bridge);
        FOR_EACH_NUMBER(APPLY_NUMBER_LANE)
    }
}

/* Shifts by 0 to 31 places, which an ALU does by a constant: three tables, of at most three shifts each. */
control ShiftRight(inout int<32> mantissa, in int<32> places) {
#define SHIFT_RIGHT(n) action by##n() { mantissa = mantissa >> n; }
    SHIFT_RIGHT(1) SHIFT_RIGHT(2) SHIFT_RIGHT(3) SHIFT_RIGHT(4) SHIFT_RIGHT(8) SHIFT_RIGHT(12) SHIFT_RIGHT(16)
    action all() {
        mantissa = 0;
    }
    table sixteens {
        key = { places[31:0]: ternary @name("places"); }
        actions = { all; by16; NoAction; }
        const entries = {
            0x00000000 &&& 0xfffffff0: NoAction();
            0x00000010 &&& 0xfffffff0: by16();
        }
        const default_action = all();  // more than 31, or less than 0
        size = 2;
    }
    table fours {
        key = { places[3:2]: exact @name("fours"); }
        actions = { by4; by8; by12; NoAction; }
        const entries = { 1: by4(); 2: by8(); 3: by12(); }
        const default_action = NoAction();
        size = 4;
    }
    table ones {
        key = { places[1:0]: exact @name("ones"); }
        actions = { by1; by2; by3; NoAction; }
        const entries = { 1: by1(); 2: by2(); 3: by3(); }
        const default_action = NoAction();
        size = 4;
    }
    apply {
        sixteens.apply();
        fours.apply();
        ones.apply();
    }
}

control ShiftLeft(inout int<32> mantissa, in bit<8> places) {
#define SHIFT_LEFT(n) action by##n() { mantissa = mantissa << n; }
    SHIFT_LEFT(1) SHIFT_LEFT(2) SHIFT_LEFT(3) SHIFT_LEFT(4) SHIFT_LEFT(8) SHIFT_LEFT(12) SHIFT_LEFT(16)
    table sixteens {
        key = { places[4:4]: exact @name("sixteens"); }
        actions = { by16; NoAction; }
        const entries = { 1: by16(); }
        const default_action = NoAction();
        size = 2;
    }
    table fours {
        key = { places[3:2]: exact @name("fours"); }
        actions = { by4; by8; by12; NoAction; }
        const entries = { 1: by4(); 2: by8(); 3: by12(); }
        const default_action = NoAction();
        size = 4;
    }
    table ones {
        key = { places[1:0]: exact @name("ones"); }
        actions = { by1; by2; by3; NoAction; }
        const entries = { 1: by1(); 2: by2(); 3: by3(); }
        const default_action = NoAction();
        size = 4;
    }
    apply {
        sixteens.apply();
        fours.apply();
        ones.apply();
    }
}

/* Egress, before COMPARE: the number of a float. `mantissa` comes as its fraction, `exponent` as sign and exponent. */
control Unpack(in bit<32> value, inout int<32> mantissa, inout int<32> exponent) {
    action special(int<32> count) {
        mantissa = count;
        exponent = 512;
    }
    action denormal() {
        exponent = 1;
    }
    action normal() {
        mantissa = mantissa | 0x800000;
        exponent = exponent & 0xff;
    }
    table classify {
        key = { value: ternary; }
        actions = { special; denormal; normal; }
        const entries = {
            0x7f800000:                special(0x000001);
            0xff800000:                special(0x000100);
            0x7f800000 &&& 0x7f800000: special(0x010000);
            0x00000000 &&& 0x7f800000: denormal();
        }
        const default_action = normal();
        size = 4;
    }
    action negate() {
        mantissa = -mantissa;
    }
    table sign {
        key = { value: ternary; }
        actions = { negate; NoAction; }
        const entries = {
            0x7f800000 &&& 0x7f800000: NoAction();
            0x80000000 &&& 0x80000000: negate();
        }
        const default_action = NoAction();
        size = 2;
    }
    apply {
        classify.apply();
        sign.apply();
    }
}

/* Egress, behind MANTISSAS: the sum, normalised. `exponent` comes as the lane's limit, and `above` becomes the float's exponent less
 * 1, which the leading 1 of the mantissa adds again; `sign` has the bit beside it.
 */
control Normalise(inout int<32> mantissa, in int<32> limit, inout int<32> above, inout int<32> sign, inout bit<8> flag) {
    bit<8> places;  // to the left

    action plus() {
        sign = 0;
    }
    action minus() {
        mantissa = -mantissa;
        sign = 256;
    }
    action most() {
        sign = 0;
        flag = 1;
    }
    action least() {
        mantissa = -mantissa;
        sign = 256;
        flag = 1;
    }
    table magnitude {
        key = { mantissa[31:0]: ternary @name("mantissa"); }
        actions = { plus; minus; most; least; }
        const entries = {
            0x7fffffff:                most();
            0x80000000:                least();
            0x80000000 &&& 0x80000000: minus();
        }
        const default_action = plus();
        size = 4;
    }

    action lead(int<32> zeros, bit<8> shift) {
        above = limit - zeros;
        places = shift;
    }
    action zero() {
        above = 0;
        places = 0;
    }
    action infinite_sum(int<32> negative) {
        mantissa = 0;
        above = 255;
        sign = negative;
        places = 0;
    }
    action no_number() {
        mantissa = 0x40000000;
        above = 255;
        places = 0;
    }
    table leading {
        key = { limit[9:9]: ternary @name("special"); mantissa[31:0]: ternary @name("mantissa"); }
        actions = { lead; zero; infinite_sum; no_number; }
#define LEAD(n, one, mask) (_, one &&& mask): lead(n, n);
        const entries = {
            (1, 0x00000000 &&& 0xffffff00): infinite_sum(0);
            (1, 0x00000000 &&& 0xffff00ff): infinite_sum(256);
            (1, _):                         no_number();
            LEAD( 0, 0x80000000, 0x80000000) LEAD( 1, 0x40000000, 0xc0000000) LEAD( 2, 0x20000000, 0xe0000000)
            LEAD( 3, 0x10000000, 0xf0000000) LEAD( 4, 0x08000000, 0xf8000000) LEAD( 5, 0x04000000, 0xfc000000)
            LEAD( 6, 0x02000000, 0xfe000000) LEAD( 7, 0x01000000, 0xff000000) LEAD( 8, 0x00800000, 0xff800000)
            LEAD( 9, 0x00400000, 0xffc00000) LEAD(10, 0x00200000, 0xffe00000) LEAD(11, 0x00100000, 0xfff00000)
            LEAD(12, 0x00080000, 0xfff80000) LEAD(13, 0x00040000, 0xfffc0000) LEAD(14, 0x00020000, 0xfffe0000)
            LEAD(15, 0x00010000, 0xffff0000) LEAD(16, 0x00008000, 0xffff8000) LEAD(17, 0x00004000, 0xffffc000)
            LEAD(18, 0x00002000, 0xffffe000) LEAD(19, 0x00001000, 0xfffff000) LEAD(20, 0x00000800, 0xfffff800)
            LEAD(21, 0x00000400, 0xfffffc00) LEAD(22, 0x00000200, 0xfffffe00) LEAD(23, 0x00000100, 0xffffff00)
            LEAD(24, 0x00000080, 0xffffff80) LEAD(25, 0x00000040, 0xffffffc0) LEAD(26, 0x00000020, 0xffffffe0)
            LEAD(27, 0x00000010, 0xfffffff0) LEAD(28, 0x00000008, 0xfffffff8) LEAD(29, 0x00000004, 0xfffffffc)
            LEAD(30, 0x00000002, 0xfffffffe) LEAD(31, 0x00000001, 0xffffffff)
        }
        const default_action = zero();
        size = 35;
    }

    action denormal() {
        above = 0;
        places = (bit<8>)limit[7:0];
    }
    action infinite() {
        above = 255;
        mantissa = 0;
    }
    table range {
        key = { limit[9:9]: ternary @name("special"); above[31:0]: ternary @name("above"); }
        actions = { denormal; infinite; NoAction; }
        const entries = {
            (1, _):                         NoAction();
            (_, 0x80000000 &&& 0x80000000): denormal();
            (_, 0x000000fe &&& 0xfffffffe): infinite();
            (_, 0x00000100 &&& 0xffffff00): infinite();
        }
        const default_action = NoAction();
        size = 4;
    }
    ShiftLeft() shift;

    apply {
        magnitude.apply();
        leading.apply();
        range.apply();
        shift.apply(mantissa, places);
    }
}

/* Egress: what is done with eight numbers between two passes. */
control Numbers(inout packet_t hdr) {
#define NUMBER_TOOLS(i) Unpack() unpack##i; ShiftRight() align##i; Normalise() normalise##i; int<32> above##i; int<32> sign##i;
    FOR_EACH_NUMBER(NUMBER_TOOLS)

    action split() {
        hdr.numbers.setValid();
#define SPLIT(i) hdr.numbers.exponent##i = (int<32>)(hdr.floats.f##i >> 23); \
                 hdr.numbers.mantissa##i = (int<32>)(hdr.floats.f##i & 0x7fffff);
        FOR_EACH_NUMBER(SPLIT)
    }
    action to_the_limit() {
#define TO_THE_LIMIT(i) hdr.numbers.mantissa##i = hdr.numbers.mantissa##i << 7;
        FOR_EACH_NUMBER(TO_THE_LIMIT)
    }
    action signs() {
#define SIGN(i) sign##i = sign##i + above##i;
        FOR_EACH_NUMBER(SIGN)
    }
    action places() {
#define PLACE(i) sign##i = sign##i << 23; hdr.numbers.mantissa##i = (int<32>)((bit<32>)hdr.numbers.mantissa##i >> 8);
        FOR_EACH_NUMBER(PLACE)
    }
    action join() {
        hdr.floats.setValid();
#define JOIN(i) hdr.floats.f##i = (bit<32>)(sign##i + hdr.numbers.mantissa##i);
        FOR_EACH_NUMBER(JOIN)
    }

    apply {
        if (hdr.floats.isValid()) {
            split();
#define UNPACK(i) unpack##i.apply(hdr.floats.f##i, hdr.numbers.mantissa##i, hdr.numbers.exponent##i);
            FOR_EACH_NUMBER(UNPACK)
            hdr.floats.setInvalid();
        } else if (hdr.bridge.pass == Pass.SUM) {
            to_the_limit();
#define ALIGN(i) align##i.apply(hdr.numbers.mantissa##i, hdr.numbers.exponent##i);
            FOR_EACH_NUMBER(ALIGN)
        } else if (hdr.numbers.isValid()) {
#define NORMALISE(i) normalise##i.apply(hdr.numbers.mantissa##i, hdr.numbers.exponent##i, above##i, sign##i, hdr.flags.f0##i);
            FOR_EACH_NUMBER(NORMALISE)
            signs();
            places();
            join();
            hdr.numbers.setInvalid();
            hdr.bridge.coded = 0;
        }
    }
}

#endif
