/* Lanes: see lanes.h. */
#include "lanes.h"

#include <math.h>

#include "blocks.h"
#include "nearest.h"

enum { CHUNK = 4096 }; /* words that stay in the nearest cache until all of their lanes are in */

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

uint64_t ina_lanes_words(const struct ina_lanes *l)
{
    return quotient_up(l->count, l->lanes);
}

INA_KERNEL static void put_two(size_t count, const uint8_t *restrict a, const uint8_t *restrict b, uint32_t flip, uint32_t bits,
                               int32_t *restrict words)
{
    for (size_t i = 0; i < count; i++)
        words[i] = (int32_t)((a[i] ^ flip) | (b[i] ^ flip) << bits);
}

INA_KERNEL static void put_byte(size_t count, const uint8_t *restrict x, uint32_t flip, uint32_t at, int32_t *restrict words)
{
    for (size_t i = 0; i < count; i++)
        words[i] = (int32_t)((uint32_t)words[i] | (x[i] ^ flip) << at);
}

void ina_lanes_pack_bytes(const struct ina_lanes *l, const uint8_t *x, uint8_t flip, int32_t *words)
{
    const uint64_t count = ina_lanes_words(l);
    for (uint64_t from = 0; from < count; from += CHUNK) {
        const uint64_t to = least(count, from + CHUNK);
        uint32_t lane = 0;
        if (l->lanes > 1 && count + to <= l->count) {
            put_two(to - from, x + from, x + count + from, flip, l->bits, words + from);
            lane = 2;
        } else {
            memset(words + from, 0, (to - from) * sizeof *words);
        }
        for (; lane < l->lanes; lane++) {
            const uint64_t at = lane * count + from;
            if (at < l->count)
                put_byte(least(to - from, l->count - at), x + at, flip, lane * l->bits, words + from);
        }
    }
}

INA_KERNEL static void sum_bytes(size_t count, const int32_t *restrict words, uint32_t at, uint32_t mask, int32_t bias,
                                 int32_t *restrict sums)
{
    for (size_t i = 0; i < count; i++)
        sums[i] = (int32_t)((uint32_t)words[i] >> at & mask) - bias;
}

void ina_lanes_sum_bytes(const struct ina_lanes *l, const int32_t *words, uint8_t flip, int32_t *sums)
{
    const uint64_t count = ina_lanes_words(l);
    for (uint64_t from = 0; from < count; from += CHUNK) {
        const uint64_t to = least(count, from + CHUNK);
        for (uint32_t lane = 0; lane < l->lanes && lane * count + from < l->count; lane++) {
            const uint64_t at = lane * count + from;
            sum_bytes(least(to - from, l->count - at), words + from, lane * l->bits, (1u << l->bits) - 1,
                      (int32_t)(flip * l->workers), sums + at);
        }
    }
}

/* ---- shorts ------------------------------------------------------------------------------------------------------ */

INA_KERNEL static void put_shorts(size_t count, const int16_t *restrict a, const int16_t *restrict b, const int16_t *restrict c,
                                  int32_t *restrict words)
{
    for (size_t i = 0; i < count; i++) {
        words[2 * i] = (int32_t)((uint32_t)a[i] << 16 | ((uint32_t)c[i] & 0xff));
        words[2 * i + 1] = (int32_t)((uint32_t)b[i] << 16 | ((uint32_t)c[i] >> 8 & 0xff));
    }
}

INA_KERNEL static void sum_shorts(size_t count, const int32_t *restrict words, int16_t *restrict a, int16_t *restrict b,
                                  int16_t *restrict c)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t one = (uint32_t)words[2 * i], two = (uint32_t)words[2 * i + 1];
        a[i] = (int16_t)(one >> 16);
        b[i] = (int16_t)(two >> 16);
        c[i] = (int16_t)(one + (two << 8));
    }
}

void ina_lanes_pack_shorts(uint64_t count, const int16_t *x, int32_t *words)
{
    const uint64_t pairs = quotient_up(count, 3), whole = count > 2 * pairs ? count - 2 * pairs : 0;
    put_shorts(whole, x, x + pairs, x + 2 * pairs, words);
    for (uint64_t i = whole; i < pairs; i++) {
        const int16_t zero = 0, *second = pairs + i < count ? x + pairs + i : &zero;
        put_shorts(1, x + i, second, &zero, words + 2 * i);
    }
}

void ina_lanes_sum_shorts(uint64_t count, const int32_t *words, int16_t *sums)
{
    const uint64_t pairs = quotient_up(count, 3), whole = count > 2 * pairs ? count - 2 * pairs : 0;
    sum_shorts(whole, words, sums, sums + pairs, sums + 2 * pairs);
    for (uint64_t i = whole; i < pairs; i++) {
        int16_t second, third;
        sum_shorts(1, words + 2 * i, sums + i, &second, &third);
        if (pairs + i < count)
            sums[pairs + i] = second;
    }
}

/* ---- floats ------------------------------------------------------------------------------------------------------ */

uint64_t ina_lanes_float_words(const struct ina_lanes *l)
{
    return quotient_up(quotient_up(l->count, l->block), l->lanes) * l->block;
}

INA_KERNEL static void scales(size_t count, size_t block, const float *restrict x, int32_t *restrict largest)
{
    for (size_t at = 0; at < count; at += block)
        largest_of(count - at < block ? count - at : block, x + at, largest++);
}

INA_KERNEL_PART int sent(double unit)
{
    return unit > 0 && unit < INFINITY;
}

INA_KERNEL_PART int is_usual(double unit)
{
    return unit >= 0x1p-60 && unit < INFINITY;
}

/* The nearest multiple of 2^step to each value, ties to even; step: of a mantissa's last bit that is kept, 0 at least. The addend
 * 1.5 * 2^(23 + step) leaves a float32 no bits below. */
INA_KERNEL_PART int32_t rounded(float v, float largest, int32_t fraction)
{
    v = v > largest ? largest : v;
    v = v < -largest ? -largest : v;
    int32_t bits;
    memcpy(&bits, &v, 4);
    const int32_t exponent = bits & 0x7f800000, least = (127 + fraction) << 23;
    bits = fraction == 23 ? least : exponent > least ? exponent : least;
    bits += (23 - fraction) << 23 | 0x400000;
    float addend;
    memcpy(&addend, &bits, 4);
    return (int32_t)((v + addend) - addend);
}

INA_KERNEL_PART uint32_t put_floats(size_t count, const float *restrict x, float up, float factor, float largest, int32_t fraction,
                                    uint32_t at, int32_t *restrict words)
{
    const int32_t bias = (int32_t)largest;
    uint32_t flushed = 0;
    for (size_t i = 0; i < count; i++) {
        const int32_t whole = rounded(x[i] * up * factor, largest, fraction);
        flushed += (whole == 0) & (x[i] != 0);
        words[i] = (int32_t)((uint32_t)words[i] | (uint32_t)(whole + bias) << at);
    }
    return flushed;
}

/* Constants that the compiler drops from the loop: all but units so small that their inverse may be infinite; whole numbers. */
INA_KERNEL_PART uint32_t put_block(size_t count, const float *restrict x, double unit, float largest, int32_t fraction, uint32_t at,
                                   int32_t *restrict words)
{
    if (!is_usual(unit))
        return put_floats(count, x, 0x1p+64f, (float)(1 / (unit * 0x1p+64)), largest, fraction, at, words);
    if (fraction == 23)
        return put_floats(count, x, 1, (float)(1 / unit), largest, 23, at, words);
    return put_floats(count, x, 1, (float)(1 / unit), largest, fraction, at, words);
}

INA_KERNEL_PART int32_t whole_number(float v, float largest)
{
    v = v > largest ? largest : v;
    v = v < -largest ? -largest : v;
    return nearest(v);
}

/* Two lanes of whole numbers at once: nothing is read back. */
INA_KERNEL_PART uint32_t put_pair(size_t count, const float *restrict x, const double *units, float largest, uint32_t bits,
                                  int32_t *restrict words)
{
    const float *restrict upper = x + count, low = (float)(1 / units[0]), high = (float)(1 / units[1]);
    const int32_t bias = (int32_t)largest;
    uint32_t flushed = 0;
    for (size_t i = 0; i < count; i++) {
        const int32_t a = whole_number(x[i] * low, largest), b = whole_number(upper[i] * high, largest);
        flushed += (uint32_t)(((a == 0) & (x[i] != 0)) + ((b == 0) & (upper[i] != 0)));
        words[i] = (int32_t)((uint32_t)(a + bias) | (uint32_t)(b + bias) << bits);
    }
    return flushed;
}

INA_KERNEL static uint64_t encode(const struct ina_lanes *restrict l, const struct ina_element *restrict e, uint64_t left,
                                  const double *restrict units, const float *restrict x, int32_t *restrict words)
{
    const size_t size = l->block;
    uint64_t flushed = 0;
    for (; left; words += size) {
        if (l->lanes == 2 && left >= 2 * size && e->fraction == 23 && is_usual(units[0]) && is_usual(units[1])) {
            flushed += put_pair(size, x, units, e->largest, l->bits, words);
            x += 2 * size;
            left -= 2 * size;
            units += 2;
            continue;
        }
        memset(words, 0, size * sizeof *words);
        for (uint32_t lane = 0; lane < l->lanes && left; lane++) {
            const size_t count = left < size ? left : size;
            if (sent(*units))
                flushed += put_block(count, x, *units, e->largest, e->fraction, lane * l->bits, words);
            x += count;
            left -= count;
            units++;
        }
    }
    return flushed;
}

INA_KERNEL_PART void get_floats(size_t count, const int32_t *restrict words, uint32_t at, uint32_t mask, int32_t bias, double unit,
                                float *restrict x)
{
    for (size_t i = 0; i < count; i++)
        x[i] = (float)(((int32_t)((uint32_t)words[i] >> at & mask) - bias) * unit);
}

INA_KERNEL static void decode(const struct ina_lanes *restrict l, const struct ina_element *restrict e, uint64_t left,
                              const double *restrict units, const int32_t *restrict words, uint32_t divisor, float *restrict x)
{
    const size_t size = l->block;
    const uint32_t mask = (1u << l->bits) - 1;
    const int32_t bias = (int32_t)e->largest * (int32_t)l->workers;
    for (; left; words += size)
        for (uint32_t lane = 0; lane < l->lanes && left; lane++) {
            const size_t count = left < size ? left : size;
            if (sent(*units))
                get_floats(count, words, lane * l->bits, mask, bias, *units / divisor, x);
            else
                for (size_t i = 0; i < count; i++)
                    x[i] = *units == 0 ? 0 : NAN;
            x += count;
            left -= count;
            units++;
        }
}

/* The quotient by a number of lanes, or of a block's values: never 0. */
static uint64_t parts(uint64_t count, uint64_t size)
{
    return size ? count / size : 0; /* clang's analyzer believes no promise */
}

/* Values of 16 bits that become float32, or were it, at a time: whole groups, which stay in the nearest cache. */
static uint64_t stage(const struct ina_lanes *l)
{
    const uint64_t group = (uint64_t)l->lanes * l->block;
    return group * parts(INA_LANES_GROUP, group);
}

static const uint16_t *halves_at(const void *x, uint64_t at)
{
    return (const uint16_t *)x + at;
}

void ina_lanes_scales(const struct ina_lanes *l, const void *x, int32_t *largest)
{
    if (l->floats == INA_FLOATS_32) {
        scales(l->count, l->block, x, largest);
        return;
    }
    float staged[INA_LANES_GROUP];
    for (uint64_t at = 0, count; at < l->count; at += count) {
        count = least(stage(l), l->count - at);
        ina_halves_widen(l->floats, count, halves_at(x, at), staged);
        scales(count, l->block, staged, largest + parts(at, l->block));
    }
}

uint64_t ina_lanes_encode(const struct ina_lanes *l, const struct ina_element *e, const double *units, const void *x, int32_t *words)
{
    if (l->floats == INA_FLOATS_32)
        return encode(l, e, l->count, units, x, words);
    float staged[INA_LANES_GROUP];
    uint64_t flushed = 0;
    for (uint64_t at = 0, count; at < l->count; at += count) {
        count = least(stage(l), l->count - at);
        ina_halves_widen(l->floats, count, halves_at(x, at), staged);
        flushed += encode(l, e, count, units + parts(at, l->block), staged, words + parts(at, l->lanes));
    }
    return flushed;
}

void ina_lanes_decode(const struct ina_lanes *l, const struct ina_element *e, const double *units, const int32_t *words,
                      uint32_t divisor, void *x)
{
    if (l->floats == INA_FLOATS_32) {
        decode(l, e, l->count, units, words, divisor, x);
        return;
    }
    float staged[INA_LANES_GROUP];
    for (uint64_t at = 0, count; at < l->count; at += count) {
        count = least(stage(l), l->count - at);
        decode(l, e, count, units + parts(at, l->block), words + parts(at, l->lanes), divisor, staged);
        ina_halves_narrow(l->floats, count, staged, (uint16_t *)x + at);
    }
}
