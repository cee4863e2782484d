/* Slots: a worker's window of packets, one in each slot, with timers; what protocols with such a window (switchml.c, atp.c)
 * share. Their state is one block:
 *
 *     struct ina_slots, the protocol's own fields | slots, and more of each | bitmap of ready slots | struct ina_tensors | struct ina_keyed     the head
 *     struct ina_slots_tail: statistics, start times, timers                                               the tail
 *
 * A protocol's state begins with struct ina_slots (`state` below is a pointer to it), and each of its slots with struct ina_slot.
 * The protocol writes and reads frames and says what becomes of a slot; layout, the job's end and the calls of struct
 * ina_protocol that are the same for all are here.
 */
#ifndef INA_SLOTS_H
#define INA_SLOTS_H

#include "keyed.h"
#include "protocol.h"
#include "rto.h"
#include "tensors.h"

enum { INA_MAX_SLOTS = 8192 };

struct ina_slots {
    struct ina_worker_config config;
    struct { uint32_t slots, stride, ready, tensors, keyed, tail; } at; /* bytes from here to the parts, and between slots */
};

enum ina_slot_state { IDLE = 0, BLOCKED = 1, READY = 2, FLYING = 3 };

struct ina_slot {
    uint64_t seq;                 /* the packet it sends next, or has in flight, or had last */
    uint32_t missing;             /* workers that a switch or server waits for, by its last pending reply */
    uint8_t state, op;            /* enum ina_slot_state; handle of its tensor */
    uint8_t asked : 1, set : 1;   /* there was a pending reply; SwitchML: set of the packet, the other one for each next packet */
    uint8_t spoilt : 6;           /* results of this packet whose check words do not fit, each of another transmission */
    int8_t exponent;              /* that its packet told: this worker's own */
};

struct ina_slots_tail {
    struct ina_worker_stats stats;
    struct ina_tensor_times times;
    uint64_t latest;              /* ATP: largest number of a packet, sent once, that has its result */
    uint32_t cursor, reserved;    /* sending goes round the slots, so that none starves */
    struct ina_rto rto;
};

struct ina_slots_shape {          /* of a protocol's state */
    size_t state, slot, extra;    /* bytes of its structures; extra: what it has for each slot behind all slots */
    uint32_t max_workers, last_life;
    const struct ina_option *options; /* the protocol's; `check` is the index of that option */
    uint32_t check;
};

int ina_slots_valid(const struct ina_slots_shape *shape, const struct ina_worker_config *config); /* 1: but for fields that only the protocol reads */
size_t ina_slots_head_size(const struct ina_slots_shape *shape, const struct ina_worker_config *config);
size_t ina_slots_state_size(const struct ina_slots_shape *shape, const struct ina_worker_config *config);
/* Clears the state and sets what is described above; exponent, floats: of ina_tensors_init. The configuration is valid. */
void ina_slots_init(void *state, const struct ina_slots_shape *shape, const struct ina_worker_config *config,
                    int32_t exponent, uint32_t floats);

/* Copies the timers' estimates to the statistics. */
void ina_slots_publish_rto(struct ina_slots_tail *tail);
/* A pending reply: notes whom this worker waits for. */
void ina_slots_wait_for(void *state, uint32_t missing);
/* The job is over. Remembers the oldest unanswered packet of the tensor, which fails first. */
void ina_slots_fail(void *state, uint32_t code, uint32_t handle);
/* A result whose values do not have its check words. 1: the caller asks for it again; 0: it has asked already, or the job is over,
 * since this is the third time: the sum itself is wrong. */
int ina_slots_spoilt(void *state, uint32_t index);
/* A switch speaks another wire version: the job is over. */
void ina_slots_refused(void *state, uint32_t version);
/* The slot to probe: that with the lowest number of those whose packets were sent before the probe was due; its timer is off. */
int ina_slots_lowest(void *state);
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

/* Only with check words of mode keyed. */
static inline const struct ina_keyed *ina_slots_keyed(const void *state)
{
    return (const struct ina_keyed *)((const uint8_t *)state + ina_slots_of(state)->at.keyed);
}

/* Packet seq, for its tag. A server, which checks floats, knows only the bits of its number that are on the wire. */
static inline struct ina_keyed_packet ina_slots_keyed_packet(const void *state, uint64_t seq, uint32_t handle, int floats)
{
    const struct ina_tensors *ts = ina_slots_tensors(state);
    const int agreed = !floats && ina_tensors_is_agreed(ts, handle, seq);
    return (struct ina_keyed_packet){.number = floats ? seq & INA_KEYED_FLOATS : seq, .kind = floats ? INA_CHECK_FLOATS : INA_CHECK_INTEGERS, .agreed = agreed,
                                     .exponent = agreed ? ina_tensors_agreed(ts, handle, seq) : 0};
}

/* Tag of this worker's packet seq, whose values are written. */
struct ina_check ina_slots_tag(const void *state, const struct ina_tensor *tensors, uint64_t seq, uint32_t handle, int floats,
                               const uint8_t *wire);
/* 1: the sums are those of all workers' values. */
int ina_slots_keyed_fits(const void *state, uint64_t seq, uint32_t handle, int floats, struct ina_check sum, int overflow,
                         const uint8_t *wire);

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

static inline int ina_slots_marked(const void *state, uint32_t index)
{
    return (int)(ina_slots_ready(state)[index / 64] >> index % 64 & 1);
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

/* Counts a repetition, which is sent now, by its reason. */
static inline void ina_slots_repeated(struct ina_slots_tail *tail, uint32_t index)
{
    const uint8_t kind = tail->rto.slot[index].kind;
    tail->stats.retransmissions++;
    tail->stats.timeouts += kind == INA_RTO_TIMEOUT;
    tail->stats.probes += kind == INA_RTO_PROBE;
    tail->stats.fast_resends += kind == INA_RTO_GAP;
}

/* A slot whose packet is to be sent again; -1: there is none. */
static inline int ina_slots_expired(void *state, uint64_t now)
{
    struct ina_slots_tail *tail = ina_slots_tail(state);
    int index = ina_rto_expired(&tail->rto, now);
    if (__builtin_expect(index == INA_RTO_LOWEST, 0))
        index = ina_slots_lowest(state);
    tail->stats.delays = tail->rto.delays;
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
