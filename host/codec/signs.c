/* Signs: see signs.h. */
#include "signs.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "kernel.h"

enum { INFINITE = 0x7f800000 };

static uint64_t blocks_of(const struct ina_signs *s)
{
    return s->count / s->block + (s->count % s->block != 0);
}

static size_t block_values(const struct ina_signs *s, uint64_t block)
{
    const uint64_t rest = s->count - block * s->block;
    return rest < s->block ? rest : s->block;
}

static float number_of(int32_t bits)
{
    float mean;
    memcpy(&mean, &bits, 4);
    return mean;
}

INA_KERNEL static double sizes(size_t count, const float *x)
{
    double sums[16] = {0}; /* in an order that no width of registers changes */
    size_t i = 0;
    for (; i + 16 <= count; i += 16)
        for (size_t lane = 0; lane < 16; lane++)
            sums[lane] += __builtin_fabsf(x[i + lane]);
    for (; i < count; i++)
        sums[i % 16] += __builtin_fabsf(x[i]);
    double sum = 0;
    for (size_t lane = 0; lane < 16; lane++)
        sum += sums[lane];
    return sum;
}

void ina_signs_means(const struct ina_signs *s, const float *x, int32_t *means)
{
    for (uint64_t block = 0; block < blocks_of(s); block++) {
        const size_t count = block_values(s, block);
        const float mean = (float)(sizes(count, x + block * s->block) / (double)count);
        memcpy(means + block, &mean, 4);
        means[block] &= 0x7fffffff; /* NaN's sign would make it small */
    }
}

INA_KERNEL static void miss(size_t count, const float *restrict x, float mean, float *restrict missed)
{
    for (size_t i = 0; i < count; i++)
        missed[i] = x[i] - (x[i] >= 0 ? mean : -mean);
}

void ina_signs_missed(const struct ina_signs *s, const int32_t *means, const float *x, float *missed)
{
    for (uint64_t block = 0; block < blocks_of(s); block++) {
        const uint64_t at = block * s->block;
        if (means[block] < INFINITE)
            miss(block_values(s, block), x + at, number_of(means[block]), missed + at);
    }
}

static void fill(size_t count, float value, float *x)
{
    for (size_t i = 0; i < count; i++)
        x[i] = value;
}

INA_KERNEL static void values(size_t count, const int32_t *restrict ayes, int32_t workers, float unit, float *restrict x)
{
    for (size_t i = 0; i < count; i++)
        x[i] = (float)(2 * ayes[i] - workers) * unit;
}

void ina_signs_values(const struct ina_signs *s, const int32_t *means, const int32_t *ayes, float factor, float *x)
{
    for (uint64_t block = 0; block < blocks_of(s); block++) {
        const uint64_t at = block * s->block;
        if (means[block] < INFINITE)
            values(block_values(s, block), ayes + at, (int32_t)s->workers, number_of(means[block]) * factor, x + at);
        else
            fill(block_values(s, block), NAN, x + at);
    }
}

INA_KERNEL static void replace(size_t count, float mean, float *x)
{
    for (size_t i = 0; i < count; i++)
        x[i] = x[i] >= 0 ? mean : -mean;
}

void ina_signs_replace(const struct ina_signs *s, const int32_t *means, float factor, float *x)
{
    for (uint64_t block = 0; block < blocks_of(s); block++) {
        const uint64_t at = block * s->block;
        if (means[block] < INFINITE)
            replace(block_values(s, block), number_of(means[block]) * factor, x + at);
        else
            fill(block_values(s, block), NAN, x + at);
    }
}
