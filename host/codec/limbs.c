/* Limbs: see limbs.h. float32 values are handled as float64, which represents them. */
#include "limbs.h"

#include <float.h>
#include <math.h>

#include "blocks.h"

typedef unsigned __int128 wide;

enum { FRACTION_BITS = DBL_MANT_DIG - 1 };
/* In the word of counts; NaN: one of each. 1,024 workers' infinities are less than one -0, and their -0 less than 2^32. */
enum { POSITIVE = 1, NEGATIVE = 1 << 11, COUNT_MASK = NEGATIVE - 1, MINUS_ZERO = (1 << 21) + NEGATIVE };

struct grid { /* digits of a block */
    int digits;
    int lowest; /* position of the last digit's lowest bit */
    int counts; /* 1: a word for each value counts infinities and, with less than two digits, -0 */
};

INA_KERNEL_PART uint64_t bits_of_double(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, 8);
    return bits;
}

static int digit_bits(const struct ina_limbs *l)
{
    return l->workers <= 1 ? 30 : 30 - (32 - __builtin_clz(l->workers - 1));
}

static int lowest_bit(const struct ina_limbs *l)
{
    return l->size == 4 ? -149 : -1074;
}

static struct grid grid_of(const struct ina_limbs *l, const int32_t *survey)
{
    const int bits = digit_bits(l), top = survey[0], nonfinite = survey[1] == INA_LIMBS_NONFINITE;
    const int low = nonfinite ? lowest_bit(l) : -survey[1];
    struct grid grid = {0, low, nonfinite};
    grid.counts |= top == INA_LIMBS_NEGATIVE_ZERO;
    if (top == INA_LIMBS_ZERO || top == INA_LIMBS_NEGATIVE_ZERO)
        return grid;
    grid.digits = top > low ? (top - low - 1) / bits + 1 : 1;
    if (l->most && (uint32_t)grid.digits > l->most) {
        grid.digits = (int)l->most;
        grid.lowest = top - bits * grid.digits;
    }
    return grid;
}

uint64_t ina_limbs_words(const struct ina_limbs *l, const int32_t *survey)
{
    const int highest = l->size == 4 ? 128 : 1024, lowest = lowest_bit(l);
    uint64_t words = 0;
    for (uint64_t block = 0; block * l->block < l->count; block++, survey += INA_LIMBS_SURVEY) {
        const int32_t top = survey[0], low = survey[1];
        const int zero = (top == INA_LIMBS_ZERO || top == INA_LIMBS_NEGATIVE_ZERO) && (low == INA_LIMBS_ZERO || low == INA_LIMBS_NONFINITE);
        const int bits = low >= -highest && low <= digit_bits(l) + 1 - lowest; /* by a digit for -0 */
        const int finite = top >= lowest && top <= highest && (bits || low == INA_LIMBS_NONFINITE);
        if (!zero && !finite)
            return UINT64_MAX;
        const struct grid grid = grid_of(l, survey);
        words += block_values(l->count, l->block, block) * (uint64_t)(grid.digits + grid.counts);
    }
    return words;
}

/* -0 has the bits of the least integer. */
#define LEAST(type)                                                                \
    INA_KERNEL_PART type##_t least_of_##type(size_t count, const void *restrict x)   \
    {                                                                              \
        type##_t least = 0;                                                        \
        for (size_t i = 0; i < count; i++) {                                       \
            type##_t bits;                                                         \
            memcpy(&bits, (const type##_t *)x + i, sizeof bits);                   \
            least = bits < least ? bits : least;                                   \
        }                                                                          \
        return least;                                                              \
    }

LEAST(int32)
LEAST(int64)

INA_KERNEL static int has_minus_zero(const struct ina_limbs *l, const void *x, uint64_t at, uint64_t count)
{
    return l->size == 4 ? least_of_int32(count, (const int32_t *)x + at) == INT32_MIN
                        : least_of_int64(count, (const int64_t *)x + at) == INT64_MIN;
}

/* ---- survey ------------------------------------------------------------------------------------------------------ */

/* The bits of one value only: |x| less |x| without its lowest bit, which is a power of two. As biased exponents. */
#define SURVEY(name, real, uint, fraction_bits, exponent_mask)                                                     \
    INA_KERNEL static void name(size_t count, const real *restrict x, int32_t *restrict out, int bias)             \
    {                                                                                                              \
        const uint one = 1, fraction = (one << (fraction_bits)) - 1, sign = one << (8 * sizeof(uint) - 1);           \
        const uint infinity = (uint)(exponent_mask) << (fraction_bits);                                            \
        uint largest = 0, least = infinity, nonfinite = 0;                                                         \
        for (size_t i = 0; i < count; i++) {                                                                       \
            uint bits, lowest;                                                                                     \
            memcpy(&bits, x + i, sizeof bits);                                                                     \
            bits &= ~sign;                                                                                         \
            const uint cleared = bits & fraction ? bits & (bits - 1) : 0;                                          \
            real magnitude, rest;                                                                                  \
            memcpy(&magnitude, &bits, sizeof bits);                                                                \
            memcpy(&rest, &cleared, sizeof bits);                                                                  \
            magnitude -= rest;                                                                                     \
            memcpy(&lowest, &magnitude, sizeof bits);                                                              \
            const uint finite = bits < infinity, zero = bits == 0;                                                 \
            nonfinite |= !finite;                                                                                  \
            largest = finite && bits > largest ? bits : largest;                                                   \
            lowest = zero || !finite ? infinity : lowest;                                                          \
            least = lowest < least ? lowest : least;                                                               \
        }                                                                                                          \
        const int top = (int)((largest + fraction) >> (fraction_bits)), low = (int)(least >> (fraction_bits));     \
        out[0] = largest ? top - bias : INA_LIMBS_ZERO;                                                            \
        out[1] = nonfinite ? INA_LIMBS_NONFINITE : !largest ? INA_LIMBS_ZERO : low ? bias - low : bias - 1 + (fraction_bits); \
    }

SURVEY(survey_float, float, uint32_t, FLT_MANT_DIG - 1, 0xff)
SURVEY(survey_double, double, uint64_t, FRACTION_BITS, 0x7ff)

void ina_limbs_survey(const struct ina_limbs *l, const void *x, int32_t *survey)
{
    for (uint64_t block = 0; block * l->block < l->count; block++, survey += INA_LIMBS_SURVEY) {
        const uint64_t at = block * l->block, count = block_values(l->count, l->block, block);
        if (l->size == 4)
            survey_float(count, (const float *)x + at, survey, 127);
        else
            survey_double(count, (const double *)x + at, survey, 1023);
        if (l->most || !has_minus_zero(l, x, at, count))
            continue;
        if (survey[0] == INA_LIMBS_ZERO)
            survey[0] = INA_LIMBS_NEGATIVE_ZERO;
        else if (survey[1] != INA_LIMBS_NONFINITE && grid_of(l, survey).digits == 1)
            survey[1] = digit_bits(l) + 1 - survey[0]; /* for two */
    }
}

/* ---- digits ------------------------------------------------------------------------------------------------------ */

struct parts { /* of a block's values: +-mantissa * 2^position, rounded to the lowest digit; and their counts of infinities */
    uint64_t mantissa[INA_LIMBS_BLOCK];
    int64_t position[INA_LIMBS_BLOCK];
    uint64_t sign[INA_LIMBS_BLOCK]; /* all ones: negative */
};

INA_KERNEL_PART void take_apart(size_t count, const double *restrict x, int lowest, struct parts *restrict parts)
{
    for (size_t i = 0; i < count; i++) {
        const uint64_t bits = bits_of_double(x[i]), biased = bits >> FRACTION_BITS & 0x7ff;
        const int64_t position = (int64_t)(biased ? biased : 1) - 1075, dropped = lowest - position;
        uint64_t mantissa = (bits & ((1ull << FRACTION_BITS) - 1)) | (uint64_t)(biased != 0) << FRACTION_BITS;
        mantissa = biased == 0x7ff ? 0 : mantissa;
        const uint64_t half = dropped >= 1 && dropped <= 54 ? 1ull << ((dropped - 1) & 63) : 0;
        parts->mantissa[i] = mantissa + half;
        parts->position[i] = position;
        parts->sign[i] = 0 - (bits >> 63);
    }
}

INA_KERNEL_PART void digit_of(size_t count, const struct parts *restrict parts, int at, uint64_t mask, int32_t *restrict out)
{
    for (size_t i = 0; i < count; i++) {
        const int64_t right = at - parts->position[i], left = -right;
        const uint64_t m = parts->mantissa[i], sign = parts->sign[i];
        const uint64_t lower = left <= 63 ? m << (left & 63) : 0, upper = right <= 63 ? m >> (right & 63) : 0;
        const uint64_t digit = (right >= 0 ? upper : lower) & mask;
        out[i] = (int32_t)((digit ^ sign) - sign);
    }
}

INA_KERNEL_PART void widen(size_t count, const float *restrict x, double *restrict out)
{
    for (size_t i = 0; i < count; i++)
        out[i] = x[i];
}

/* One digit: rounded by the processor. The product is exact in float64, as float32 values are. */
INA_KERNEL static void one_digit(size_t count, const float *restrict x, double scale, int32_t *restrict out)
{
    for (size_t i = 0; i < count; i++)
        out[i] = (int32_t)__builtin_rint((double)x[i] * scale);
}

/* Returns whether there is a -0. */
INA_KERNEL static int two_digits(size_t count, const float *restrict x, double scale, double base, int32_t *restrict out)
{
    const double down = 1 / base;
    for (size_t i = 0; i < count; i++) {
        const double whole = __builtin_rint((double)x[i] * scale), high = __builtin_trunc(whole * down);
        out[i] = (int32_t)high;
        out[count + i] = (int32_t)(whole - high * base);
    }
    return least_of_int32(count, x) == INT32_MIN;
}

INA_KERNEL static void all_digits(size_t count, const double *restrict x, struct grid grid, int bits, int32_t *restrict out)
{
    struct parts parts;
    take_apart(count, x, grid.lowest, &parts);
    for (int digit = 0; digit < grid.digits; digit++, out += count) {
        const uint64_t mask = digit ? (1ull << bits) - 1 : UINT64_MAX; /* the highest can be 2^bits */
        digit_of(count, &parts, grid.lowest + (grid.digits - 1 - digit) * bits, mask, out);
    }
}

INA_KERNEL static void minus_zeros(size_t count, const double *restrict x, int bits, int32_t *restrict out)
{
    for (size_t i = 0; i < count; i++) {
        const int32_t one = bits_of_double(x[i]) == 1ull << 63;
        out[i] += one;
        out[count + i] -= one * (1 << bits);
    }
}

static void count_values(size_t count, const double *x, int digits, int32_t *out)
{
    const int minus_zero = digits < 2 ? MINUS_ZERO : 0;
    for (size_t i = 0; i < count; i++)
        out[i] = isnan(x[i]) ? POSITIVE + NEGATIVE : isinf(x[i]) ? x[i] > 0 ? POSITIVE : NEGATIVE
                 : bits_of_double(x[i]) == 1ull << 63 ? minus_zero : 0;
}

void ina_limbs_encode(const struct ina_limbs *l, const void *x, const int32_t *survey, int32_t *words)
{
    const int bits = digit_bits(l);
    double values[INA_LIMBS_BLOCK];
    for (uint64_t block = 0; block * l->block < l->count; block++, survey += INA_LIMBS_SURVEY) {
        const uint64_t at = block * l->block, count = block_values(l->count, l->block, block);
        const struct grid grid = grid_of(l, survey);
        const double *source = (const double *)x + at;
        if (l->size == 4 && !grid.counts && grid.digits == 1) {
            one_digit(count, (const float *)x + at, ldexp(1, -grid.lowest), words);
        } else if (l->size == 4 && !grid.counts && grid.digits == 2) {
            if (two_digits(count, (const float *)x + at, ldexp(1, -grid.lowest), ldexp(1, bits), words)) {
                widen(count, (const float *)x + at, values);
                minus_zeros(count, values, bits, words);
            }
        } else {
            if (l->size == 4)
                widen(count, (const float *)x + at, values), source = values;
            all_digits(count, source, grid, bits, words);
            if (grid.digits >= 2)
                minus_zeros(count, source, bits, words + (size_t)(grid.digits - 2) * count);
            if (grid.counts)
                count_values(count, source, grid.digits, words + (size_t)grid.digits * count);
        }
        words += count * (uint64_t)(grid.digits + grid.counts);
    }
}

uint64_t ina_limbs_flushed(const struct ina_limbs *l, const void *x, const int32_t *survey)
{
    uint64_t flushed = 0;
    for (uint64_t block = 0; block * l->block < l->count; block++, survey += INA_LIMBS_SURVEY) {
        const struct grid grid = grid_of(l, survey);
        const double half = ldexp(1, grid.lowest - 1);
        if (!grid.digits)
            continue;
        for (uint64_t i = block * l->block, end = i + block_values(l->count, l->block, block); i < end; i++) {
            const double magnitude = fabs(l->size == 4 ? ((const float *)x)[i] : ((const double *)x)[i]);
            flushed += magnitude > 0 && (l->size == 4 && grid.digits <= 2 && !grid.counts ? magnitude <= half : magnitude < half);
        }
    }
    return flushed;
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

static int highest_of(wide w)
{
    const uint64_t upper = (uint64_t)(w >> 64);
    return upper ? 127 - __builtin_clzll(upper) : 63 - __builtin_clzll((uint64_t)w);
}

/* +-(w and something below its unit, if sticky) * 2^position / divisor, as the nearest number of `mantissa` bits, ties to even. */
static double rounded(int negative, wide w, int position, int sticky, uint32_t divisor, const struct ina_limbs *l)
{
    const int mantissa = l->size == 4 ? 24 : 53;
    if (!w)
        return 0; /* sticky only with many bits in w */
    if (divisor > 1) {
        const int up = 126 - highest_of(w);
        w <<= up;
        position -= up;
        sticky |= w % divisor != 0;
        w /= divisor;
    }
    const int highest = highest_of(w), least = lowest_bit(l);
    int at = position + highest - (mantissa - 1); /* of the last bit that is kept */
    at = at < least ? least : at;
    const int dropped = at - position;
    double result;
    if (dropped <= 0) {
        result = ldexp((double)(uint64_t)w, position);
    } else if (dropped > highest + 1) {
        result = 0;
    } else {
        const wide rest = w & (((wide)1 << dropped) - 1), half = (wide)1 << (dropped - 1);
        uint64_t kept = dropped > 127 ? 0 : (uint64_t)(w >> dropped);
        kept += rest > half || (rest == half && (sticky || kept & 1));
        result = ldexp((double)kept, at);
    }
    return negative ? -result : result;
}

/* Carries upwards: every digit but the highest becomes 0 <= d < 2^bits. */
static void carry(int64_t *d, int digits, int bits)
{
    for (int i = digits - 1; i > 0; i--) {
        d[i - 1] += d[i] >> bits;
        d[i] &= (1ll << bits) - 1;
    }
}

/* Digits from the highest on that decide how a sum, or an average, is rounded. One bit of the first and all of the others hold a
 * tie of float64, 54 bits, times the number of workers: between two windows there is no tie. */
static int digits_of_window(int bits)
{
    const int workers = 30 - bits; /* bits of their number: see digit_bits */
    return 1 + 3 * bits >= 54 + workers ? 4 : 5;
}

static double summed(const struct ina_limbs *l, const int32_t *words, size_t stride, struct grid grid, int bits, uint32_t divisor)
{
    if (grid.digits >= 2 && words[(size_t)(grid.digits - 1) * stride] == -(int32_t)(l->workers << bits))
        return -0.0;
    enum { MOST = 2130 / 20 + 1 }; /* digits of 20 bits, the shortest, from 2^1024 down to 2^-1074, and one for -0 */
    const int needed = digits_of_window(bits);
    if (grid.digits <= needed) {
        __int128 sum = 0;
        for (int i = 0; i < grid.digits; i++)
            sum = sum * ((__int128)1 << bits) + words[(size_t)i * stride];
        return rounded(sum < 0, sum < 0 ? -(wide)sum : (wide)sum, grid.lowest, 0, divisor, l);
    }
    int64_t d[MOST];
    for (int i = 0; i < grid.digits; i++)
        d[i] = words[(size_t)i * stride];
    carry(d, grid.digits, bits);
    const int negative = d[0] < 0;
    if (negative) {
        for (int i = 0; i < grid.digits; i++)
            d[i] = -d[i];
        carry(d, grid.digits, bits);
    }
    int first = 0, sticky = 0;
    while (first < grid.digits - needed && !d[first])
        first++;
    wide window = 0;
    for (int i = first; i < first + needed; i++)
        window = window << bits | (wide)(uint64_t)d[i];
    for (int i = first + needed; i < grid.digits; i++)
        sticky |= d[i] != 0;
    return rounded(negative, window, grid.lowest + (grid.digits - first - needed) * bits, sticky, divisor, l);
}

/* One digit: at most 31 bits divided by at most 10 are no closer than 2^-36 to a tie of float32: rounding twice is rounding once. */
INA_KERNEL static void sum_of_one(size_t count, const int32_t *restrict words, double unit, double divisor, float *restrict out)
{
    for (size_t i = 0; i < count; i++)
        out[i] = (float)(words[i] * unit / divisor);
}

/* Two digits: below 2^61, which becomes float32 in one rounding; `unit`, at least 2^-149, then is exact. */
INA_KERNEL static void sum_of_two(size_t count, const int32_t *restrict words, int bits, int32_t minus_zero, float unit,
                                  float *restrict out)
{
    for (size_t i = 0; i < count; i++)
        out[i] = (float)(((int64_t)words[i] * (1ll << bits)) + words[count + i]) * unit;
    if (least_of_int32(count, words + count) == minus_zero)
        for (size_t i = 0; i < count; i++)
            out[i] = words[count + i] == minus_zero ? -0.0f : out[i];
}

void ina_limbs_decode(const struct ina_limbs *l, void *x, const int32_t *survey, const int32_t *words, uint32_t divisor)
{
    const int bits = digit_bits(l), power = divisor & (divisor - 1) ? -1 : __builtin_ctz(divisor);
    for (uint64_t block = 0; block * l->block < l->count; block++, survey += INA_LIMBS_SURVEY) {
        const uint64_t at = block * l->block, count = block_values(l->count, l->block, block);
        const struct grid grid = grid_of(l, survey);
        float *floats = (float *)x + at;
        double *doubles = (double *)x + at;
        if (l->size == 4 && !grid.counts && grid.digits == 1)
            sum_of_one(count, words, ldexp(1, grid.lowest), divisor, floats);
        else if (l->size == 4 && !grid.counts && grid.digits == 2 && power >= 0 && grid.lowest - power >= -149)
            sum_of_two(count, words, bits, -(int)(l->workers << bits), ldexpf(1, grid.lowest - power), floats);
        else
            for (uint64_t i = 0; i < count; i++) {
                const uint32_t counts = grid.counts ? (uint32_t)words[(uint64_t)grid.digits * count + i] : 0;
                const uint32_t infinities = counts % MINUS_ZERO, positive = infinities & COUNT_MASK, negatives = infinities / NEGATIVE;
                const double sum = infinities ? positive && negatives ? NAN : positive ? INFINITY : -INFINITY
                                   : counts && counts / MINUS_ZERO == l->workers ? -0.0
                                   : summed(l, words + i, count, grid, bits, divisor);
                if (l->size == 4)
                    floats[i] = (float)sum;
                else
                    doubles[i] = sum;
            }
        words += count * (uint64_t)(grid.digits + grid.counts);
    }
}
