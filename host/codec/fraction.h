/* Integers times a factor with a fraction: exact, rounded towards zero, modulo 2^64. A float64 is mantissa / 2^shift. */
#ifndef INA_FRACTION_H
#define INA_FRACTION_H

#include <stddef.h>
#include <stdint.h>

/* |mantissa| < 2^53; shift: 0..1126. `out` may be `x`. */
void ina_fraction_multiply(size_t count, const int64_t *x, int64_t mantissa, int shift, int64_t *out);

#endif
