/* Signs (EF-signSGD): a block of values as +m or -m, m its mean |x|. A block's means are the bits of float32s that are not negative;
 * one that is infinite or no number makes its block NaN. 0 has the sign of +0, whatever its sign bit. */
#ifndef INA_SIGNS_H
#define INA_SIGNS_H

#include <stdint.h>

struct ina_signs {
    uint64_t count;    /* values */
    uint32_t block;    /* values with a common mean */
    uint32_t workers;
};

void ina_signs_means(const struct ina_signs *s, const float *x, int32_t *means);
/* Rest that the signs miss: x[i] - (x[i] >= 0 ? m : -m); where m is no number, missed stays. */
void ina_signs_missed(const struct ina_signs *s, const int32_t *means, const float *x, float *missed);
/* The sum of the workers' values, times factor, of the number of those that said aye: x[i] >= 0. */
void ina_signs_values(const struct ina_signs *s, const int32_t *means, const int32_t *ayes, float factor, float *x);
/* x[i] = x[i] >= 0 ? m : -m, times factor. */
void ina_signs_replace(const struct ina_signs *s, const int32_t *means, float factor, float *x);

#endif
