/* Levels: floats rounded by chance to one of the two levels beside them, so that they are right on average. A level is an unsigned
 * integer with a bias, so that levels of all workers add up in lanes (lanes.h); count times the bias is subtracted from the sum.
 *
 * uniform:  -scale, -scale (most - 1) / most, ..., scale as 0..2 most; bias: most. What is beyond the scale is cut.
 * powers:   +-2^(e - octaves), ..., +-2^e and 0 as those times 2^(octaves - e); 2^e is the scale's next power of two. Bias: 2^octaves.
 *
 * Each block of `block` values has one scale, the bits of a float32 that is not negative (ina_lanes_scales); one that is infinite or no
 * number makes its block NaN, zero makes it zero. -0 decodes as +0.
 */
#ifndef INA_LEVELS_H
#define INA_LEVELS_H

#include <stddef.h>
#include <stdint.h>

struct ina_levels {
    uint64_t count;    /* values */
    uint32_t block;    /* values with a common scale */
    uint32_t most;     /* of uniform levels: 1..127 */
    uint32_t octaves;  /* of powers of two: 1..14 */
    uint32_t reserved;
};

void ina_levels_uniform(const struct ina_levels *l, const float *x, const int32_t *scales, uint64_t seed, uint8_t *levels);
void ina_levels_powers(const struct ina_levels *l, const float *x, const int32_t *scales, uint64_t seed, uint16_t *levels);
/* The workers' values of the sums of their levels. divisor: the number of workers for averages, else 1. */
void ina_levels_values(const struct ina_levels *l, const int32_t *sums, const int32_t *scales, uint32_t workers, uint32_t divisor, float *x);
void ina_levels_values_of_powers(const struct ina_levels *l, const uint16_t *sums, const int32_t *scales, uint32_t workers, uint32_t divisor,
                                 float *x);

#endif
