/* Sketch: integers at places that all workers know, summed in less words than there are places, and read again exactly (lossless
 * homomorphic compression, Li et al., arXiv 2402.07529).
 *
 *     [ buckets 0 .. each-1 | each .. 2 each-1 | 2 each .. 3 each-1 ]      a value is added to one bucket in each range
 *
 * Sums of sketches are the sketch of the sums, modulo 2^32. A bucket with a single value is that value; it is subtracted from its
 * two other buckets, which may leave one there, and so on (peeling). Which values can be peeled, and in which order, follows from
 * their places alone: mostly all of them with up to 0.8 values a bucket, if there are thousands. The others are left out of the
 * sketch: they travel as they are.
 *
 * hash: MurmurHash3_x86_32 of a place's 4 bytes (little endian), with seeds 3 seed, 3 seed + 1 and 3 seed + 2, as a share of 2^32.
 */
#ifndef INA_SKETCH_H
#define INA_SKETCH_H

#include <stdint.h>

enum { INA_SKETCH_RANGES = 3, INA_SKETCH_LEFT = 3 };

struct ina_sketch {       /* equal on all workers */
    uint64_t count;       /* values */
    uint32_t each;        /* buckets of a range, 1 .. 2^30 */
    uint32_t seed;
    const uint32_t *places; /* of the values, all different */
};

uint32_t ina_sketch_hash(uint32_t place, uint32_t seed);
/* The values that can be peeled, in this order, then those that cannot. range: of each value, the one in which it will be alone;
 * INA_SKETCH_LEFT: none. scratch: 9 each words. Returns how many can be peeled. */
uint64_t ina_sketch_order(const struct ina_sketch *sketch, uint32_t *order, uint8_t *range, uint32_t *scratch);
/* buckets: 3 each, of zeros. */
void ina_sketch_add(const struct ina_sketch *sketch, const uint8_t *range, const int32_t *values, int32_t *buckets);
/* Reads the first `peeled` values of the order; the buckets are zeros then. */
void ina_sketch_peel(const struct ina_sketch *sketch, const uint32_t *order, const uint8_t *range, uint64_t peeled,
                     int32_t *buckets, int32_t *values);

#endif
