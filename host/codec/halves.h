/* Floats of 16 bits: IEEE 754's binary16 ("float16") and bfloat16, as the bits that they have in memory. */
#ifndef INA_HALVES_H
#define INA_HALVES_H

#include <stdint.h>

enum ina_floats { INA_FLOATS_32, INA_FLOATS_BF16, INA_FLOATS_FP16 };

/* The floats are `floats`, one of the two of 16 bits. Exact; a NaN stays one. */
void ina_halves_widen(uint32_t floats, uint64_t count, const uint16_t *halves, float *x);
/* Rounds to the nearest, ties to even; what is too large becomes infinite, a NaN a quiet one. */
void ina_halves_narrow(uint32_t floats, uint64_t count, const float *x, uint16_t *halves);

#endif
