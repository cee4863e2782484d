/* Signs: see signs.h. */
#include "signs.h"

#include <math.h>

#include "blocks.h"

INA_KERNEL static double sizes(size_t count, const float *x)
{
    return sum_of(count, x, NULL, 0);
}

void ina_signs_means(const struct ina_signs *s, const float *x, int32_t *means)
{
    for (uint64_t block = 0; block < quotient_up(s->count, s->block); block++) {
        const size_t count = block_values(s->count, s->block, block);
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
    for (uint64_t block = 0; block < quotient_up(s->count, s->block); block++) {
        const uint64_t at = block * s->block;
        if (means[block] < INA_INFINITE)
            miss(block_values(s->count, s->block, block), x + at, float_of((uint32_t)means[block]), missed + at);
    }
}

INA_KERNEL static void values(size_t count, const int32_t *restrict ayes, int32_t workers, float unit, float *restrict x)
{
    for (size_t i = 0; i < count; i++)
        x[i] = (float)(2 * ayes[i] - workers) * unit;
}

void ina_signs_values(const struct ina_signs *s, const int32_t *means, const int32_t *ayes, float factor, float *x)
{
    for (uint64_t block = 0; block < quotient_up(s->count, s->block); block++) {
        const uint64_t at = block * s->block;
        if (means[block] < INA_INFINITE)
            values(block_values(s->count, s->block, block), ayes + at, (int32_t)s->workers, float_of((uint32_t)means[block]) * factor, x + at);
        else
            fill(block_values(s->count, s->block, block), NAN, x + at);
    }
}

INA_KERNEL static void replace(size_t count, float mean, float *x)
{
    for (size_t i = 0; i < count; i++)
        x[i] = x[i] >= 0 ? mean : -mean;
}

void ina_signs_replace(const struct ina_signs *s, const int32_t *means, float factor, float *x)
{
    for (uint64_t block = 0; block < quotient_up(s->count, s->block); block++) {
        const uint64_t at = block * s->block;
        if (means[block] < INA_INFINITE)
            replace(block_values(s->count, s->block, block), float_of((uint32_t)means[block]) * factor, x + at);
        else
            fill(block_values(s->count, s->block, block), NAN, x + at);
    }
}
