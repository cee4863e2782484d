/* Integers of 64 bits as limbs of 21, which the switch adds up: all lowest limbs, then all of the next ones, ...; the highest have the
 * sign. A sum of limbs of INA_MAX_WORKERS fits 32 bits, also of the highest of three, which have 22. */
#ifndef INA_INTEGERS_H
#define INA_INTEGERS_H

#include <stddef.h>
#include <stdint.h>

enum { INA_LIMB_BITS = 21 };

/* `limbs`: words * count, words: 1..3; x fits so many limbs, of which the highest has what bits are left. */
void ina_integers_split(size_t count, const int64_t *x, unsigned words, int32_t *limbs);
/* The sums, modulo 2^64. `limbs`: int32_t, or int64_t if `wide`. */
void ina_integers_join(size_t count, const void *limbs, int wide, unsigned words, int64_t *x);
/* The sums divided by `divisor` > 0, rounded towards zero; they need not fit 64 bits, the quotients have to. */
void ina_integers_average(size_t count, const void *limbs, int wide, unsigned words, uint32_t divisor, int64_t *x);

#endif
