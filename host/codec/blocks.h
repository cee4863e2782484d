/* Blocks of floats that have something in common (a scale, a mean), and sums over them. */
#ifndef INA_BLOCKS_H
#define INA_BLOCKS_H

#include <stddef.h>

#include "floats.h"

static inline uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t quotient_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

/* Values of a block, of `size` but for the last one. */
static inline uint64_t block_values(uint64_t count, uint64_t size, uint64_t block)
{
    return least(count - block * size, size);
}

static inline void fill(size_t count, float value, float *x)
{
    for (size_t i = 0; i < count; i++)
        x[i] = value;
}

/* The bits of the largest |x|: a float32, which orders as an int32. Zero < denormals < normals < inf < NaN. */
INA_KERNEL_PART void largest_of(size_t count, const float *restrict x, int32_t *restrict out)
{
    int32_t largest = 0;
    for (size_t i = 0; i < count; i++) {
        const int32_t magnitude = (int32_t)magnitude_of(x[i]);
        largest = magnitude > largest ? magnitude : largest;
    }
    *out = largest;
}

INA_KERNEL_PART double term_of(const float *a, const float *b, size_t i, int product)
{
    return product ? (double)a[i] * b[i] : __builtin_fabsf(a[i]);
}

/* The sum of a b, or of |a|, in an order that no width of registers changes. `product` is a constant. */
INA_KERNEL_PART double sum_of(size_t count, const float *a, const float *b, int product)
{
    double sums[16] = {0};
    size_t i = 0;
    for (; i + 16 <= count; i += 16)
        for (size_t lane = 0; lane < 16; lane++)
            sums[lane] += term_of(a, b, i + lane, product);
    for (; i < count; i++)
        sums[i % 16] += term_of(a, b, i, product);
    double sum = 0;
    for (size_t lane = 0; lane < 16; lane++)
        sum += sums[lane];
    return sum;
}

#endif
