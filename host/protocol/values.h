/* One value: float32 <-> int32 <-> its bytes on the wire. For loops that are compiled for each level of the processor (kernel.h). */
#ifndef INA_VALUES_H
#define INA_VALUES_H

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "codec.h"
#include "kernel.h"
#include "nearest.h"

static_assert(sizeof(float) == 4, "float32");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire is big endian and this code swaps");

INA_KERNEL_PART uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

INA_KERNEL_PART float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

/* 2^e for a normal float, -126..127. */
INA_KERNEL_PART float power_of_two(int e)
{
    return float_of((uint32_t)(e + 127) << 23);
}

INA_KERNEL_PART uint32_t load_be32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return __builtin_bswap32(v);
}

INA_KERNEL_PART void store_be32(uint8_t *p, uint32_t v)
{
    v = __builtin_bswap32(v);
    memcpy(p, &v, 4);
}

/* The nearest integer to x * scale, within +-limit. */
INA_KERNEL_PART uint32_t quantised(float x, float scale, float limit)
{
    /* Each comparison is false for NaN, which then becomes a limit: the conversion is always defined. */
    float y = x * scale;
    y = y < limit ? y : limit;
    y = y > -limit ? y : -limit;
    return (uint32_t)nearest(y);
}

/* Value of a sum's unit, or of an average's. Normal for every exponent and divisor <= workers: 2^(-96 - 30 + ceil(log2 n)) / n
 * >= 2^-126. */
INA_KERNEL_PART float unit_of(int exponent, int shift, int divisor)
{
    const float unit = power_of_two(exponent - shift);
    return divisor == 1 ? unit : unit / (float)divisor;
}

/* Magnitudes up to this one, as bits, and beyond zero encode as zero: 2^(exponent - shift - 1), a tie, which rounds to the even
 * zero; the least of them is 2^-127, a denormal. */
INA_KERNEL_PART uint32_t flushed_below(int exponent, int shift)
{
    const int half = exponent - shift - 1;
    return half < -126 ? 1u << 22 : (uint32_t)(half + 127) << 23;
}

INA_KERNEL_PART uint32_t is_flushed(float x, uint32_t limit)
{
    return (bits_of(x) & 0x7fffffffu) - 1 < limit; /* zero becomes the largest */
}

#endif
