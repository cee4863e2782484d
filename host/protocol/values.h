/* One value: float32 <-> integer <-> its bytes on the wire. For loops that are compiled for each level of the processor (kernel.h) and
 * for each lane (INA_BY_LANE), which is a constant in them: a shift by 0 is none. */
#ifndef INA_VALUES_H
#define INA_VALUES_H

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "codec.h"
#include "floats.h"
#include "kernel.h"
#include "lane.h"
#include "nearest.h"

static_assert(sizeof(float) == 4, "float32");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire is big endian and this code swaps");

/* 2^e for a normal float, -126..127. */
INA_KERNEL_PART float power_of_two(int e)
{
    return float_of((uint32_t)(e + 127) << 23);
}

/* Value i of a packet, with its sign; and so many lower bits of one. */
INA_KERNEL_PART uint32_t load_value(uint32_t lane, const uint8_t *wire, size_t i)
{
    const uint32_t bits = ina_lanes[lane].bits;
    uint32_t v = 0;
    memcpy(&v, wire + ina_lane_bytes(lane, i), bits / 8);
    v = __builtin_bswap32(v);
    return ina_lanes[lane].is_signed ? (uint32_t)((int32_t)v >> (32 - bits)) : v >> (32 - bits);
}

INA_KERNEL_PART void store_value(uint32_t lane, uint8_t *wire, size_t i, uint32_t v)
{
    const uint32_t bits = ina_lanes[lane].bits;
    v = __builtin_bswap32(v) >> (32 - bits);
    memcpy(wire + ina_lane_bytes(lane, i), &v, bits / 8);
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
    return magnitude_of(x) - 1 < limit; /* zero becomes the largest */
}

#endif
