/* THC: see thc.h. */
#include "thc.h"

#include <string.h>

#include "blocks.h"
#include "chance.h"

uint64_t ina_thc_seed(uint64_t step, uint64_t part, uint64_t who)
{
    return mixed(mixed(mixed(step) ^ part) ^ who);
}

/* ---- rotation ------------------------------------------------------------------------------------------------------ */

static const size_t NEAR = 4096; /* values that stay in the nearest cache */

/* The butterflies of distance `far` and 2 far in 4 far values. */
INA_KERNEL_PART void quarters(size_t far, float *x)
{
    float *restrict a = x, *restrict b = x + far, *restrict c = x + 2 * far, *restrict d = x + 3 * far;
    for (size_t i = 0; i < far; i++) {
        const float p = a[i] + b[i], q = a[i] - b[i], r = c[i] + d[i], s = c[i] - d[i];
        a[i] = p + r;
        b[i] = q + s;
        c[i] = p - r;
        d[i] = q - s;
    }
}

INA_KERNEL_PART void halves(size_t far, float *x)
{
    float *restrict a = x, *restrict b = x + far;
    for (size_t i = 0; i < far; i++) {
        const float p = a[i] + b[i], q = a[i] - b[i];
        a[i] = p;
        b[i] = q;
    }
}

/* 16 values: four quarters of four, each the transform of four. */
INA_KERNEL_PART void sixteen(float *x)
{
    quarters(4, x);
    for (size_t at = 0; at < 16; at += 4)
        quarters(1, x + at);
}

INA_KERNEL static void transform_near(size_t size, float *x)
{
    if (size >= 16) {
        for (size_t at = 0; at < size; at += 16)
            sixteen(x + at);
        size_t far = 16;
        for (; 4 * far <= size; far *= 4)
            for (size_t at = 0; at < size; at += 4 * far)
                quarters(far, x + at);
        if (far < size)
            halves(far, x);
    } else {
        for (size_t far = 1; far < size; far *= 2)
            for (size_t at = 0; at < size; at += 2 * far)
                halves(far, x + at);
    }
}

INA_KERNEL static void quarters_far(size_t far, float *x)
{
    quarters(far, x);
}

INA_KERNEL static void halves_far(size_t far, float *x)
{
    halves(far, x);
}

static void transform(size_t size, float *x)
{
    if (size <= NEAR) {
        transform_near(size, x);
    } else if (size == 2 * NEAR) {
        halves_far(NEAR, x);
        transform_near(NEAR, x);
        transform_near(NEAR, x + NEAR);
    } else {
        quarters_far(size / 4, x);
        for (size_t quarter = 0; quarter < 4; quarter++)
            transform(size / 4, x + quarter * (size / 4));
    }
}

INA_KERNEL static void signed_copy(size_t count, const float *x, double factor, uint64_t seed, float *z)
{
    for (size_t at = 0; at < count; at += 32) {
        const uint32_t signs = (uint32_t)mixed(seed + at);
        const size_t here = count - at < 32 ? count - at : 32;
        for (uint32_t i = 0; i < here; i++) {
            const float scaled = (float)(x[at + i] * factor);
            uint32_t bits;
            memcpy(&bits, &scaled, 4);
            bits ^= signs >> i << 31;
            memcpy(z + at + i, &bits, 4);
        }
    }
}

void ina_thc_rotate(size_t count, size_t size, const float *x, double factor, uint64_t seed, float *z)
{
    signed_copy(count, x, factor, seed, z);
    memset(z + count, 0, (size - count) * sizeof *z);
    transform(size, z);
}

void ina_thc_rotate_back(size_t count, size_t size, float *x, double factor, uint64_t seed, float *z)
{
    transform(size, z);
    signed_copy(count, z, factor, seed, x);
}

INA_KERNEL double ina_thc_squares(size_t count, const float *x)
{
    return sum_of(count, x, x, 1);
}

/* ---- quantisation -------------------------------------------------------------------------------------------------- */

enum { CHUNK = 256 }; /* levels as wide as the floats, then narrow: each loop has one width */

INA_KERNEL static void quantise(const struct ina_thc_table *restrict t, size_t count, float *restrict z, float factor, uint32_t seed,
                                uint32_t place, uint8_t *restrict levels)
{
    const float limit = t->limit, most = (float)t->granularity, units = most / (2 * limit), unit = 2 * limit / most;
    int32_t wide[CHUNK];
    for (uint32_t i = 0; i < (uint32_t)count; i++) {
        const float value = z[i] * factor;
        float u = (value + limit) * units;
        u = u > 0 ? u : 0;
        u = u < most ? u : most;
        const int32_t k = (int32_t)u;
        const float low = t->low[k], gap = t->gap[k];
        const float level = low + ((u - low) > gap * chance_of(seed, place + i) ? gap : 0.0f);
        wide[i] = (int32_t)level;
        z[i] = value - (level * unit - limit);
    }
    for (uint32_t i = 0; i < (uint32_t)count; i++)
        levels[i] = (uint8_t)wide[i];
}

void ina_thc_quantise(const struct ina_thc_table *t, size_t size, float *z, float factor, uint64_t seed, uint8_t *levels)
{
    const uint32_t half = (uint32_t)(seed ^ seed >> 32);
    for (size_t at = 0; at < size; at += CHUNK)
        quantise(t, size - at < CHUNK ? size - at : CHUNK, z + at, factor, half, (uint32_t)at, levels + at);
}

INA_KERNEL void ina_thc_dequantise(const struct ina_thc_table *t, size_t size, const int32_t *sums, uint32_t workers, float *z)
{
    const float unit = 2 * t->limit / (float)t->granularity, offset = (float)workers * t->limit;
    for (size_t i = 0; i < size; i++)
        z[i] = (float)sums[i] * unit - offset;
}
