/* Codecs: float32 blocks <-> values of a lane on the wire (lane.h), fused with the byte swap, vectorisable.
 *
 * Block floating point (SwitchML NSDI'21 §3.7 with the corrections of docs/design/protocol.md): all workers agree on the
 * block's exponent e = max over workers; value x travels as round(x * 2^(shift - e)), clamped to +-2^shift, with
 * shift = ina_lane_shift(lane, n), so n of them cannot overflow. Exponent of a block: smallest e with |x| <= 2^e,
 * at least -96; 127 if any value is NaN, infinite or beyond 2^126, the limit of this code: every rank then
 * decodes NaN, not a wrong sum. Error of a decoded sum: n * 2^(e - shift - 1), half a unit per worker, plus one
 * float32 rounding of the sum (three for an average: of the sum, of 1/n and of the product). -0 decodes as +0.
 */
#ifndef INA_CODEC_H
#define INA_CODEC_H

#include "lane.h"

enum { INA_EXP_MIN = -96, INA_EXP_MAX = 126, INA_EXP_NONFINITE = 127 };
enum { INA_EXACT_WORKERS = 32, INA_EXACT_WORDS = 12 }; /* values of INA_LANE_INT32 per float32 in the exact (superaccumulator) code; see codec.c */

int ina_codec_exponent(const float *x, size_t count);      /* of a block; zero block: INA_EXP_MIN */
/* exponent INA_EXP_NONFINITE: zeros. */
void ina_codec_encode(uint32_t lane, uint8_t *wire, const float *x, size_t count, int exponent, int shift);
/* exponent INA_EXP_NONFINITE: all NaN. divisor: the number of workers for averages, else 1. */
void ina_codec_decode(uint32_t lane, float *x, const uint8_t *wire, size_t count, int exponent, int shift, int divisor);
/* Values other than zero that encode as zero: at most half a unit, far below the largest of their block. */
uint64_t ina_codec_flushed(const float *x, size_t count, int exponent, int shift);
/* Writes `by` over a block and returns what ina_codec_flushed does of the values before; exponent: not INA_EXP_NONFINITE. */
uint64_t ina_codec_replace(float *x, const float *by, size_t count, int exponent, int shift);
/* Integers of the lane's dtype as they are, to the wire or from it: swaps their bytes. */
void ina_codec_swap(uint32_t lane, void *to, const void *from, size_t count);
/* Adds `other` to `sum`, modulo 2^bits; 1: a signed overflow happened. */
int ina_codec_add(uint32_t lane, uint8_t *restrict sum, const uint8_t *restrict other, size_t count);
/* Exact code for tiny tensors, in lanes of 32 bits: each float32 as INA_EXACT_WORDS signed digits of a 2^-149-based fixed-point number, so
 * that sums of up to INA_EXACT_WORKERS are exact in every word and no exponent needs to be agreed first. Infinities and NaN
 * follow IEEE 754, each for its own element only, and so does the sign of a zero: -0 if all workers have -0. */
void ina_codec_encode_exact(uint8_t *wire, const float *x, size_t count);
int ina_codec_decode_exact(float *x, const uint8_t *wire, size_t count, int workers, int divisor); /* rounded once; 1: all are finite */

#endif
