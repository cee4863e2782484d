/* Slots: a worker's window of packets, one in each slot, with timers; what protocols with such a window (switchml.c, atp.c)
 * share. Their state is one block:
 *
 *     struct ina_slots, the protocol's own fields | slots | bitmap of ready slots | struct ina_tensors     the head
 *     struct ina_slots_tail: statistics, start times, timers                                               the tail
 *
 * A protocol's state begins with struct ina_slots (`state` below is a pointer to it), and each of its slots with struct ina_slot.
 * The protocol writes and reads frames and says what becomes of a slot; layout, the job's end and the calls of struct
 * ina_protocol that are the same for all are here.
 */
#ifndef INA_SLOTS_H
#define INA_SLOTS_H

#include "protocol.h"
#include "rto.h"
#include "tensors.h"

enum { INA_MAX_SLOTS = 8192 };

struct ina_slots {
    struct ina_worker_config config;
    struct { uint32_t slots, stride, ready, tensors, tail, reserved; } at; /* bytes from here to the parts, and between slots */
};

enum ina_slot_state { IDLE = 0, BLOCKED = 1, READY = 2, FLYING = 3 };

struct ina_slot {
    uint64_t seq;                 /* the packet it sends next, or has in flight, or had last */
    uint32_t missing;             /* workers that a switch or server waits for, by its last pending reply */
    uint8_t state, op, asked, reserved; /* enum ina_slot_state; handle of its tensor; 1: there was a pending reply */
};

struct ina_slots_tail {
    struct ina_worker_stats stats;
    struct ina_tensor_times times;
    uint32_t cursor, reserved;    /* sending goes round the slots, so that none starves */
    struct ina_rto rto;
};

struct ina_slots_shape {          /* of a protocol's state */
    size_t state, slot;           /* bytes of its structures */
    uint32_t max_workers, last_life;
};

int ina_slots_valid(const struct ina_slots_shape *shape, const struct ina_worker_config *config); /* 1: but for the protocol's own fields */
size_t ina_slots_head_size(const struct ina_slots_shape *shape, const struct ina_worker_config *config);
size_t ina_slots_state_size(const struct ina_slots_shape *shape, const struct ina_worker_config *config);
/* Clears the state and sets what is described above; exponent, floats: of ina_tensors_init. The configuration is valid. */
void ina_slots_init(void *state, const struct ina_slots_shape *shape, const struct ina_worker_config *config,
                    int32_t exponent, uint32_t floats);

/* Copies the timers' estimates to the statistics. */
void ina_slots_publish_rto(struct ina_slots_tail *tail);
/* The job is over. Remembers the oldest unanswered packet of the tensor, which fails first. */
void ina_slots_fail(void *state, uint32_t code, uint32_t handle);
/* Stops the timer of a slot with a packet in flight. 0, or -ENOENT: it has none. */
int ina_slots_expire(void *state, uint32_t index);

/* As in struct ina_protocol. */
int ina_slots_next_handle(const void *state);
uint64_t ina_slots_next_timer(const void *state);
int ina_slots_abort(void *state, uint32_t code, uint64_t now);
int ina_slots_events(void *state, struct ina_event *events, int max);

/* ---- per packet, inline ------------------------------------------------------------------------------------------ */

static inline const struct ina_slots *ina_slots_of(const void *state)
{
    return state;
}

static inline struct ina_slot *ina_slots_slot(const void *state, uint32_t index)
{
    return (struct ina_slot *)((uint8_t *)state + ina_slots_of(state)->at.slots + (size_t)index * ina_slots_of(state)->at.stride);
}

static inline uint64_t *ina_slots_ready(const void *state)
{
    return (uint64_t *)((uint8_t *)state + ina_slots_of(state)->at.ready);
}

static inline struct ina_tensors *ina_slots_tensors(const void *state)
{
    return (struct ina_tensors *)((uint8_t *)state + ina_slots_of(state)->at.tensors);
}

static inline struct ina_slots_tail *ina_slots_tail(const void *state)
{
    return (struct ina_slots_tail *)((uint8_t *)state + ina_slots_of(state)->at.tail);
}

static inline uint32_t ina_slots_words(uint32_t slots)
{
    return (slots + 63) / 64;
}

static inline void ina_slots_mark(void *state, uint32_t index)
{
    ina_slots_ready(state)[index / 64] |= 1ull << index % 64;
}

static inline void ina_slots_unmark(void *state, uint32_t index)
{
    ina_slots_ready(state)[index / 64] &= ~(1ull << index % 64);
}

static inline uint64_t ina_slots_deadline(const void *state)
{
    return ina_tensors_deadline(ina_slots_tensors(state), &ina_slots_tail(state)->times, ina_slots_of(state)->config.timeout_ps);
}

/* 1: the job lives; fails it where a tensor's deadline is over. */
static inline int ina_slots_alive(void *state, uint64_t now)
{
    struct ina_tensors *ts = ina_slots_tensors(state);
    if (!ts->failed && ina_slots_deadline(state) <= now)
        ina_slots_fail(state, INA_ERR_TIMEOUT, ina_tensors_oldest(ts));
    return !ts->failed;
}

/* A slot whose timer is over, counted as a time-out or as a probe; -1: there is none. */
static inline int ina_slots_expired(void *state, uint64_t now, int *probe)
{
    struct ina_slots_tail *tail = ina_slots_tail(state);
    const int index = ina_rto_expired(&tail->rto, now, probe);
    if (index >= 0) {
        tail->stats.timeouts += !*probe;
        tail->stats.probes += (uint64_t)*probe;
    }
    return index;
}

/* Once round all slots that are marked. */
struct ina_slots_round {
    const uint64_t *ready;
    uint32_t words, word, left;
    uint64_t bits;
};

static inline struct ina_slots_round ina_slots_round_from(const void *state, uint32_t cursor)
{
    const uint64_t *ready = ina_slots_ready(state);
    const uint32_t words = ina_slots_words(ina_slots_of(state)->config.slots);
    return (struct ina_slots_round){ready, words, cursor / 64, words, ready[cursor / 64] & ~0ull << cursor % 64};
}

/* -1: there is none. */
static inline int ina_slots_round_next(struct ina_slots_round *round)
{
    for (; __builtin_expect(!round->bits, 0); round->left--) {
        if (!round->left)
            return -1;
        round->word = round->word + 1 < round->words ? round->word + 1 : 0;
        round->bits = round->ready[round->word];
    }
    const int index = (int)(round->word * 64 + (uint32_t)__builtin_ctzll(round->bits));
    round->bits &= round->bits - 1;
    return index;
}

#endif
