/* Lanes: see lanes.h. */
#include "lanes.h"

#include <float.h>
#include <math.h>

#include "blocks.h"
#include "floats.h"
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

INA_KERNEL static void wrap_bytes(size_t count, const int32_t *restrict words, uint32_t at, uint32_t bias, uint8_t *restrict sums)
{
    for (size_t i = 0; i < count; i++)
        sums[i] = (uint8_t)(((uint32_t)words[i] >> at) - bias);
}

INA_KERNEL static void any_bytes(size_t count, const int32_t *restrict words, uint32_t mask, uint8_t *restrict any)
{
    for (size_t i = 0; i < count; i++)
        any[i] = ((uint32_t)words[i] & mask) != 0;
}

void ina_lanes_wrap_bytes(const struct ina_lanes *l, const int32_t *words, uint8_t flip, uint8_t *sums)
{
    const uint64_t count = ina_lanes_words(l);
    for (uint32_t lane = 0; lane < l->lanes && lane * count < l->count; lane++)
        wrap_bytes(least(count, l->count - lane * count), words, lane * l->bits, flip * l->workers, sums + lane * count);
}

void ina_lanes_any_bytes(const struct ina_lanes *l, const int32_t *words, uint8_t *any)
{
    const uint64_t count = ina_lanes_words(l);
    for (uint32_t lane = 0; lane < l->lanes && lane * count < l->count; lane++)
        any_bytes(least(count, l->count - lane * count), words, ((1u << l->bits) - 1) << lane * l->bits, any + lane * count);
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

/* Value i of a tensor of `floats`, which is a constant in loops, and the other way round. */
INA_KERNEL_PART float value_at(uint32_t floats, const void *x, size_t i)
{
    return floats == INA_FLOATS_32     ? ((const float *)x)[i]
           : floats == INA_FLOATS_BF16 ? widened_bf16(((const uint16_t *)x)[i])
                                       : widened_fp16(((const uint16_t *)x)[i]);
}

INA_KERNEL_PART void put_value(uint32_t floats, void *x, size_t i, float value)
{
    if (floats == INA_FLOATS_32)
        ((float *)x)[i] = value;
    else
        ((uint16_t *)x)[i] = floats == INA_FLOATS_BF16 ? narrowed_bf16(value) : narrowed_fp16(value);
}

INA_KERNEL_PART size_t size_of(uint32_t floats)
{
    return floats == INA_FLOATS_32 ? 4 : 2;
}

/* The bits of the largest |x|, as float32: halves, too, order as their bits. */
INA_KERNEL_PART int32_t largest_at(uint32_t floats, const void *restrict x, size_t count)
{
    if (floats == INA_FLOATS_32) {
        int32_t largest;
        largest_of(count, x, &largest);
        return largest;
    }
    uint16_t largest = 0;
    for (size_t i = 0; i < count; i++) {
        const uint16_t magnitude = ((const uint16_t *)x)[i] & 0x7fff;
        largest = magnitude > largest ? magnitude : largest;
    }
    return (int32_t)bits_of(value_at(floats, &largest, 0));
}

INA_KERNEL_PART void scales(uint32_t floats, const struct ina_lanes *l, const void *restrict x, int32_t *restrict largest)
{
    const uint8_t *at = x;
    for (uint64_t left = l->count; left; at += l->block * size_of(floats)) {
        const size_t count = least(left, l->block);
        *largest++ = largest_at(floats, at, count);
        left -= count;
    }
}

INA_KERNEL static void units(size_t count, const int32_t *restrict largest, double most, double *restrict out)
{
    for (size_t i = 0; i < count; i++) {
        const double unit = float_of((uint32_t)largest[i]) / most;
        const float single = (float)unit; /* products with it are faster */
        out[i] = largest[i] >= INA_INFINITE ? NAN : single >= FLT_MIN ? single : unit;
    }
}

void ina_lanes_units(uint64_t blocks, const int32_t *largest, uint32_t most, double *out)
{
    units(blocks, largest, most, out);
}

INA_KERNEL_PART int sent(double unit)
{
    return unit > 0 && unit < INFINITY;
}

INA_KERNEL_PART int is_usual(double unit)
{
    return unit >= 0x1p-60 && unit < INFINITY;
}

/* True of a unit that is a float32: its product with a whole number below 2^24 is then rounded once in float32. */
INA_KERNEL_PART int is_single(double unit)
{
    return is_usual(unit) && (float)unit == unit;
}

/* The nearest multiple of 2^step to each value, ties to even; step: of a mantissa's last bit that is kept, 0 at least. The addend
 * 1.5 * 2^(23 + step) leaves a float32 no bits below. */
INA_KERNEL_PART int32_t rounded(float v, float largest, int32_t fraction)
{
    v = v > largest ? largest : v;
    v = v < -largest ? -largest : v;
    int32_t bits = (int32_t)bits_of(v);
    const int32_t exponent = bits & 0x7f800000, least = (127 + fraction) << 23;
    bits = fraction == 23 ? least : exponent > least ? exponent : least;
    bits += (23 - fraction) << 23 | 0x400000;
    const float addend = float_of((uint32_t)bits);
    return (int32_t)((v + addend) - addend);
}

/* up, factor: together the inverse of the unit, which by itself may be infinite. */
INA_KERNEL_PART uint32_t put_lane(uint32_t floats, size_t count, const void *restrict x, float up, float factor, float largest,
                                  int32_t fraction, uint32_t at, int32_t *restrict words)
{
    const int32_t bias = (int32_t)largest;
    uint32_t flushed = 0;
    for (size_t i = 0; i < count; i++) {
        const float value = value_at(floats, x, i);
        const int32_t whole = rounded(value * up * factor, largest, fraction);
        flushed += (whole == 0) & (value != 0);
        words[i] = (int32_t)((uint32_t)words[i] | (uint32_t)(whole + bias) << at);
    }
    return flushed;
}

/* Constants drop out of the loop: of a usual unit, and of whole numbers. */
INA_KERNEL_PART uint32_t put_block(uint32_t floats, size_t count, const void *restrict x, double unit, const struct ina_element *e,
                                   uint32_t at, int32_t *restrict words)
{
    if (!is_usual(unit))
        return put_lane(floats, count, x, 0x1p+64f, (float)(1 / (unit * 0x1p+64)), e->largest, e->fraction, at, words);
    if (e->fraction == 23)
        return put_lane(floats, count, x, 1, (float)(1 / unit), e->largest, 23, at, words);
    return put_lane(floats, count, x, 1, (float)(1 / unit), e->largest, e->fraction, at, words);
}

INA_KERNEL_PART int32_t whole_number(float v, float largest)
{
    v = v > largest ? largest : v;
    v = v < -largest ? -largest : v;
    return nearest(v);
}

/* Two lanes of whole numbers at once: nothing is read back. */
INA_KERNEL_PART uint32_t put_pair(uint32_t floats, size_t count, const void *restrict x, const double *units, float largest,
                                  uint32_t bits, int32_t *restrict words)
{
    const float low = (float)(1 / units[0]), high = (float)(1 / units[1]);
    const int32_t bias = (int32_t)largest;
    uint32_t flushed = 0;
    for (size_t i = 0; i < count; i++) {
        const float one = value_at(floats, x, i), two = value_at(floats, x, count + i);
        const int32_t a = whole_number(one * low, largest), b = whole_number(two * high, largest);
        flushed += (uint32_t)(((a == 0) & (one != 0)) + ((b == 0) & (two != 0)));
        words[i] = (int32_t)((uint32_t)(a + bias) | (uint32_t)(b + bias) << bits);
    }
    return flushed;
}

INA_KERNEL_PART uint64_t encode(uint32_t floats, const struct ina_lanes *l, const struct ina_element *e, const double *restrict units,
                                const void *restrict x, int32_t *restrict words)
{
    const size_t size = l->block;
    const uint8_t *from = x;
    uint64_t flushed = 0;
    for (uint64_t left = l->count; left; words += size) {
        if (l->lanes == 2 && left >= 2 * size && e->fraction == 23 && is_usual(units[0]) && is_usual(units[1])) {
            flushed += put_pair(floats, size, from, units, e->largest, l->bits, words);
            from += 2 * size * size_of(floats);
            left -= 2 * size;
            units += 2;
            continue;
        }
        memset(words, 0, size * sizeof *words);
        for (uint32_t lane = 0; lane < l->lanes && left; lane++) {
            const size_t count = least(left, size);
            if (sent(*units))
                flushed += put_block(floats, count, from, *units, e, lane * l->bits, words);
            from += count * size_of(floats);
            left -= count;
            units++;
        }
    }
    return flushed;
}

/* A lane of each word less its bias, in units; a product with one that is no float32 is rounded once, too. */
INA_KERNEL_PART void get_lane(uint32_t floats, size_t count, const int32_t *restrict words, uint32_t at, uint32_t mask, int32_t bias,
                              double unit, void *restrict x)
{
    const float single = (float)unit;
    if (is_single(unit))
        for (size_t i = 0; i < count; i++)
            put_value(floats, x, i, (float)((int32_t)((uint32_t)words[i] >> at & mask) - bias) * single);
    else
        for (size_t i = 0; i < count; i++)
            put_value(floats, x, i, (float)(((int32_t)((uint32_t)words[i] >> at & mask) - bias) * unit));
}

INA_KERNEL_PART void decode(uint32_t floats, const struct ina_lanes *l, const struct ina_element *e, const double *restrict units,
                            const int32_t *restrict words, uint32_t divisor, void *restrict x)
{
    const size_t size = l->block;
    const uint32_t mask = (1u << l->bits) - 1;
    const int32_t bias = (int32_t)e->largest * (int32_t)l->workers;
    uint8_t *to = x;
    for (uint64_t left = l->count; left; words += size)
        for (uint32_t lane = 0; lane < l->lanes && left; lane++) {
            const size_t count = least(left, size);
            if (sent(*units))
                get_lane(floats, count, words, lane * l->bits, mask, bias, *units / divisor, to);
            else
                for (size_t i = 0; i < count; i++)
                    put_value(floats, to, i, *units == 0 ? 0 : NAN);
            to += count * size_of(floats);
            left -= count;
            units++;
        }
}

#define OF_FLOATS(name, floats)                                                                                                        \
    INA_KERNEL static void scales_##name(const struct ina_lanes *l, const void *x, int32_t *largest)                                   \
    {                                                                                                                                  \
        scales(floats, l, x, largest);                                                                                                 \
    }                                                                                                                                  \
    INA_KERNEL static uint64_t encode_##name(const struct ina_lanes *l, const struct ina_element *e, const double *units,              \
                                             const void *x, int32_t *words)                                                            \
    {                                                                                                                                  \
        return encode(floats, l, e, units, x, words);                                                                                  \
    }                                                                                                                                  \
    INA_KERNEL static void decode_##name(const struct ina_lanes *l, const struct ina_element *e, const double *units,                  \
                                         const int32_t *words, uint32_t divisor, void *x)                                              \
    {                                                                                                                                  \
        decode(floats, l, e, units, words, divisor, x);                                                                                \
    }

OF_FLOATS(float32, INA_FLOATS_32)
OF_FLOATS(bf16, INA_FLOATS_BF16)
OF_FLOATS(fp16, INA_FLOATS_FP16)

void ina_lanes_scales(const struct ina_lanes *l, const void *x, int32_t *largest)
{
    (l->floats == INA_FLOATS_32 ? scales_float32 : l->floats == INA_FLOATS_BF16 ? scales_bf16 : scales_fp16)(l, x, largest);
}

uint64_t ina_lanes_encode(const struct ina_lanes *l, const struct ina_element *e, const double *units, const void *x, int32_t *words)
{
    return (l->floats == INA_FLOATS_32     ? encode_float32
            : l->floats == INA_FLOATS_BF16 ? encode_bf16
                                           : encode_fp16)(l, e, units, x, words);
}

void ina_lanes_decode(const struct ina_lanes *l, const struct ina_element *e, const double *units, const int32_t *words,
                      uint32_t divisor, void *x)
{
    (l->floats == INA_FLOATS_32     ? decode_float32
     : l->floats == INA_FLOATS_BF16 ? decode_bf16
                                    : decode_fp16)(l, e, units, words, divisor, x);
}
