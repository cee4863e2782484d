/* The largest of many values. */
#ifndef INA_TOPK_H
#define INA_TOPK_H

#include <stdint.h>

/* The places of the k values with the largest |x|, in order; of equal ones the first. NaN is larger than all others. k <= count < 2^32. */
void ina_topk(uint64_t count, const float *x, uint64_t k, uint32_t *places);

#endif
