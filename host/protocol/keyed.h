/* Check words of mode keyed: who does not have the job's key cannot make a sum that workers take.
 *
 * Both words of a packet are one tag of 64 bits, modulo 2^64: worker j of n sends for packet number q
 *
 *     tag = sum of c[i] v[i] + r(q, j) - r(q, j + 1) + D(q)      r(q, 0) = 0;  D: only if the block's exponent is its own
 *
 * with secret coefficients c of the job, and r and D from SipHash of the key. Each r is used for one sum, so that tags tell
 * nothing of c (Wegman and Carter, 1981). They add up to the tag of the sum with - r(q, n), except that switches add the two words
 * each by itself: up to n - 1 carries from the lower to the higher word are missing. What this proves: docs/design/protocol.md,
 * "A key".
 */
#ifndef INA_KEYED_H
#define INA_KEYED_H

#include <stddef.h>
#include <stdint.h>

#include "check.h"

enum { INA_KEYED_LANE = INA_LANE_INT32 }; /* of narrower sums that wrap, a tag would say less */
#define INA_KEYED_FLOATS ((1ull << 40) - 1) /* bits of a packet's number in tags of floats */

struct ina_keyed {               /* a job's secret: pointer-free */
    uint64_t key[2];
    uint64_t offset;             /* 2^31 times the sum of the coefficients */
    uint64_t values;
    uint32_t coefficients[];     /* [values] lower halves, then as many higher ones */
};

/* What is summed: of packets with values. */
struct ina_keyed_packet {
    uint64_t number;             /* in the life of the job */
    uint32_t kind;               /* INA_CHECK_INTEGERS, INA_CHECK_FLOATS */
    int exponent;                /* of the block, agreed; 0: there is none */
    int agreed;                  /* 1: so some worker's own exponent is `exponent` */
};

size_t ina_keyed_size(uint32_t values);
void ina_keyed_init(struct ina_keyed *keyed, const uint8_t key[INA_KEY_BYTES], uint32_t values);

/* Tag of worker `worker`; `own`: the exponent is its own. */
struct ina_check ina_keyed_tag(const struct ina_keyed *keyed, const struct ina_keyed_packet *packet, uint32_t worker, int own,
                               const uint8_t *wire);
/* 1: these are the sums of the workers first .. first + count - 1. `wrapped`: they may have wrapped modulo 2^32; then only the lower word
 * says anything. */
int ina_keyed_fits(const struct ina_keyed *keyed, const struct ina_keyed_packet *packet, uint32_t first, uint32_t count,
                   struct ina_check sum, int wrapped, const uint8_t *wire);
/* Tag of what a server of the job computes itself (sums of floats), and whether it fits. */
struct ina_check ina_keyed_result(const struct ina_keyed *keyed, const struct ina_keyed_packet *packet, const uint8_t *wire);

#endif
