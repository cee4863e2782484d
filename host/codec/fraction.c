/* Integers times a fraction: see fraction.h. */
#include "fraction.h"

void ina_fraction_multiply(size_t count, const int64_t *x, int64_t mantissa, int shift, int64_t *out)
{
    const int least = 117; /* |x| <= 2^63: from here on, all quotients are below 1 */
    const __int128 divisor = (__int128)1 << (shift < least ? shift : least);
    for (size_t i = 0; i < count; i++)
        out[i] = (int64_t)(x[i] * (__int128)mantissa / divisor);
}
