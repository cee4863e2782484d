/* Lanes: several small unsigned integers in each int32, which a switch adds up as one: every lane has room for the sum of all
 * workers, so nothing carries over into the next lane. Signed values are biased; the bias times the number of workers is
 * subtracted from the sum. What a switch says of the overflow of a sum means nothing here: the highest lane has the sign bit.
 *
 * bytes:   word w has the values w, W + w, 2 W + w, ... in its lanes from the lowest on; W: the number of words. The highest lane
 *          may be narrower than `bits`: what carries out of it leaves the word, so its sum is known modulo its width
 * shorts:  three 16-bit values in two words, for sums modulo 2^16:
 *
 *              word 2 i       [ value i     : 16 ][ low byte of value 2 P + i  : 16 ]      P: the number of pairs of words
 *              word 2 i + 1   [ value P + i : 16 ][ high byte of value 2 P + i : 16 ]
 *
 * floats:  as bytes in each group of lanes * block words' values, so that every block of `block` values, whose unit it shares, is
 *          in one lane; the last group is full, with zeros. A value is +-mantissa * 2^position units, as struct ina_element says,
 *          rounded to the nearest, ties to even; larger ones travel as the largest. -0 decodes as +0.
 *          Tensors of 16-bit floats are read and written as they are: `x` is what `floats` says.
 */
#ifndef INA_LANES_H
#define INA_LANES_H

#include <stddef.h>
#include <stdint.h>

#include "halves.h"

struct ina_lanes {
    uint64_t count;        /* values */
    uint32_t bits;         /* of a lane, guard bits included: 1..16 */
    uint32_t workers;      /* up to INA_MAX_WORKERS; n * (2^(bits of a value) - 1) < 2^bits */
    uint32_t block;        /* of lanes of floats: values with a common unit */
    uint32_t lanes;        /* of a word */
    uint32_t floats;       /* enum ina_floats, of the tensor: what is in lanes is made of its values as float32 */
};

struct ina_element {       /* of the floats that may travel, in units of their block */
    float largest;         /* and the bias: a whole number, n * 2 * largest < 2^bits */
    int32_t fraction;      /* bits of a mantissa after its first; 23: all whole numbers */
};

uint64_t ina_lanes_words(const struct ina_lanes *lanes);
/* flip: 0 for unsigned bytes, 0x80 for signed ones: their bias. */
void ina_lanes_pack_bytes(const struct ina_lanes *lanes, const uint8_t *x, uint8_t flip, int32_t *words);
/* The sums of the workers' values; modulo 2^(width) in a highest lane that is narrower. */
void ina_lanes_sum_bytes(const struct ina_lanes *lanes, const int32_t *words, uint8_t flip, int32_t *sums);
/* Sums modulo 2^8. */
void ina_lanes_wrap_bytes(const struct ina_lanes *lanes, const int32_t *words, uint8_t flip, uint8_t *sums);
/* Writes 1 where a sum of unsigned values is not zero, else 0. */
void ina_lanes_any_bytes(const struct ina_lanes *lanes, const int32_t *words, uint8_t *any);

/* count: values; up to 257 workers. */
void ina_lanes_pack_shorts(uint64_t count, const int16_t *x, int32_t *words);
void ina_lanes_sum_shorts(uint64_t count, const int32_t *words, int16_t *sums);

uint64_t ina_lanes_float_words(const struct ina_lanes *lanes);
/* Of each block, the bits of the largest |x|: a float32, which orders as an int32. */
void ina_lanes_scales(const struct ina_lanes *lanes, const void *x, int32_t *largest);
/* Units of blocks: a block's largest value, as ina_lanes_scales has it, is `most` units; NaN where it is no finite number. A unit is
 * rounded to float32, unless it would be subnormal there. */
void ina_lanes_units(uint64_t blocks, const int32_t *largest, uint32_t most, double *units);
/* units: of each block, not negative; blocks whose unit is none are not sent. Returns the values other than zero that became it. */
uint64_t ina_lanes_encode(const struct ina_lanes *lanes, const struct ina_element *element, const double *units, const void *x,
                          int32_t *words);
/* divisor: the number of workers for averages, else 1. A block whose unit is NaN decodes as NaN. */
void ina_lanes_decode(const struct ina_lanes *lanes, const struct ina_element *element, const double *units, const int32_t *words,
                      uint32_t divisor, void *x);

#endif
