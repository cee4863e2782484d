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
 * A tensor with a route (route.h) has the same packets, but its open packet has no values, the fingerprint is in its check words, and
 * block j is a block of one piece.
 *
 * Values without pointers: struct ina_tensors belongs to the head of a protocol's state, struct ina_tensor_times to the tail.
 */
#ifndef INA_TENSORS_H
#define INA_TENSORS_H

#include <assert.h>
#include <string.h>

#include "check.h"
#include "codec.h"
#include "protocol.h"

enum { INA_FINGERPRINT_WORDS = 3, INA_EXP_AGREED = -128, INA_EXP_UNKNOWN = -128 };

struct ina_op {                   /* a tensor in flight: a line */
    uint64_t first, unanswered;   /* packet; packets */
    uint64_t count, blocks;
    uint64_t ahead;               /* m: packets before the first block */
    uint64_t announced;           /* packets that carry the exponent of a block */
    uint16_t divisor;             /* floats: 1, or the number of workers for an average; integers: 0 */
    uint8_t routed : 1, offer : 1; /* 1: it has a route; it is an offer (its only packet is of a kind of its own) */
    uint8_t absent : 1;           /* 1: this worker is none of those chosen: it sends zeros, which lie where results will */
    uint8_t partial;              /* 1: with a route, and not all workers are members of all blocks */
    uint32_t exponents_at;        /* its row of `agreed` */
    uint8_t dtype, average, is_inline, overflow;
    uint8_t opened, mismatch;     /* its open packet is answered; and the workers do not agree */
    uint8_t reduction, exponents; /* exponents: of every block, agreed one round trip ahead */
};
static_assert(sizeof(struct ina_op) == 64, "a line");

struct ina_choice {               /* of an offer, and of the tensor after it */
    uint32_t contributors;        /* decided: bitmap */
    uint8_t part;                 /* enum ina_part */
    uint8_t decided;              /* 1: contributors are known */
    uint8_t state, least;         /* of an offer, as told */
    uint32_t rivals;
};

struct ina_gates {                /* packets from `from` to before `until` wait for gates (route.h); 0, 0: none do */
    uint64_t from, until;
};

struct ina_tensors {
    uint32_t workers, values, window, shift;
    uint32_t worker;              /* this one */
    int32_t exponent;             /* fixed point: of every block; INA_EXP_AGREED: block floating point */
    uint16_t lane;                /* of the values of its packets */
    uint16_t idempotent;          /* 1: the switch does not sum: see ina_tensors_idempotent */
    uint16_t contributions;       /* workers' values in a sum, by the job's rule */
    uint16_t floats;              /* 1: the protocol supports blocks that integers cannot represent (INA_OUTCOME_FLOATS) */
    uint16_t routes;              /* 1: the protocol supports sums from and to some workers only (ina_tensors_routes) */
    uint16_t offers;              /* 1: the protocol supports offers, and tensors that are chosen (ina_tensors_offers) */
    uint16_t waiting;             /* chosen tensors whose contributors are not decided yet */
    uint64_t next_seq;            /* packets given to tensors so far */
    uint64_t ops_begin, ops_open, ops_end; /* ordinals: oldest kept, oldest unfinished, next; handle = ordinal mod 64 */
    uint64_t fetched;             /* bit per handle: its event has been read */
    uint64_t done_begin, done_end;
    uint8_t done[INA_MAX_OPS];    /* handles in order of completion */
    struct ina_gates gates[INA_MAX_OPS], latest; /* by handle; of the last partial tensor */
    struct ina_op op[INA_MAX_OPS];
    struct ina_choice choice[INA_MAX_OPS];
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

/* Call after init for an idempotent reduction: n times x gives x (a maximum, a majority). Workers agree if fingerprint and
 * complement come back unchanged. */
static inline void ina_tensors_idempotent(struct ina_tensors *ts)
{
    ts->idempotent = 1;
}

/* Call after init where sums may be from and to some workers only. */
static inline void ina_tensors_routes(struct ina_tensors *ts)
{
    ts->routes = 1;
}

/* Call after init where switches decide on offers. */
static inline void ina_tensors_offers(struct ina_tensors *ts)
{
    ts->offers = 1;
}

/* As in struct ina_protocol; submit appends the tensor's packets: ts->next_seq grows. */
int ina_tensors_next_handle(const struct ina_tensors *ts);
int ina_tensors_submit(struct ina_tensors *ts, struct ina_tensor_times *times, const struct ina_tensor *tensors, int handle);
int ina_tensors_events(struct ina_tensors *ts, const struct ina_tensor_times *times, struct ina_event *events, int max);

/* Returns whether packet seq has values, and their reduction. (The open packet's: sum, or the one that the program has.) ROUTED: sums, of
 * which this worker may have no part; the open packet has none. */
enum ina_contents { INA_CONTENTS_NONE, INA_CONTENTS_SUM, INA_CONTENTS_MAX, INA_CONTENTS_OWN, INA_CONTENTS_ROUTED, INA_CONTENTS_OFFER };
static_assert(INA_CONTENTS_MAX - INA_CONTENTS_SUM == INA_MAX && INA_CONTENTS_OWN - INA_CONTENTS_SUM == INA_OWN, "in one order");
static inline enum ina_contents ina_tensors_contents(const struct ina_tensors *ts, uint32_t handle, uint64_t seq)
{
    const struct ina_op *op = &ts->op[handle];
    if (__builtin_expect(op->routed | op->offer, 0))
        return op->offer ? INA_CONTENTS_OFFER
               : seq == op->first || seq - op->first >= op->ahead ? INA_CONTENTS_ROUTED : INA_CONTENTS_NONE;
    if (seq - op->first >= op->ahead)
        return (enum ina_contents)(INA_CONTENTS_SUM + op->reduction);
    return seq == op->first ? INA_CONTENTS_SUM : INA_CONTENTS_NONE;
}
/* 1: integers cannot represent this packet's block, as is known already (a NaN, an infinity, or beyond 2^126). */
int ina_tensors_needs_floats(const struct ina_tensors *ts, uint32_t handle, uint64_t seq);
/* Writes the packet's block like encode, but as big-endian float32 (zeros behind). */
int ina_tensors_encode_floats(const struct ina_tensors *ts, const struct ina_tensor *tensors, uint32_t handle, uint64_t seq,
                              uint8_t *wire);

struct ina_result {               /* the reply to packet seq */
    const uint8_t *wire;          /* values; NULL: none */
    int exponent;                 /* the largest of all workers' */
    int overflow;
    int floats;                   /* the sums are float32 */
    int checked, own;             /* 1: the agreed exponent is compared with this worker's own */
    const float *decoded;         /* the sums, in the tensor or elsewhere (ina_tensors_read); NULL: not yet */
    uint32_t words[2];            /* check words of the open packet of a tensor with a route */
};
enum ina_outcome {
    INA_OUTCOME_OK = 0,           /* taken; *unblocked may now be READY (UINT64_MAX: none) */
    INA_OUTCOME_MALFORMED = 1,    /* not taken: impossible for this packet */
    INA_OUTCOME_MISMATCH = 2,     /* the workers do not agree: send nothing more of this tensor; *failing is the handle with
                                   * which the job fails, or -1: not before older tensors have been compared, too */
    INA_OUTCOME_CORRUPT = 4,      /* not taken: its exponent is not the largest */
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
/* The exponent of a block of floats of any width. */
int ina_tensors_exponent_of(const struct ina_tensors *ts, const struct ina_op *op, const struct ina_tensor *t, uint64_t block);
/* Encodes packet p of a tensor of 16-bit floats, as ina_tensors_encode_with does. */
int ina_tensors_encode_halves(const struct ina_tensors *ts, const struct ina_op *op, const struct ina_tensor *t, uint64_t p,
                              uint8_t *wire, struct ina_check *check);
enum ina_outcome ina_tensors_take(struct ina_tensors *ts, const struct ina_tensor *tensors, uint32_t handle, uint64_t p,
                                  const struct ina_result *result, struct ina_worker_stats *stats, int *failing);
void ina_tensors_finish(struct ina_tensors *ts, uint32_t handle, struct ina_worker_stats *stats);
/* This worker is no member of one of the tensor's packets. */
void ina_tensors_skip(struct ina_tensors *ts, uint32_t handle, struct ina_worker_stats *stats);

/* Index of a block's exponent: block + window reuses it after this block is done. */
static inline size_t ina_tensors_exponent_at(const struct ina_tensors *ts, const struct ina_op *op, uint64_t block)
{
    return (size_t)op->exponents_at + (block & (ts->window - 1));
}

static inline uint64_t ina_tensors_packets(const struct ina_op *op)
{
    return op->ahead + op->blocks;
}

/* Where this worker's values are. */
static inline const void *ina_tensors_in(const struct ina_op *op, const struct ina_tensor *t)
{
    return __builtin_expect(op->absent, 0) ? t->out : t->in;
}

/* Takes the answer to an offer: who contributes to the tensor after it. INA_OUTCOME_MALFORMED: not taken, this worker has not offered. The
 * next tensor, if it is there, can go on. */
enum ina_outcome ina_tensors_decide(struct ina_tensors *ts, const struct ina_tensor *tensors, uint32_t handle, uint32_t contributors,
                                    struct ina_worker_stats *stats);
/* Takes what is new of an offer. 0 or -EINVAL. */
int ina_tensors_amend(struct ina_tensors *ts, const struct ina_tensor *tensors, uint32_t handle);

/* Where a block lies in its tensor, in elements. */
struct ina_place {
    uint64_t at, count;
};
struct ina_place ina_route_place(const struct ina_tensor *t, uint32_t values, uint64_t block); /* route.c */

static inline struct ina_place ina_tensors_place(const struct ina_tensors *ts, const struct ina_op *op, const struct ina_tensor *t,
                                                 uint64_t block)
{
    if (__builtin_expect(op->routed, 0))
        return ina_route_place(t, ts->values, block);
    const uint64_t at = block * ts->values, left = op->count - at;
    return (struct ina_place){at, left < ts->values ? left : ts->values};
}

static inline int ina_tensors_carries_exponent(const struct ina_op *op, uint64_t p)
{
    return p < op->announced;
}

/* 1: floats of 16 bits, which the code for every packet leaves to tensors.c. */
static inline int ina_op_is_halves(const struct ina_op *op)
{
    return ina_is_float(op->dtype) && op->dtype != INA_FLOAT32;
}

/* 1: the values of packet seq are encoded with an exponent that is agreed. */
static inline int ina_tensors_is_agreed(const struct ina_tensors *ts, uint32_t handle, uint64_t seq)
{
    const struct ina_op *op = &ts->op[handle];
    return op->exponents && seq - op->first >= op->ahead;
}

/* 1: packet seq is a block of floats in fixed point. */
static inline int ina_tensors_is_fixed(const struct ina_tensors *ts, uint32_t handle, uint64_t seq)
{
    const struct ina_op *op = &ts->op[handle];
    return op->divisor && !op->exponents && seq - op->first >= op->ahead;
}

/* Exponent that the values of packet seq are encoded with, where it is agreed; else 0. */
static inline int ina_tensors_agreed(const struct ina_tensors *ts, uint32_t handle, uint64_t seq)
{
    const struct ina_op *op = &ts->op[handle];
    const uint64_t p = seq - op->first;
    return op->exponents && p >= op->ahead ? ts->agreed[ina_tensors_exponent_at(ts, op, p - op->ahead)] : 0;
}

enum ina_packet_status { INA_PACKET_NONE, INA_PACKET_BLOCKED, INA_PACKET_READY };
/* State of packet seq. NONE: no tensor has it yet; BLOCKED: the exponent of its block is not agreed yet, or who contributes. Notes that its
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
    if (__builtin_expect(ts->waiting, 0) && ts->choice[own].part == INA_PART_CHOSEN && !ts->choice[own].decided)
        return INA_PACKET_BLOCKED;
    if (!times->started[own] && !(op->offer && ts->choice[own].state == INA_OFFER_ASK)) /* nobody here waits for what is only asked */
        times->started[own] = now ? now : 1;
    if (op->exponents && p >= op->ahead && ts->agreed[ina_tensors_exponent_at(ts, op, p - op->ahead)] == INA_EXP_UNKNOWN)
        return INA_PACKET_BLOCKED;
    return INA_PACKET_READY;
}

/* The exponent of a block of float32; prefetches the values that are needed next. */
static inline int ina_tensors_exponent_of_float32(const struct ina_tensors *ts, const struct ina_op *op, const struct ina_tensor *t,
                                                  uint64_t block)
{
    enum { AHEAD = 2048, LINE = 16 }; /* values ahead: the latency of memory, within the core's cache */
    const struct ina_place place = ina_tensors_place(ts, op, t, block);
    const float *x = (const float *)ina_tensors_in(op, t) + place.at;
    const uint64_t left = op->count - place.at;
    for (uint32_t i = AHEAD; i < AHEAD + ts->values && left > AHEAD + ts->values; i += 2 * LINE) {
        __builtin_prefetch(x + i);
        __builtin_prefetch(x + i + LINE);
    }
    return ina_codec_exponent(x, place.count);
}

/* Zeros behind the first `count` values of a packet. */
static inline void ina_tensors_fill(const struct ina_tensors *ts, uint8_t *wire, size_t count)
{
    if (count < ts->values)
        memset(wire + ina_lane_bytes(ts->lane, count), 0, ina_lane_bytes(ts->lane, ts->values - count));
}

/* Element `at` of a tensor of integers, which are as wide as the lane. */
static inline void *ina_tensors_integers(const struct ina_tensors *ts, const void *elements, uint64_t at)
{
    return (uint8_t *)elements + ina_lane_bytes(ts->lane, at);
}

/* Writes a block of floats with its exponent, and zeros behind. `check`, unless NULL: adds the words. */
static inline __attribute__((always_inline)) void ina_tensors_encode_values(const struct ina_tensors *ts, uint8_t *wire, const float *x,
                                                                            uint64_t count, int exponent, struct ina_check *check)
{
    if (check && count == ts->values && exponent != INA_EXP_NONFINITE) {
        ina_check_encode(ts->lane, check, wire, x, count, exponent, (int)ts->shift);
    } else {
        ina_codec_encode(ts->lane, wire, x, count, exponent, (int)ts->shift);
        ina_tensors_fill(ts, wire, count);
        if (check)
            ina_check_add(ts->lane, check, wire, ts->values);
    }
}

/* Writes the values of packet seq (none: wire is not touched); returns its exponent. `check`, unless NULL: adds the
 * words of the values, which there are then. */
static inline __attribute__((always_inline)) int ina_tensors_encode_with(const struct ina_tensors *ts, const struct ina_tensor *tensors,
                                                                         uint32_t handle, uint64_t seq, uint8_t *wire,
                                                                         struct ina_check *check)
{
    const struct ina_op *op = &ts->op[handle];
    const struct ina_tensor *t = &tensors[handle];
    const uint64_t p = seq - op->first, block = p - op->ahead;
    if (__builtin_expect(p < op->ahead || !op->exponents, 0)) {
        const int exponent = ina_tensors_encode_other(ts, tensors, handle, seq, wire);
        if (check)
            ina_check_add(ts->lane, check, wire, ts->values);
        return exponent;
    }
    if (__builtin_expect(ina_op_is_halves(op), 0))
        return ina_tensors_encode_halves(ts, op, t, p, wire, check);
    const struct ina_place place = ina_tensors_place(ts, op, t, block);
    ina_tensors_encode_values(ts, wire, (const float *)ina_tensors_in(op, t) + place.at, place.count,
                              ts->agreed[ina_tensors_exponent_at(ts, op, block)], check);
    return p < op->blocks ? ina_tensors_exponent_of_float32(ts, op, t, p) : INA_EXP_MIN;
}

/* Exponent in packet seq of a worker that sends no values in it: as the one that it would send with them. */
static inline int ina_tensors_announced(const struct ina_tensors *ts, const struct ina_tensor *tensors, uint32_t handle, uint64_t seq)
{
    const struct ina_op *op = &ts->op[handle];
    const uint64_t p = seq - op->first;
    if (op->divisor && !op->exponents && p >= op->ahead)
        return ina_tensors_exponent_of(ts, op, &tensors[handle], p - op->ahead) > ts->exponent ? INA_EXP_NONFINITE : INA_EXP_MIN;
    return ina_tensors_carries_exponent(op, p) ? ina_tensors_exponent_of(ts, op, &tensors[handle], p) : INA_EXP_MIN;
}

static inline int ina_tensors_encode(const struct ina_tensors *ts, const struct ina_tensor *tensors, uint32_t handle,
                                     uint64_t seq, uint8_t *wire)
{
    return ina_tensors_encode_with(ts, tensors, handle, seq, wire, NULL);
}

/* Received sums of a block. */
struct ina_sums {
    const uint8_t *wire;          /* NULL: there are none, or they are decoded */
    uint64_t block;
    int exponent;
    const float *decoded;         /* as in struct ina_result */
};

static inline struct ina_sums ina_tensors_sums(const struct ina_tensors *ts, uint32_t handle, uint64_t block, const uint8_t *wire)
{
    const struct ina_op *op = &ts->op[handle];
    return (struct ina_sums){wire, block, op->exponents ? ts->agreed[ina_tensors_exponent_at(ts, op, block)] : ts->exponent, NULL};
}

/* Adds the words of received values, and decodes a block of floats in the same pass: to its place in the tensor, or to `room` if its
 * own values are there, which are needed again if the words do not fit. Returns where; NULL: it is not decoded. */
enum { INA_TENSORS_MOST = 2048 }; /* values of a block */
enum { INA_TENSORS_ROOM = 256 /* values; two passes over a larger block take no longer than a copy of it */ };
static inline __attribute__((always_inline)) const float *ina_tensors_read(const struct ina_tensors *ts, const struct ina_tensor *tensors,
                                                                           uint32_t handle, uint64_t seq, const uint8_t *wire,
                                                                           float room[INA_TENSORS_ROOM], struct ina_check *check)
{
    const struct ina_op *op = &ts->op[handle];
    const struct ina_tensor *t = &tensors[handle];
    const uint64_t p = seq - op->first, block = p - op->ahead;
    const int apart = ina_tensors_in(op, t) != t->out;
    if (__builtin_expect(p >= op->ahead && op->exponents && !op->routed && !ina_op_is_halves(op), 1) && (apart || ts->values <= INA_TENSORS_ROOM)) {
        const struct ina_place place = ina_tensors_place(ts, op, t, block); /* a packet before the first block has none */
        const int exponent = ts->agreed[ina_tensors_exponent_at(ts, op, block)];
        float *decoded = apart ? (float *)t->out + place.at : room;
        if (__builtin_expect(place.count == ts->values, 1) && exponent != INA_EXP_NONFINITE) {
            ina_check_decode(ts->lane, check, decoded, wire, ts->values, exponent, (int)ts->shift, (int)op->divisor);
            return decoded;
        }
    }
    ina_check_add(ts->lane, check, wire, ts->values);
    return NULL;
}

/* Decodes a block of 16-bit floats. */
void ina_tensors_decode_halves(const struct ina_tensors *ts, const struct ina_op *op, const struct ina_tensor *t,
                               const struct ina_sums *sums, struct ina_worker_stats *stats);
/* Decodes a block to which this worker has to add its own values (ina_route_adds). 0: it is none. */
int ina_tensors_add_own(struct ina_tensors *ts, const struct ina_tensor *tensors, uint32_t handle, const struct ina_sums *sums,
                        struct ina_worker_stats *stats);

static inline void ina_tensors_decode(struct ina_tensors *ts, const struct ina_tensor *tensors, uint32_t handle,
                                      const struct ina_sums *sums, struct ina_worker_stats *stats)
{
    if (!sums->wire)
        return;
    const struct ina_op *op = &ts->op[handle];
    if (__builtin_expect(op->routed, 0) && ina_tensors_add_own(ts, tensors, handle, sums, stats))
        return;
    if (__builtin_expect(ina_op_is_halves(op), 0)) {
        ina_tensors_decode_halves(ts, op, &tensors[handle], sums, stats);
        return;
    }
    const struct ina_place place = ina_tensors_place(ts, op, &tensors[handle], sums->block);
    const uint64_t count = place.count, at = place.at;
    float *out = (float *)tensors[handle].out + at;
    if (sums->decoded && sums->decoded != out) {
        stats->flushed += ina_codec_replace(out, sums->decoded, count, sums->exponent, (int)ts->shift);
        return;
    }
    if (op->divisor)
        stats->flushed += ina_codec_flushed((const float *)ina_tensors_in(op, &tensors[handle]) + at, count, sums->exponent, (int)ts->shift);
    if (sums->decoded)
        return;
    if (op->divisor)
        ina_codec_decode(ts->lane, out, sums->wire, count, sums->exponent, (int)ts->shift, (int)op->divisor);
    else
        ina_codec_swap(ts->lane, ina_tensors_integers(ts, tensors[handle].out, at), sums->wire, count);
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
    if (with_exponent && result->checked && result->exponent < result->own)
        return INA_OUTCOME_CORRUPT;
    if (__builtin_expect(p >= op->ahead && result->wire && !result->floats && (op->exponents || !op->divisor), 1)) {
        *sums = ina_tensors_sums(ts, handle, p - op->ahead, result->wire);
        sums->decoded = result->decoded;
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
    stats->waits_for = 0;
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
        ina_tensors_decode(ts, tensors, handle, &sums, stats);
    return outcome;
}

#endif
