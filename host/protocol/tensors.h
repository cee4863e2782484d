/* Tensors in flight as runs of numbered packets: contents of packet number q, and the meaning of its result. Shared by the
 * protocols (switchml.c, atp.c), which only handle windows, timers and headers.
 *
 * Packets are numbered over the life of the job. A tensor is a run of them, number p = q - first:
 *
 *     p = 0        open: fingerprint of the tensor; and all of it, if it fits and is summed (int32 as it is, float32 exact).
 *                  Where the switch does not add up: fingerprint and its complement
 *     0 < p < m    float32: exponent of block p, no values; m = min(blocks, window). int32: none, m = 1
 *     p = m + j    block j
 *
 * Every float32 packet p carries the exponent of block p while there is one, so the exponent of block j is agreed by the
 * result of packet j, at least one round trip before packet m + j needs it. A protocol sends packet q only when it has
 * the result of q - window.
 *
 * Values without pointers: struct ina_tensors belongs to the head of a protocol's state, struct ina_tensor_times to the tail.
 */
#ifndef INA_TENSORS_H
#define INA_TENSORS_H

#include <assert.h>
#include <string.h>

#include "codec.h"
#include "protocol.h"

enum { INA_FINGERPRINT_WORDS = 3, INA_EXP_AGREED = -128, INA_EXP_UNKNOWN = -128 };

struct ina_op {                   /* a tensor in flight: a line */
    uint64_t first, unanswered;   /* packet; packets */
    uint64_t count, blocks;
    uint64_t ahead;               /* m: packets before the first block */
    uint64_t announced;           /* packets that carry the exponent of a block */
    uint32_t divisor;             /* floats: 1, or the number of workers for an average; integers: 0 */
    uint32_t exponents_at;        /* its row of `agreed` */
    uint8_t dtype, average, is_inline, overflow;
    uint8_t opened, mismatch;     /* its open packet is answered; and the workers do not agree */
    uint8_t reduction, exponents; /* exponents: of every block, agreed one round trip ahead */
};
static_assert(sizeof(struct ina_op) == 64, "a line");

struct ina_tensors {
    uint32_t workers, values, window, shift;
    int32_t exponent;             /* fixed point: of every block; INA_EXP_AGREED: block floating point */
    uint32_t idempotent;          /* 1: the switch does not sum: see ina_tensors_idempotent */
    uint32_t floats;              /* 1: the protocol supports blocks that integers cannot represent (INA_OUTCOME_FLOATS) */
    uint64_t next_seq;            /* packets given to tensors so far */
    uint64_t ops_begin, ops_open, ops_end; /* ordinals: oldest kept, oldest unfinished, next; handle = ordinal mod 64 */
    uint64_t fetched;             /* bit per handle: its event has been read */
    uint64_t done_begin, done_end;
    uint8_t done[INA_MAX_OPS];    /* handles in order of completion */
    struct ina_op op[INA_MAX_OPS];
    uint32_t fingerprint[INA_MAX_OPS][INA_FINGERPRINT_WORDS];
    uint32_t failed;              /* enum ina_error; 0: the job lives */
    uint32_t suspect;             /* 1: some tensor is a mismatch, an older one may be */
    struct ina_event failure;     /* slot, tsi, missing, have_missing of the events of a failed job */
    int8_t agreed[];              /* [INA_MAX_OPS][window]: exponents by block mod window; -128: not yet */
};

struct ina_tensor_times {
    uint64_t started[INA_MAX_OPS]; /* when the first packet could be sent; 0: not yet */
    uint64_t last_rx;             /* of the last accepted frame */
};

size_t ina_tensors_size(uint32_t window);
void ina_tensors_init(struct ina_tensors *ts, const struct ina_worker_config *config, int32_t exponent, uint32_t floats);

/* splitmix64's finaliser: every bit of the input changes half of the output. */
static inline uint64_t ina_tensors_mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/* Call after init for an idempotent reduction: n times x gives x (a maximum, a majority). Workers agree if fingerprint and
 * complement come back unchanged. */
static inline void ina_tensors_idempotent(struct ina_tensors *ts)
{
    ts->idempotent = 1;
}

/* As in struct ina_protocol; submit appends the tensor's packets: ts->next_seq grows. */
int ina_tensors_next_handle(const struct ina_tensors *ts);
int ina_tensors_submit(struct ina_tensors *ts, struct ina_tensor_times *times, const struct ina_tensor *tensors, int handle);
int ina_tensors_events(struct ina_tensors *ts, const struct ina_tensor_times *times, struct ina_event *events, int max);

/* Returns whether packet seq has values, and their reduction. (The open packet's: sum, or the protocol's own; INA_OWN counts
 * as SUM.) */
enum ina_contents { INA_CONTENTS_NONE, INA_CONTENTS_SUM, INA_CONTENTS_MAX };
static inline enum ina_contents ina_tensors_contents(const struct ina_tensors *ts, uint32_t handle, uint64_t seq)
{
    const struct ina_op *op = &ts->op[handle];
    if (seq - op->first >= op->ahead)
        return op->reduction == INA_MAX ? INA_CONTENTS_MAX : INA_CONTENTS_SUM;
    return seq == op->first ? INA_CONTENTS_SUM : INA_CONTENTS_NONE;
}
/* 1: integers cannot represent this packet's block, as is known already (a NaN, an infinity, or beyond 2^126). */
int ina_tensors_needs_floats(const struct ina_tensors *ts, uint32_t handle, uint64_t seq);
/* Writes the packet's block like encode, but as big-endian float32 (zeros behind). */
int ina_tensors_encode_floats(const struct ina_tensors *ts, const struct ina_tensor *tensors, uint32_t handle, uint64_t seq,
                              uint8_t *wire);

struct ina_result {               /* the reply to packet seq */
    const uint8_t *wire;          /* 4 * values bytes; NULL: none */
    int exponent;                 /* the largest of all workers' */
    int overflow;
    int floats;                   /* the sums are float32 */
};
enum ina_outcome {
    INA_OUTCOME_OK = 0,           /* taken; *unblocked may now be READY (UINT64_MAX: none) */
    INA_OUTCOME_MALFORMED = 1,    /* not taken: impossible for this packet */
    INA_OUTCOME_MISMATCH = 2,     /* the workers do not agree: send nothing more of this tensor; *failing is the handle with
                                   * which the job fails, or -1: not before older tensors have been compared, too */
    INA_OUTCOME_FLOATS = 3        /* integers cannot represent it: all workers send packet seq again, as floats */
};
/* The job is over: fails every tensor in flight, `handle` first. Events have the values of ts->failure. */
void ina_tensors_fail(struct ina_tensors *ts, uint32_t code, uint32_t handle);
static inline uint32_t ina_tensors_oldest(const struct ina_tensors *ts)
{
    return (uint32_t)(ts->ops_open % INA_MAX_OPS);
}
/* Deadline of the oldest tensor in flight; UINT64_MAX: none. */
uint64_t ina_tensors_deadline(const struct ina_tensors *ts, const struct ina_tensor_times *times, uint64_t timeout);

/* ---- every packet, inline: nearly all of them are blocks of a tensor as before, whose exponent is agreed --------------- */

/* In tensors.c, for the other packets. */
uint32_t ina_tensors_op_of(const struct ina_tensors *ts, uint64_t seq);
int ina_tensors_encode_other(const struct ina_tensors *ts, const struct ina_tensor *tensors, uint32_t handle, uint64_t seq,
                             uint8_t *wire);
enum ina_outcome ina_tensors_take(struct ina_tensors *ts, const struct ina_tensor *tensors, uint32_t handle, uint64_t p,
                                  const struct ina_result *result, struct ina_worker_stats *stats, int *failing);
void ina_tensors_finish(struct ina_tensors *ts, uint32_t handle, struct ina_worker_stats *stats);

/* Index of a block's exponent: block + window reuses it after this block is done. */
static inline size_t ina_tensors_exponent_at(const struct ina_tensors *ts, const struct ina_op *op, uint64_t block)
{
    return (size_t)op->exponents_at + (block & (ts->window - 1));
}

static inline uint64_t ina_tensors_packets(const struct ina_op *op)
{
    return op->ahead + op->blocks;
}

static inline uint64_t ina_tensors_block_values(const struct ina_tensors *ts, const struct ina_op *op, uint64_t block)
{
    const uint64_t left = op->count - block * ts->values;
    return left < ts->values ? left : ts->values;
}

static inline int ina_tensors_carries_exponent(const struct ina_op *op, uint64_t p)
{
    return p < op->announced;
}

enum ina_packet_status { INA_PACKET_NONE, INA_PACKET_BLOCKED, INA_PACKET_READY };
/* State of packet seq. NONE: no tensor has it yet; BLOCKED: the exponent of its block is not agreed yet. Notes that its
 * tensor has started. *handle: in, any handle, best that of the packet before; out, its own unless NONE. */
static inline enum ina_packet_status ina_tensors_status(const struct ina_tensors *ts, struct ina_tensor_times *times,
                                                        uint64_t seq, uint32_t *handle, uint64_t now)
{
    uint32_t own = *handle;
    if (seq >= ts->next_seq)
        return INA_PACKET_NONE;
    if (seq - ts->op[own].first >= ina_tensors_packets(&ts->op[own]))
        *handle = own = ina_tensors_op_of(ts, seq);
    const struct ina_op *op = &ts->op[own];
    const uint64_t p = seq - op->first;
    if (!times->started[own])
        times->started[own] = now ? now : 1;
    if (op->exponents && p >= op->ahead && ts->agreed[ina_tensors_exponent_at(ts, op, p - op->ahead)] == INA_EXP_UNKNOWN)
        return INA_PACKET_BLOCKED;
    return INA_PACKET_READY;
}

/* The exponent of a block of values; prefetches the values that are needed next. */
static inline int ina_tensors_exponent(const struct ina_tensors *ts, const struct ina_op *op, const struct ina_tensor *t,
                                       uint64_t block)
{
    enum { AHEAD = 2048, LINE = 16 }; /* values ahead: the latency of memory, within the core's cache */
    const float *x = (const float *)t->in + block * ts->values;
    const uint64_t left = op->count - block * ts->values;
    for (uint32_t i = AHEAD; i < AHEAD + ts->values && left > AHEAD + ts->values; i += 2 * LINE) {
        __builtin_prefetch(x + i);
        __builtin_prefetch(x + i + LINE);
    }
    return ina_codec_exponent(x, left < ts->values ? left : ts->values);
}

/* Writes the values of packet seq (4 * values bytes; none: wire is not touched); returns its exponent. */
static inline int ina_tensors_encode(const struct ina_tensors *ts, const struct ina_tensor *tensors, uint32_t handle,
                                     uint64_t seq, uint8_t *wire)
{
    const struct ina_op *op = &ts->op[handle];
    const struct ina_tensor *t = &tensors[handle];
    const uint64_t p = seq - op->first, block = p - op->ahead;
    if (__builtin_expect(p < op->ahead || !op->exponents, 0))
        return ina_tensors_encode_other(ts, tensors, handle, seq, wire);
    const uint64_t count = ina_tensors_block_values(ts, op, block);
    const int exponent = ts->agreed[ina_tensors_exponent_at(ts, op, block)];
    ina_codec_encode(wire, (const float *)t->in + block * ts->values, count, exponent, (int)ts->shift);
    if (count < ts->values)
        memset(wire + 4 * count, 0, 4 * (ts->values - count));
    return p < op->blocks ? ina_tensors_exponent(ts, op, t, p) : INA_EXP_MIN;
}

/* Received sums of a block. */
struct ina_sums {
    const uint8_t *wire;          /* NULL: there are none, or they are decoded */
    uint64_t block;
    int exponent;
};

static inline struct ina_sums ina_tensors_sums(const struct ina_tensors *ts, uint32_t handle, uint64_t block, const uint8_t *wire)
{
    const struct ina_op *op = &ts->op[handle];
    return (struct ina_sums){wire, block, op->exponents ? ts->agreed[ina_tensors_exponent_at(ts, op, block)] : ts->exponent};
}

static inline void ina_tensors_decode(const struct ina_tensors *ts, const struct ina_tensor *tensors, uint32_t handle,
                                      const struct ina_sums *sums)
{
    if (!sums->wire)
        return;
    const struct ina_op *op = &ts->op[handle];
    const uint64_t count = ina_tensors_block_values(ts, op, sums->block), at = sums->block * ts->values;
    if (op->divisor)
        ina_codec_decode((float *)tensors[handle].out + at, sums->wire, count, sums->exponent, (int)ts->shift, (int)op->divisor);
    else
        ina_codec_get_int32((int32_t *)tensors[handle].out + at, sums->wire, count);
}

/* Takes a result except a block's sums, which ina_tensors_decode handles: the long part runs when no other values occupy
 * registers. */
static inline enum ina_outcome ina_tensors_account(struct ina_tensors *ts, const struct ina_tensor *tensors, uint32_t handle,
                                                   uint64_t seq, const struct ina_result *result, struct ina_worker_stats *stats,
                                                   struct ina_sums *sums, uint64_t *unblocked, int *failing)
{
    struct ina_op *op = &ts->op[handle];
    const uint64_t p = seq - op->first;
    const int with_exponent = ina_tensors_carries_exponent(op, p);
    *unblocked = UINT64_MAX;
    *failing = -1;
    if (with_exponent && result->exponent < INA_EXP_MIN)
        return INA_OUTCOME_MALFORMED;
    if (__builtin_expect(p >= op->ahead && result->wire && !result->floats && (op->exponents || !op->divisor), 1)) {
        *sums = ina_tensors_sums(ts, handle, p - op->ahead, result->wire);
        if (__builtin_expect(sums->exponent == INA_EXP_NONFINITE, 0))
            stats->nonfinite_blocks++;
    } else {
        const struct ina_result copy = *result; /* a copy to take the address of: the caller's stays in registers */
        int disagrees = -1;
        const enum ina_outcome outcome = ina_tensors_take(ts, tensors, handle, p, &copy, stats, &disagrees);
        *failing = disagrees;
        if (outcome != INA_OUTCOME_OK)
            return outcome;
        sums->wire = NULL;
    }
    if (__builtin_expect(result->overflow && !result->floats, 0)) {
        op->overflow = 1;
        stats->overflows++;
    }
    stats->results++;
    if (__builtin_expect(!--op->unanswered, 0))
        ina_tensors_finish(ts, handle, stats);
    if (with_exponent) {
        ts->agreed[ina_tensors_exponent_at(ts, op, p)] = (int8_t)result->exponent;
        *unblocked = seq + op->ahead;
    }
    return INA_OUTCOME_OK;
}

static inline enum ina_outcome ina_tensors_result(struct ina_tensors *ts, const struct ina_tensor *tensors, uint32_t handle,
                                                  uint64_t seq, const struct ina_result *result, struct ina_worker_stats *stats,
                                                  uint64_t *unblocked, int *failing)
{
    struct ina_sums sums;
    const enum ina_outcome outcome = ina_tensors_account(ts, tensors, handle, seq, result, stats, &sums, unblocked, failing);
    if (outcome == INA_OUTCOME_OK)
        ina_tensors_decode(ts, tensors, handle, &sums);
    return outcome;
}

#endif
