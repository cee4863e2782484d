/* Block floating point and the exact code: see codec.h. Every loop is written so that gcc and clang vectorise it:
 * no calls, no branches, loads and stores through memcpy (any alignment), restrict pointers; and compiled once more for
 * each number of values that small packets have, since a loop with a constant count needs no remainder. */
#include "codec.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "blocks.h"
#include "values.h"

/* The kernel for `count` values, which is the first of its arguments. */
#define BY_COUNT(kernel, count, ...)                \
    switch (count) {                                \
    case 64: kernel(64, __VA_ARGS__); break;        \
    case 128: kernel(128, __VA_ARGS__); break;      \
    case 256: kernel(256, __VA_ARGS__); break;      \
    default: kernel(count, __VA_ARGS__);            \
    }

/* The same for values of a lane, which is the kernel's second argument. */
#define LANE_BY_COUNT(kernel, lane, count, ...) BY_COUNT(kernel, count, lane, __VA_ARGS__)
#define LANE_ONCE(kernel, lane, count, ...) kernel(count, lane, __VA_ARGS__)

INA_KERNEL int ina_codec_exponent(const float *x, size_t count)
{
    int32_t largest;
    BY_COUNT(largest_of, count, x, &largest)
    /* The fraction rounds up to the next power of two; infinity and NaN are beyond all others. */
    const int exponent = (int)(((uint32_t)largest + 0x7fffff) >> 23) - 127;
    return exponent < INA_EXP_MIN ? INA_EXP_MIN : exponent > INA_EXP_MAX ? INA_EXP_NONFINITE : exponent;
}

INA_KERNEL_PART void scaled(size_t count, uint32_t lane, uint8_t *restrict wire, const float *restrict x, float scale, float limit)
{
    for (size_t i = 0; i < count; i++)
        store_value(lane, wire, i, quantised(x[i], scale, limit));
}

INA_KERNEL void ina_codec_encode(uint32_t lane, uint8_t *restrict wire, const float *restrict x, size_t count, int exponent, int shift)
{
    if (exponent >= INA_EXP_NONFINITE) {
        memset(wire, 0, ina_lane_bytes(lane, count));
        return;
    }
    INA_BY_LANE(lane, LANE_BY_COUNT, scaled, count, wire, x, power_of_two(shift - exponent), power_of_two(shift))
}

INA_KERNEL_PART void unscaled(size_t count, uint32_t lane, float *restrict x, const uint8_t *restrict wire, float unit)
{
    for (size_t i = 0; i < count; i++)
        x[i] = (float)(int32_t)load_value(lane, wire, i) * unit;
}

INA_KERNEL void ina_codec_decode(uint32_t lane, float *restrict x, const uint8_t *restrict wire, size_t count, int exponent, int shift,
                                 int divisor)
{
    if (exponent >= INA_EXP_NONFINITE) {
        for (size_t i = 0; i < count; i++)
            x[i] = float_of(0x7fc00000u);
        return;
    }
    INA_BY_LANE(lane, LANE_BY_COUNT, unscaled, count, x, wire, unit_of(exponent, shift, divisor))
}

INA_KERNEL_PART void small_of(size_t count, const float *restrict x, uint32_t limit, uint32_t *restrict out)
{
    uint32_t small = 0;
    for (size_t i = 0; i < count; i++)
        small += is_flushed(x[i], limit);
    *out = small;
}

INA_KERNEL uint64_t ina_codec_flushed(const float *x, size_t count, int exponent, int shift)
{
    if (exponent >= INA_EXP_NONFINITE)
        return 0;
    uint32_t small;
    BY_COUNT(small_of, count, x, flushed_below(exponent, shift), &small)
    return small;
}

INA_KERNEL_PART void replace(size_t count, float *restrict x, const float *restrict by, uint32_t limit, uint32_t *restrict out)
{
    uint32_t small = 0;
    for (size_t i = 0; i < count; i++) {
        small += is_flushed(x[i], limit);
        x[i] = by[i];
    }
    *out = small;
}

INA_KERNEL uint64_t ina_codec_replace(float *restrict x, const float *restrict by, size_t count, int exponent, int shift)
{
    uint32_t small;
    BY_COUNT(replace, count, x, by, flushed_below(exponent, shift), &small)
    return small;
}

INA_KERNEL_PART void swapped(size_t count, uint32_t lane, uint8_t *restrict to, const uint8_t *restrict from)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t integer = 0;
        memcpy(&integer, from + ina_lane_bytes(lane, i), ina_lane_bytes(lane, 1));
        store_value(lane, to, i, integer);
    }
}

INA_KERNEL void ina_codec_swap(uint32_t lane, void *restrict to, const void *restrict from, size_t count)
{
    INA_BY_LANE(lane, LANE_ONCE, swapped, count, to, from)
}

INA_KERNEL_PART void add(size_t count, uint32_t lane, uint8_t *restrict sum, const uint8_t *restrict other, uint32_t *restrict out)
{
    uint32_t overflow = 0;
    for (size_t i = 0; i < count; i++)
        store_value(lane, sum, i, ina_lane_sum(load_value(lane, sum, i), load_value(lane, other, i), &overflow));
    *out = overflow;
}

INA_KERNEL int ina_codec_add(uint32_t lane, uint8_t *restrict sum, const uint8_t *restrict other, size_t count)
{
    uint32_t overflow;
    INA_BY_LANE(lane, LANE_ONCE, add, count, sum, other, &overflow)
    return ina_lane_overflown(lane, overflow);
}

/* The exact code. A finite float32 is m * 2^(b - 150) with |m| < 2^24 and b = 1..254, so in units of 2^-149 it is the
 * integer m << (b - 1), below 2^277. Twelve signed digits to the base 2^24 hold 288 bits; a shifted m touches two of
 * them, each below 2^24, so 32 workers' digits add up to less than 2^29: no word overflows, no carry is needed on the
 * way. (A small superaccumulator: R. M. Neal, "Fast exact summation using small and large superaccumulators", 2015.)
 * -0 is zero in other digits, 1 and -2^24: the lowest digit is the sum of so many workers' only if all of them have sent -0. */
enum { DIGIT_BITS = 24, DIGIT_MASK = (1 << DIGIT_BITS) - 1 };
enum { WORD = INA_LANE_INT32, HIGHEST = INA_EXACT_WORDS - 1 }; /* lane of the digits; the highest digit */
#define EXACT_BYTES ina_lane_bytes(WORD, INA_EXACT_WORDS)
static_assert(INA_EXACT_WORDS * DIGIT_BITS >= 277 + 5 && INA_EXACT_WORKERS == 32, "32 of the largest floats fit");

/* Non-finite values have no digits, but counts above those of the highest, where 32 workers' finite values reach at most 2^18:
 * +inf by one POSITIVE, -inf by one NEGATIVE, NaN by one of each, since inf + -inf is NaN, too. */
enum { POSITIVE = 1 << 19, NEGATIVE = 1 << 25, COUNT_MASK = 63 };
static_assert((int)INA_EXACT_WORKERS <= COUNT_MASK && (int64_t)INA_EXACT_WORKERS * (NEGATIVE + POSITIVE) + (1 << 18) < INT32_MAX
              && (COUNT_MASK + 1) * POSITIVE == NEGATIVE, "the counts of 32 workers, and their digits, in one word");

void ina_codec_encode_exact(uint8_t *wire, const float *x, size_t count)
{
    memset(wire, 0, count * EXACT_BYTES);
    for (size_t i = 0; i < count; i++, wire += EXACT_BYTES) {
        const uint32_t bits = bits_of(x[i]), biased = bits >> 23 & 0xff;
        if (biased == 0xff) {
            const int nan = (bits & 0x7fffff) != 0;
            store_value(WORD, wire, HIGHEST, nan ? POSITIVE + NEGATIVE : bits >> 31 ? NEGATIVE : POSITIVE);
            continue;
        }
        if (bits == 0x80000000u) {
            store_value(WORD, wire, 0, -(1u << DIGIT_BITS));
            store_value(WORD, wire, 1, 1);
            continue;
        }
        const uint64_t mantissa = (bits & 0x7fffff) | (biased ? 0x800000 : 0);
        const uint32_t position = biased ? biased - 1 : 0;
        const uint64_t shifted = mantissa << position % DIGIT_BITS;
        const uint32_t low = (uint32_t)(shifted & DIGIT_MASK), high = (uint32_t)(shifted >> DIGIT_BITS);
        store_value(WORD, wire, position / DIGIT_BITS, bits >> 31 ? -low : low);
        store_value(WORD, wire, position / DIGIT_BITS + 1, bits >> 31 ? -high : high);
    }
}

/* Carries upwards: every digit becomes 0 <= d < 2^24, the top one keeps the rest and the sign. */
static void carry_digits(int64_t *d)
{
    for (int i = 0; i < INA_EXACT_WORDS; i++) {
        d[i + 1] += d[i] >> DIGIT_BITS;
        d[i] &= DIGIT_MASK;
    }
}

/* Digits of any sign -> the nearest float32 of their value / divisor, ties to even, rounded once. */
static float round_digits(const uint8_t *wire, int workers, int divisor)
{
    if ((int32_t)load_value(WORD, wire, 0) == -(workers << DIGIT_BITS))
        return -0.0f;
    const uint32_t counts = load_value(WORD, wire, HIGHEST) + (1 << 18); /* the digit may be negative */
    const uint32_t positive = counts / POSITIVE & COUNT_MASK, negatives = counts / NEGATIVE;
    if (positive || negatives)
        return positive && negatives ? NAN : positive ? INFINITY : -INFINITY;
    int64_t d[INA_EXACT_WORDS + 1] = {0}; /* d[0] is a guard digit below the unit 2^-149, for the quotient */
    for (size_t i = 0; i < INA_EXACT_WORDS; i++)
        d[i + 1] = (int32_t)load_value(WORD, wire, i);
    carry_digits(d);
    const int negative = d[INA_EXACT_WORDS] < 0;
    if (negative) {
        for (int i = 0; i <= INA_EXACT_WORDS; i++)
            d[i] = -d[i];
        carry_digits(d);
    }

    int64_t remainder = 0;
    int top = -1;
    for (int i = INA_EXACT_WORDS; i >= 0; i--) {
        const int64_t part = remainder * (1 << DIGIT_BITS) + d[i];
        d[i] = part / divisor;
        remainder = part % divisor;
        if (top < 0 && d[i])
            top = i;
    }
    if (top < 0)
        return 0;

    /* 24 bits from the highest, but none below the unit; the bits below decide the rounding. */
    const int highest = top * DIGIT_BITS + 63 - __builtin_clzll((uint64_t)d[top]);
    const int lowest = highest - 23 > DIGIT_BITS ? highest - 23 : DIGIT_BITS;
    const int at = lowest / DIGIT_BITS, shift = lowest % DIGIT_BITS + DIGIT_BITS;
    unsigned __int128 window = (unsigned __int128)(uint64_t)d[at] << DIGIT_BITS | (uint64_t)d[at - 1];
    if (at < INA_EXACT_WORDS)
        window += (unsigned __int128)(uint64_t)d[at + 1] << 2 * DIGIT_BITS;
    int sticky = remainder != 0;
    for (int i = 0; i < at - 1; i++)
        sticky |= d[i] != 0;
    uint32_t mantissa = (uint32_t)(window >> shift);
    const uint64_t rest = (uint64_t)window & ((1ull << shift) - 1), half = 1ull << (shift - 1);
    mantissa += rest > half || (rest == half && (sticky || (mantissa & 1)));
    const float magnitude = ldexpf((float)mantissa, lowest - DIGIT_BITS - 149);
    return negative ? -magnitude : magnitude;
}

int ina_codec_decode_exact(float *x, const uint8_t *wire, size_t count, int workers, int divisor)
{
    int finite = 1;
    for (size_t i = 0; i < count; i++) {
        x[i] = round_digits(wire + i * EXACT_BYTES, workers, divisor);
        finite &= (bits_of(x[i]) & 0x7f800000u) != 0x7f800000u;
    }
    return finite;
}
