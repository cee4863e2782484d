/* Floats of 16 bits: see halves.h. By integers without branches, and one sum each for subnormal numbers, so that every level of x86-64
 * has them in vectors, those without F16C, too. No float32 that is subnormal is computed with: a program may have them flushed. */
#include "halves.h"

#include "blocks.h"

enum { SUBNORMAL_16 = 1 << 23, INFINITE_16 = 31 << 23 }; /* of binary16 with its fraction where float32 has its own */

INA_KERNEL_PART uint32_t bits_of(float number)
{
    uint32_t bits;
    memcpy(&bits, &number, 4);
    return bits;
}

INA_KERNEL static void widen_bf16(size_t count, const uint16_t *restrict halves, float *restrict x)
{
    for (size_t i = 0; i < count; i++)
        x[i] = number_of((int32_t)((uint32_t)halves[i] << 16));
}

INA_KERNEL static void widen_fp16(size_t count, const uint16_t *restrict halves, float *restrict x)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t sign = (halves[i] & 0x8000u) << 16, magnitude = (halves[i] & 0x7fffu) << 13;
        const uint32_t subnormal = bits_of(number_of((int32_t)(magnitude + (113u << 23))) - 0x1p-14f);
        const uint32_t normal = magnitude + ((magnitude < INFINITE_16 ? 112u : 224u) << 23);
        x[i] = number_of((int32_t)(sign | (magnitude < SUBNORMAL_16 ? subnormal : normal)));
    }
}

INA_KERNEL static void narrow_bf16(size_t count, const float *restrict x, uint16_t *restrict halves)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t bits = bits_of(x[i]), rounded = bits + 0x7fff + (bits >> 16 & 1);
        halves[i] = (uint16_t)(((bits & 0x7fffffffu) > INA_INFINITE ? bits | 0x400000 : rounded) >> 16);
    }
}

/* Below 2^-14 the last place of the sum with 1/2 is that of subnormal numbers. */
INA_KERNEL static void narrow_fp16(size_t count, const float *restrict x, uint16_t *restrict halves)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t bits = bits_of(x[i]), magnitude = bits & 0x7fffffffu;
        const uint32_t subnormal = bits_of(number_of((int32_t)magnitude) + 0.5f) - bits_of(0.5f);
        const uint32_t normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
        const uint32_t half = magnitude < 113u << 23 ? subnormal : magnitude < 0x477ff000u ? normal : 0x7c00;
        halves[i] = (uint16_t)((bits >> 16 & 0x8000) | (magnitude > INA_INFINITE ? 0x7e00 : half));
    }
}

void ina_halves_widen(uint32_t floats, uint64_t count, const uint16_t *halves, float *x)
{
    if (floats == INA_FLOATS_BF16)
        widen_bf16(count, halves, x);
    else
        widen_fp16(count, halves, x);
}

void ina_halves_narrow(uint32_t floats, uint64_t count, const float *x, uint16_t *halves)
{
    if (floats == INA_FLOATS_BF16)
        narrow_bf16(count, x, halves);
    else
        narrow_fp16(count, x, halves);
}
