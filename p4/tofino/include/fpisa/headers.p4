/* Packets of fpisa.p4 inside the switch: those of switchml.p4, 16 values at a time, and floats, eight at a time: as they are on a wire
 * or, between the passes that add them, as numbers (numbers.p4).
 */
#ifndef INA_TOFINO_FPISA_HEADERS_P4
#define INA_TOFINO_FPISA_HEADERS_P4

#include "../../../include/fpisa/headers.p4"

#ifdef FIXED_ORDER
#error "FIXED_ORDER is FPISA's, not FPISA-A's"
#endif

#define LANES 16
#include "../passes.p4"

#define SKIPS_EGRESS 0

#define NUMBERS 8
#define FOR_EACH_NUMBER(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7)

const bit<8> LAST_NUMBERS = VALUES / NUMBERS - 1;  // of a packet

#define FLOAT_FIELD(i) bit<32> f##i;
header floats_t {
    FOR_EACH_NUMBER(FLOAT_FIELD)
}

#define NUMBER_FIELD(i) int<32> mantissa##i; int<32> exponent##i;
header numbers_t {
    FOR_EACH_NUMBER(NUMBER_FIELD)
}

#define MORE_LANES floats_t floats; numbers_t numbers;

// Ingress.
#define WITH_LANES lanes
#define EMIT_MORE_LANES packet.emit(hdr.numbers);
#define MORE_PASSES \
            Pass.COMPARE: add_numbers; \
            Pass.SUM: add_numbers; \
            Pass.EXPONENTS: new_numbers; \
            Pass.MANTISSAS: add_numbers;
#define ZERO_NUMBER(i) hdr.numbers.mantissa##i = 0; hdr.numbers.exponent##i = 0;
#define MORE_STATES \
    state add_numbers { \
        SWITCHML_HEADERS \
        transition select(hdr.switchml.checked) { \
            1: check_and_numbers; \
            default: numbers; \
        } \
    } \
    state check_and_numbers { \
        packet.extract(hdr.check); \
        transition numbers; \
    } \
    state numbers { \
        packet.extract(hdr.numbers); \
        transition accept; \
    } \
    state new_numbers { \
        SWITCHML_HEADERS \
        hdr.numbers.setValid(); \
        FOR_EACH_NUMBER(ZERO_NUMBER) \
        transition check_if_any; \
    }

// Egress.
#define EGRESS_ROUNDS \
            Pass.COMPARE: headers; \
            Pass.SUM: headers; \
            Pass.EXPONENTS: headers_if_coded; \
            Pass.FINISH: headers_if_coded;
#define BEHIND_HEADERS floats_or_numbers
#define MORE_EGRESS_STATES \
    state headers_if_coded { \
        transition select(hdr.bridge.coded) { \
            1: headers; \
            default: accept; \
        } \
    } \
    state floats_or_numbers { \
        transition select(hdr.bridge.pass) { \
            Pass.COMPARE: floats; \
            Pass.SUM: numbers; \
            Pass.EXPONENTS: numbers; \
            Pass.FINISH: numbers; \
            default: accept; \
        } \
    } \
    state floats { \
        packet.extract(hdr.floats); \
        transition accept; \
    } \
    state numbers { \
        packet.extract(hdr.numbers); \
        transition accept; \
    }
#define EMIT_ROUNDS packet.emit(hdr.bridge); packet.emit(hdr.flags);
#define EMIT_LEVELS packet.emit(hdr.floats); packet.emit(hdr.numbers);

#define MORE_SHAPES \
            (0, _, _, _, true,  SWITCHML_FLOATS, SIZE_CODE, LENGTHS(CHECK_LENGTH + VALUES_LENGTH)): \
                right(Op.ADD, KIND(SWITCHML_FLOATS, SIZE_CODE), OURS); \
            (0, _, _, _, true,  SWITCHML_FLOATS, SIZE_NONE, LENGTHS(CHECK_LENGTH)): \
                right(Op.ADD, KIND(SWITCHML_FLOATS, SIZE_NONE), OURS); \
            (0, _, _, _, false, SWITCHML_FLOATS, SIZE_CODE, LENGTHS(VALUES_LENGTH)): \
                right(Op.ADD, KIND(SWITCHML_FLOATS, SIZE_CODE), UNCHECKED); \
            (0, _, _, _, false, SWITCHML_FLOATS, SIZE_NONE, LENGTHS(0)): \
                right(Op.ADD, KIND(SWITCHML_FLOATS, SIZE_NONE), UNCHECKED); \
            (0, _, _, _, _, SWITCHML_FLOATS, SIZE_CODE, _, _): wrong(Drop.MALFORMED); \
            (0, _, _, _, _, SWITCHML_FLOATS, SIZE_NONE, _, _): wrong(Drop.MALFORMED); \
            (0, _, _, _, _, SWITCHML_FLOATS, _,         _, _): wrong(Drop.WRONG_SIZE);

#define MORE_KINDS \
            (_, _, _, 1, OF_KIND(SWITCHML_FLOATS, SIZE_CODE), 0): join_set0(); \
            (_, _, _, 1, OF_KIND(SWITCHML_FLOATS, SIZE_CODE), 1): join_set1(); \
            (_, _, _, 1, OF_KIND(SWITCHML_FLOATS, SIZE_NONE), 0): join_set0(); \
            (_, _, _, 1, OF_KIND(SWITCHML_FLOATS, SIZE_NONE), 1): join_set1();

#define MORE_COUNTS \
            (0, Pass.SUM, LAST_NUMBERS, Op.STORE): begin(); \
            (0, Pass.SUM, LAST_NUMBERS, Op.ADD):   join();

#include "../switchml/headers.p4"

#endif
