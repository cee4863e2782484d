/* One float and its bits; one of 16 bits as float32, and the other way round. By integers without branches, and one sum each for
 * subnormal numbers, so that every level of x86-64 has them in vectors, those without F16C, too. No float32 that is subnormal is
 * computed with: a program may have them flushed. */
#ifndef INA_FLOATS_H
#define INA_FLOATS_H

#include <stdint.h>
#include <string.h>

#include "kernel.h"

enum { INA_INFINITE = 0x7f800000 }; /* bits of a float32; those of NaN are larger */
enum { INA_SUBNORMAL_16 = 1 << 23, INA_INFINITE_16 = 31 << 23 }; /* of binary16 with its fraction where float32 has its own */

INA_KERNEL_PART uint32_t bits_of(float number)
{
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

INA_KERNEL_PART float float_of(uint32_t bits)
{
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

INA_KERNEL_PART uint32_t magnitude_of(float number)
{
    return bits_of(number) & 0x7fffffffu;
}

INA_KERNEL_PART float widened_bf16(uint16_t half)
{
    return float_of((uint32_t)half << 16);
}

INA_KERNEL_PART float widened_fp16(uint16_t half)
{
    const uint32_t sign = (half & 0x8000u) << 16, magnitude = (half & 0x7fffu) << 13;
    const uint32_t subnormal = bits_of(float_of(magnitude + (113u << 23)) - 0x1p-14f);
    const uint32_t normal = magnitude + ((magnitude < INA_INFINITE_16 ? 112u : 224u) << 23);
    return float_of(sign | (magnitude < INA_SUBNORMAL_16 ? subnormal : normal));
}

/* Both round to the nearest, ties to even; what is too large becomes infinite, a NaN a quiet one. */
INA_KERNEL_PART uint16_t narrowed_bf16(float x)
{
    const uint32_t bits = bits_of(x), rounded = bits + 0x7fff + (bits >> 16 & 1);
    return (uint16_t)((magnitude_of(x) > INA_INFINITE ? bits | 0x400000 : rounded) >> 16);
}

/* Below 2^-14 the last place of the sum with 1/2 is that of subnormal numbers. */
INA_KERNEL_PART uint16_t narrowed_fp16(float x)
{
    const uint32_t sign = bits_of(x) >> 16 & 0x8000, magnitude = magnitude_of(x);
    const uint32_t subnormal = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
    const uint32_t normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    const uint32_t half = magnitude < 113u << 23 ? subnormal : magnitude < 0x477ff000u ? normal : 0x7c00;
    return (uint16_t)(sign | (magnitude > INA_INFINITE ? 0x7e00 : half));
}

#endif
