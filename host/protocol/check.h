/* The check header (p4/include/frame.p4, check_t): the version, the checksum of the headers, and the two check words of the values.
 *
 * Value i of a packet lies in column i mod 32, at place i / 32 of m. With S the sum of a column's values, T the sum of its sums so far
 * (its first value counts m times, its last once) and odd constants u, w of the column,
 *
 *     check0 = sum of u S + nonce0(number, kind)          check1 = sum of w T + nonce1(number, kind, exponent)      modulo 2^32
 *
 * That is mode sum; keyed.h has mode keyed. Both are linear, so those of n workers add up to those of the sum, with n times the nonces. What this detects:
 * docs/design/protocol.md, "Version and integrity".
 */
#ifndef INA_CHECK_H
#define INA_CHECK_H

#include "internet.h"
#include "lane.h"
#include "mix.h"
#include "protocol.h"

struct ina_check_header {
    uint8_t version, flags;
    uint16_t headers;           /* RFC 1071, over the protocol's header, exponents and this header */
    uint32_t check0, check1;
} __attribute__((packed));

enum { INA_CHECK_OFF = 0, INA_CHECK_SUM = 1, INA_CHECK_KEYED = 2, INA_CHECK_MODES = 3 }; /* flags: how the words are made */
enum { INA_CHECK_INTEGERS = 0, INA_CHECK_FLOATS = 1 };              /* kinds of values */
static_assert(sizeof(struct ina_check_header) == 12, "as in frame.p4");

struct ina_check {
    uint32_t word[2];
};

/* A protocol's option (struct ina_option): which of these modes. */
#define INA_CHECK_OPTION                                                                                                              \
    {"check", "1: check words protect sums from worker to worker; 2: also from forgery; 0: they do not (the same on all workers)", 0, \
     INA_CHECK_MODES - 1, INA_CHECK_SUM}

/* Adds the words of `count` values of a lane, a multiple of 32. */
void ina_check_add(uint32_t lane, struct ina_check *check, const uint8_t *wire, size_t count);
/* The same in the pass of ina_codec_encode or ina_codec_decode over a block whose exponent is not INA_EXP_NONFINITE. */
void ina_check_encode(uint32_t lane, struct ina_check *check, uint8_t *wire, const float *x, size_t count, int exponent, int shift);
void ina_check_decode(uint32_t lane, struct ina_check *check, float *x, const uint8_t *wire, size_t count, int exponent, int shift, int divisor);

/* Nonces of one worker's packet. `identity`: of the packet's number, its job and life. */
static inline struct ina_check ina_check_nonce(uint64_t identity, uint32_t kind, int exponent)
{
    const uint64_t first = ina_mix(identity + (kind + 1) * 0x9e3779b97f4a7c15ull);
    const uint64_t second = ina_mix(first + (uint8_t)exponent + 1);
    return (struct ina_check){{(uint32_t)(first >> 32), (uint32_t)(second >> 32)}};
}

/* `times` the nonces, the words before any value is added. */
static inline struct ina_check ina_check_begin(struct ina_check nonce, uint32_t times)
{
    return (struct ina_check){{nonce.word[0] * times, nonce.word[1] * times}};
}

/* 1: they are the words of a sum that has these. wrapped: some value of it has left the lane's range, so that the sum, and its words, are
 * right modulo 2^bits only. */
static inline int ina_check_fits(uint32_t lane, struct ina_check check, uint32_t word0, uint32_t word1, int wrapped)
{
    const uint32_t known = wrapped ? UINT32_MAX >> (32 - ina_lane_bits(lane)) : UINT32_MAX;
    return !(((check.word[0] ^ word0) | (check.word[1] ^ word1)) & known);
}

/* Completes a frame's check header, which ends the checked bytes, but for `more` behind it. The values are written. */
static inline void ina_check_seal(struct ina_check_header *header, uint32_t flags, struct ina_check check, const void *from,
                                  size_t more)
{
    *header = (struct ina_check_header){.version = INA_WIRE_VERSION, .flags = (uint8_t)flags,
                                        .check0 = htonl(check.word[0]), .check1 = htonl(check.word[1])};
    header->headers = ina_internet_checksum(from, (size_t)((const uint8_t *)(header + 1) - (const uint8_t *)from) + more);
}

#endif
