/* Floats of 16 bits: see halves.h. */
#include "halves.h"

#include <stddef.h>

#include "floats.h"

INA_KERNEL static void widen_bf16(size_t count, const uint16_t *restrict halves, float *restrict x)
{
    for (size_t i = 0; i < count; i++)
        x[i] = widened_bf16(halves[i]);
}

INA_KERNEL static void widen_fp16(size_t count, const uint16_t *restrict halves, float *restrict x)
{
    for (size_t i = 0; i < count; i++)
        x[i] = widened_fp16(halves[i]);
}

INA_KERNEL static void narrow_bf16(size_t count, const float *restrict x, uint16_t *restrict halves)
{
    for (size_t i = 0; i < count; i++)
        halves[i] = narrowed_bf16(x[i]);
}

INA_KERNEL static void narrow_fp16(size_t count, const float *restrict x, uint16_t *restrict halves)
{
    for (size_t i = 0; i < count; i++)
        halves[i] = narrowed_fp16(x[i]);
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
