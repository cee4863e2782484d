/* Inside host/: the SwitchML worker's state as it lies in memory, behind one pointer:
 *
 *     struct state | slots | bitmap of ready slots | tensors in flight     the head: what decides what the worker does
 *     struct tail: statistics, start times, timers of the slots            the tail
 */
#ifndef INA_SWITCHML_STATE_H
#define INA_SWITCHML_STATE_H

#include "frame.h"
#include "protocol.h"
#include "rto.h"
#include "tensors.h"

enum slot_state { IDLE = 0, BLOCKED = 1, READY = 2, FLYING = 3 };

struct slot {
    uint64_t seq;                 /* the packet it sends next, or has in flight */
    uint32_t missing;             /* workers that a switch waits for, by the last pending reply that named some */
    uint8_t state, op, asked, reserved; /* asked: there was a pending reply */
};

struct state {
    struct ina_worker_config config;
    struct ina_frame_template frame;
    uint32_t slots_log2, reserved;
    /* then: struct slot [slots], uint64_t ready[words], struct ina_tensors */
};

struct tail {
    struct ina_worker_stats stats;
    struct ina_tensor_times times;
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

static inline size_t tensors_offset(uint32_t slots)
{
    return sizeof(struct state) + slots * sizeof(struct slot) + ready_words(slots) * 8;
}

static inline size_t head_size(uint32_t slots)
{
    return round_up(tensors_offset(slots) + ina_tensors_size(slots));
}

static inline struct slot *slots_of(const struct state *st)
{
    return (struct slot *)(st + 1);
}

static inline uint64_t *ready_of(const struct state *st)
{
    return (uint64_t *)(slots_of(st) + st->config.slots);
}

static inline struct ina_tensors *tensors_of(const struct state *st)
{
    return (struct ina_tensors *)((uint8_t *)st + tensors_offset(st->config.slots));
}

static inline struct tail *tail_of(const struct state *st)
{
    return (struct tail *)((uint8_t *)st + head_size(st->config.slots));
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
