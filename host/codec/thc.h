/* THC (Li et al., NSDI'24): a randomised Hadamard transform, and stochastic quantisation on a table of integers, whose sums are
 * those of the values. For tensors in parts of a power of two.
 *
 * rotation:  z = H D x, with H the Hadamard matrix of 1 and -1, and D random signs; H D D H = size, so it is undone by D H / size.
 *            With x / |x| for x, the coordinates of z are about N(0, 1).
 * table:     0 = level[0] <= level[1] <= ... <= level[last] = granularity; level[i] stands for level[i] * 2 limit / granularity - limit.
 *            A coordinate beyond the limit is cut; any other one becomes one of its two neighbours, by chance, so that it is right
 *            on average.
 * seeds:     random numbers follow from (seed, place), so every result is the same on every processor.
 */
#ifndef INA_THC_H
#define INA_THC_H

#include <stddef.h>
#include <stdint.h>

/* For u from k up to k + 1: the levels beside it. */
struct ina_thc_table {
    float limit;
    uint32_t granularity;  /* 1..255 */
    float low[256];        /* the level below u */
    float gap[256];        /* to the next one; 0 at the last one */
};

/* Of (step, part, who): who 0 for the signs, which workers have in common. */
uint64_t ina_thc_seed(uint64_t step, uint64_t part, uint64_t who);

double ina_thc_squares(size_t count, const float *x);
/* z = H D (factor x), and zeros behind x; size: a power of two, at least count. */
void ina_thc_rotate(size_t count, size_t size, const float *x, double factor, uint64_t seed, float *z);
/* x = factor D H z, without what was behind it; z is destroyed. */
void ina_thc_rotate_back(size_t count, size_t size, float *x, double factor, uint64_t seed, float *z);
/* The levels that stand for factor z; z becomes what they miss. */
void ina_thc_quantise(const struct ina_thc_table *table, size_t size, float *z, float factor, uint64_t seed, uint8_t *levels);
/* z = the sum of the workers' values, of the sums of their levels. */
void ina_thc_dequantise(const struct ina_thc_table *table, size_t size, const int32_t *sums, uint32_t workers, float *z);

#endif
