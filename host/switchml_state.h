/* Inside host/: the SwitchML worker's state as it lies in memory, behind one pointer:
 *
 *     struct state | slots | bitmap of ready slots | agreed exponents      the head: what decides what the worker does
 *     struct tail: statistics, start times, timers of the slots            the tail
 */
#ifndef INA_SWITCHML_STATE_H
#define INA_SWITCHML_STATE_H

#include "frame.h"
#include "protocol.h"
#include "rto.h"

enum slot_state { IDLE = 0, BLOCKED = 1, READY = 2, FLYING = 3 };
enum { FINGERPRINT_WORDS = 3, FINGERPRINT_BITS = 25, UNKNOWN = -128 };
static_assert((32u << FINGERPRINT_BITS) < 1u << 31, "fingerprints of 32 workers add up without overflow");

struct op {                       /* a tensor in flight */
    uint64_t first, packets, unanswered;
    uint64_t count, blocks;
    uint64_t ahead;               /* m: packets before the first block */
    uint32_t fingerprint[FINGERPRINT_WORDS];
    uint8_t dtype, average, is_inline, overflow;
    uint8_t opened, mismatch, reserved[2]; /* its open packet is answered; and the workers do not agree */
};

struct slot {
    uint64_t seq;                 /* the packet it sends next, or has in flight */
    uint32_t seen;                /* workers that the switch has seen of it, by its last pending reply */
    uint8_t state, op, has_seen, reserved;
};

struct state {
    struct ina_worker_config config;
    struct ina_frame_template frame;
    uint32_t slots_log2, shift;
    uint64_t next_seq;            /* packets given to tensors so far */
    uint64_t ops_begin, ops_open, ops_end; /* ordinals: oldest kept, oldest unfinished, next; handle = ordinal mod 64 */
    uint64_t fetched;             /* bit per handle: its event has been read */
    uint64_t done_begin, done_end;
    uint8_t done[INA_MAX_OPS];    /* handles in order of completion */
    struct op op[INA_MAX_OPS];
    uint32_t failed;              /* enum ina_error; 0: the job lives */
    uint32_t suspect;             /* 1: some tensor is a mismatch, an older one may be */
    uint32_t culprit_slot, culprit_tsi, missing, have_missing;
    /* then: struct slot [slots], uint64_t ready[words], int8_t agreed[INA_MAX_OPS][slots] */
};

struct tail {
    struct ina_worker_stats stats;
    uint64_t started[INA_MAX_OPS]; /* when the first packet could be sent */
    uint64_t last_rx;
    uint32_t cursor, reserved;    /* sending goes round the slots, so that none starves */
    struct ina_rto rto;
};

static inline size_t round_up(size_t n)
{
    return (n + 63) & ~(size_t)63;
}

static inline uint32_t ready_words(uint32_t slots)
{
    return (slots + 63) / 64;
}

static inline size_t head_size(uint32_t slots)
{
    return round_up(sizeof(struct state) + slots * sizeof(struct slot) + ready_words(slots) * 8
                    + (size_t)INA_MAX_OPS * slots);
}

static inline struct slot *slots_of(const struct state *st)
{
    return (struct slot *)(st + 1);
}

static inline uint64_t *ready_of(const struct state *st)
{
    return (uint64_t *)(slots_of(st) + st->config.slots);
}

static inline int8_t *agreed_of(const struct state *st, uint32_t op)
{
    return (int8_t *)(ready_of(st) + ready_words(st->config.slots)) + (size_t)op * st->config.slots;
}

static inline struct tail *tail_of(const struct state *st)
{
    return (struct tail *)((uint8_t *)st + head_size(st->config.slots));
}

static inline struct op *op_at(struct state *st, uint64_t ordinal)
{
    return &st->op[ordinal % INA_MAX_OPS];
}

static inline int has_exponents(const struct op *op)
{
    return op->dtype == INA_FLOAT32 && !op->is_inline;
}

static inline int has_values(const struct op *op, uint64_t p)
{
    return p == 0 || p >= op->ahead;
}

static inline uint64_t block_values(const struct state *st, const struct op *op, uint64_t block)
{
    const uint64_t left = op->count - block * st->config.values;
    return left < st->config.values ? left : st->config.values;
}

static inline void set_ready(struct state *st, uint32_t slot)
{
    ready_of(st)[slot / 64] |= 1ull << slot % 64;
}

static inline void clear_ready(struct state *st, uint32_t slot)
{
    ready_of(st)[slot / 64] &= ~(1ull << slot % 64);
}

#endif
