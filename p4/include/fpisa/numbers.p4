/* Numbers as a slot holds them: an exponent, and a mantissa with a sign, which has 7 bits more than binary32's (Yuan et al., NSDI'22).
 *
 *      float  = sign, 8 bits of exponent, 23 of fraction        number = mantissa * 2^(exponent - 150)
 *
 *                 sign  7 bits of head-room   24 bits
 *                +----+---------------------+---------------------------------+
 *      mantissa: |  s |                     | 1 fraction                      |   two's complement
 *                +----+---------------------+---------------------------------+
 *
 * Nothing is normalised before the result leaves: up to 128 numbers add up without a carry out of the head-room. All that is cut
 * off is cut towards zero, so the sum of the negatives is the negative of the sum. Zero has no sign; denormal numbers have exponent 1
 * and no leading 1, and are added exactly as others.
 *
 * Infinities and NaN have an exponent beyond all finite ones, far enough that a finite number beside them is cut to nothing; their
 * mantissas count them, so that adding is all that is done to them, too.
 */
#ifndef INA_FPISA_NUMBERS_P4
#define INA_FPISA_NUMBERS_P4

typedef bit<16> exponent_t;

const exponent_t SPECIAL = 512;
const bit<32> POSITIVE_INFINITY = 0x000001;  // of up to 255 children
const bit<32> NEGATIVE_INFINITY = 0x000100;
const bit<32> NOT_A_NUMBER      = 0x010000;

const bit<8> LARGEST = 254;  // exponent of finite floats

// Macros rather than functions, of which a compiler would make a copy for every value. `x` and `places` are names. p4c groups
// conditionals from the left, so what follows a colon is in parentheses.
#define EXPONENT_OF(x) (x[30:23] > LARGEST ? SPECIAL : (x[30:23] == 0 ? 16w1 : 8w0 ++ x[30:23]))
#define NEGATED_IF(sign, x) (sign == 1 ? -x : x)
#define MANTISSA_OF(x) (x[30:23] <= LARGEST ? NEGATED_IF(x[31:31], (8w0 ++ (x[30:23] == 0 ? 1w0 : 1w1) ++ x[22:0])) \
                        : (x[22:0] != 0 ? NOT_A_NUMBER : (x[31:31] == 1 ? NEGATIVE_INFINITY : POSITIVE_INFINITY)))
// Shifts are by 8 bits at most: BMv2 has no longer amounts.
#define BITS(places) ((places) > 31 ? 8w32 : (bit<8>)(places))
// Without the last places, towards zero.
#define CUT(x, places) (x[31:31] == 1 ? -(-x >> BITS(places)) : x >> BITS(places))

/* Bits up to the highest that is set, less one; of 0: 0. */
bit<16> place_of(in bit<32> magnitude) {
    bit<32> m16 = magnitude >> 16 != 0 ? magnitude >> 16 : magnitude;
    bit<32> m8 = m16 >> 8 != 0 ? m16 >> 8 : m16;
    bit<32> m4 = m8 >> 4 != 0 ? m8 >> 4 : m8;
    bit<32> m2 = m4 >> 2 != 0 ? m4 >> 2 : m4;
    return 11w0 ++ (magnitude >> 16 != 0 ? 1w1 : 1w0) ++ (m16 >> 8 != 0 ? 1w1 : 1w0) ++ (m8 >> 4 != 0 ? 1w1 : 1w0)
           ++ (m4 >> 2 != 0 ? 1w1 : 1w0) ++ (m2 >> 1 != 0 ? 1w1 : 1w0);
}

/* The float, cut towards zero: infinity beyond the largest, denormal below the smallest. */
bit<32> float_of(in exponent_t exponent, in bit<32> mantissa) {
    bit<32> magnitude = NEGATED_IF(mantissa[31:31], mantissa);
    bit<16> place = place_of(magnitude);
    bit<16> above = exponent + place;  // 23 more than the float's exponent
    bit<32> fraction = place > 23 ? magnitude >> (bit<8>)(place - 23)
                       : (above > 23 ? magnitude << (bit<8>)(23 - place) : magnitude << (bit<8>)(exponent - 1));
    bit<16> biased = above > 23 ? above - 23 : 0;
    bit<32> finite = biased > (bit<16>)LARGEST ? mantissa[31:31] ++ 8w255 ++ 23w0 : mantissa[31:31] ++ biased[7:0] ++ fraction[22:0];
    bool positive = mantissa[7:0] != 0;
    bool negative = mantissa[15:8] != 0;
    bool neither = mantissa[31:16] != 0 || (positive && negative);
    bit<32> special = neither ? 32w0x7fc00000 : (positive ? 32w0x7f800000 : 32w0xff800000);
    return exponent >= SPECIAL ? special : (magnitude == 0 ? 0 : finite);
}

#endif
