/* Levels: see levels.h. */
#include "levels.h"

#include <math.h>

#include "blocks.h"
#include "chance.h"

enum { CHUNK = 256 }; /* levels as wide as the floats, then narrow: each loop has one width */

static int known(int32_t scale)
{
    return scale > 0 && scale < INA_INFINITE;
}

/* The next power of two, at least 2^-149. */
static double power_of(int32_t bits)
{
    int exponent;
    const double fraction = frexp(float_of((uint32_t)bits), &exponent);
    return ldexp(1, fraction > 0.5 ? exponent : exponent - 1);
}

static uint32_t folded(uint64_t seed)
{
    return (uint32_t)(seed ^ seed >> 32);
}

/* ---- uniform ------------------------------------------------------------------------------------------------------- */

INA_KERNEL_PART void scale(size_t count, const float *restrict x, double factor, float *restrict scaled)
{
    for (uint32_t i = 0; i < (uint32_t)count; i++)
        scaled[i] = (float)(x[i] * factor);
}

INA_KERNEL static void uniform(size_t count, const float *restrict x, double factor, float most, uint32_t seed, uint32_t place,
                               uint8_t *restrict levels)
{
    float scaled[CHUNK];
    int32_t wide[CHUNK];
    scale(count, x, factor, scaled);
    for (uint32_t i = 0; i < (uint32_t)count; i++) {
        float y = scaled[i];
        y = y > -most ? y : -most;
        y = y < most ? y : most;
        const int32_t cut = (int32_t)y, low = cut - ((float)cut > y); /* towards zero, then down */
        wide[i] = low + (int32_t)most + (y - (float)low > chance_of(seed, place + i));
    }
    for (uint32_t i = 0; i < (uint32_t)count; i++)
        levels[i] = (uint8_t)wide[i];
}

void ina_levels_uniform(const struct ina_levels *l, const float *x, const int32_t *scales, uint64_t seed, uint8_t *levels)
{
    for (uint64_t block = 0; block < quotient_up(l->count, l->block); block++) {
        const uint64_t from = block * l->block, to = from + block_values(l->count, l->block, block);
        if (!known(scales[block])) {
            memset(levels + from, (int)l->most, to - from);
            continue;
        }
        const double factor = l->most / (double)float_of((uint32_t)scales[block]);
        for (uint64_t at = from; at < to; at += CHUNK)
            uniform(to - at < CHUNK ? to - at : CHUNK, x + at, factor, (float)l->most, folded(seed), (uint32_t)at, levels + at);
    }
}

INA_KERNEL static void values(size_t count, const int32_t *restrict sums, int32_t bias, double unit, float *restrict x)
{
    for (size_t i = 0; i < count; i++)
        x[i] = (float)((sums[i] - bias) * unit);
}

void ina_levels_values(const struct ina_levels *l, const int32_t *sums, const int32_t *scales, uint32_t workers, uint32_t divisor, float *x)
{
    for (uint64_t block = 0; block < quotient_up(l->count, l->block); block++) {
        const uint64_t at = block * l->block, count = block_values(l->count, l->block, block);
        if (known(scales[block]))
            values(count, sums + at, (int32_t)(workers * l->most), (double)float_of((uint32_t)scales[block]) / l->most / divisor, x + at);
        else
            fill(count, scales[block] ? NAN : 0, x + at);
    }
}

/* ---- powers of two ------------------------------------------------------------------------------------------------- */

INA_KERNEL static void powers(size_t count, const float *restrict x, double factor, int32_t bias, uint32_t seed, uint32_t place,
                              uint16_t *restrict levels)
{
    float scaled[CHUNK];
    int32_t wide[CHUNK];
    scale(count, x, factor, scaled);
    for (uint32_t i = 0; i < (uint32_t)count; i++) {
        const float y = scaled[i], size = __builtin_fabsf(y), chance = chance_of(seed, place + i);
        int32_t bits;
        memcpy(&bits, &size, 4);
        bits &= 0x7f800000;
        float low;
        memcpy(&low, &bits, 4);
        const int32_t power = (int32_t)low << (size - low > low * chance); /* of those from 1 on */
        const int32_t near = size > chance, below = size < 1, minus = y < 0; /* of those below: 1 or nothing */
        const int32_t level = (near & -below) | (power & (below - 1));
        wide[i] = bias + ((level ^ -minus) + minus);
    }
    for (uint32_t i = 0; i < (uint32_t)count; i++)
        levels[i] = (uint16_t)wide[i];
}

void ina_levels_powers(const struct ina_levels *l, const float *x, const int32_t *scales, uint64_t seed, uint16_t *levels)
{
    const int32_t bias = 1 << l->octaves;
    for (uint64_t block = 0; block < quotient_up(l->count, l->block); block++) {
        const uint64_t from = block * l->block, to = from + block_values(l->count, l->block, block);
        const double factor = known(scales[block]) ? bias / power_of(scales[block]) : 0;
        for (uint64_t at = from; at < to; at += CHUNK) {
            const size_t count = to - at < CHUNK ? to - at : CHUNK;
            if (known(scales[block]))
                powers(count, x + at, factor, bias, folded(seed), (uint32_t)at, levels + at);
            else
                for (size_t i = 0; i < count; i++)
                    levels[at + i] = (uint16_t)bias;
        }
    }
}

INA_KERNEL static void values_of_powers(size_t count, const uint16_t *restrict sums, int32_t bias, double unit, float *restrict x)
{
    for (size_t i = 0; i < count; i++)
        x[i] = (float)((sums[i] - bias) * unit);
}

void ina_levels_values_of_powers(const struct ina_levels *l, const uint16_t *sums, const int32_t *scales, uint32_t workers, uint32_t divisor,
                                 float *x)
{
    const int32_t bias = 1 << l->octaves;
    for (uint64_t block = 0; block < quotient_up(l->count, l->block); block++) {
        const uint64_t at = block * l->block, count = block_values(l->count, l->block, block);
        if (known(scales[block]))
            values_of_powers(count, sums + at, (int32_t)workers * bias, power_of(scales[block]) / bias / divisor, x + at);
        else
            fill(count, scales[block] ? NAN : 0, x + at);
    }
}
