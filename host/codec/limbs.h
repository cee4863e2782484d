/* Limbs: the floats of a block as digits of one fixed-point number, whose integer sums are exact.
 *
 * Two rounds through the switch. First the largest over all workers of two words for each block of values (a survey):
 *
 *     [top]  the smallest t with |x| <= 2^t for all finite values          [low]  -(position of the lowest bit that is set)
 *
 * of which every worker then derives the same digits, and their sums follow, s = 30 - ceil(log2 n) bits a digit, so that those of
 * n workers cannot overflow:
 *
 *     block:  digit 0 (highest) of all values | digit 1 of all values | ... | counts of infinities, where there are any
 *
 * As many digits as lie between `top` and the lowest bit, or `most`: then values are rounded to the last digit, half a unit
 * 2^(top - most*s - 1) at most for each worker. A block of zeros has no digits. Sums and averages are rounded once.
 * Infinities and NaN are counted, each for its own element: IEEE 754's result. A sum is -0 if all workers have -0, with two digits
 * or more: -0 is 1 and -2^s in the lowest two, which is zero, and no other value's lowest digit is as far from it. Without `most` a
 * worker with one digit and -0 asks for a second one, and a block of zeros with -0 of some worker has counts.
 */
#ifndef INA_LIMBS_H
#define INA_LIMBS_H

#include <stddef.h>
#include <stdint.h>

/* Words of a survey for each block; `low` of a block with infinities or NaN; both of a block of zeros; `top` of one with -0, without
 * `most`; longest block. */
enum {
    INA_LIMBS_SURVEY = 2,
    INA_LIMBS_NONFINITE = 4096,
    INA_LIMBS_ZERO = -8192,
    INA_LIMBS_NEGATIVE_ZERO = INA_LIMBS_ZERO + 1,
    INA_LIMBS_BLOCK = 256
};

struct ina_limbs {         /* equal on all workers */
    uint64_t count;        /* values */
    uint32_t size;         /* bytes of one: 4 float32, 8 float64 */
    uint32_t block;        /* values of a block, up to INA_LIMBS_BLOCK */
    uint32_t most;         /* digits of a value; 0: as many as there are */
    uint32_t workers;      /* up to INA_MAX_WORKERS */
};

/* Words of the second round, after a survey that all workers agree on; UINT64_MAX: it is no survey of such floats. */
uint64_t ina_limbs_words(const struct ina_limbs *limbs, const int32_t *survey);
void ina_limbs_survey(const struct ina_limbs *limbs, const void *x, int32_t *survey);
void ina_limbs_encode(const struct ina_limbs *limbs, const void *x, const int32_t *survey, int32_t *words);
/* divisor: the number of workers for averages, else 1. */
void ina_limbs_decode(const struct ina_limbs *limbs, void *x, const int32_t *survey, const int32_t *words, uint32_t divisor);
/* Values other than zero of which every digit is zero. */
uint64_t ina_limbs_flushed(const struct ina_limbs *limbs, const void *x, const int32_t *survey);

#endif
