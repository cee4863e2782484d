/* Inside host/: common functions of workers with slots, for protocols with the state layout
 *
 *     struct state (config, at) | struct slot [slots] | bitmap of ready slots | struct ina_tensors     the head
 *     struct tail (stats, times, rto)                                                                        the tail
 *
 * Included once those three structures are defined: layout, the bitmap, and the calls of struct ina_protocol that are the
 * tensors' and the timers' alone.
 */
#ifndef INA_SLOTS_H
#define INA_SLOTS_H

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

/* Computes the parts' offsets once. */
static inline void place(struct state *st)
{
    st->at.ready = (uint32_t)(sizeof(struct state) + st->config.slots * sizeof(struct slot));
    st->at.tensors = (uint32_t)tensors_offset(st->config.slots);
    st->at.tail = (uint32_t)head_size(st->config.slots);
}

static inline struct slot *slots_of(const struct state *st)
{
    return (struct slot *)(st + 1);
}

static inline uint64_t *ready_of(const struct state *st)
{
    return (uint64_t *)((uint8_t *)st + st->at.ready);
}

static inline struct ina_tensors *tensors_of(const struct state *st)
{
    return (struct ina_tensors *)((uint8_t *)st + st->at.tensors);
}

static inline struct tail *tail_of(const struct state *st)
{
    return (struct tail *)((uint8_t *)st + st->at.tail);
}

static inline void mark_ready(struct state *st, uint32_t slot)
{
    ready_of(st)[slot / 64] |= 1ull << slot % 64;
}

static inline void unmark_ready(struct state *st, uint32_t slot)
{
    ready_of(st)[slot / 64] &= ~(1ull << slot % 64);
}

/* Once round all slots with something to send. */
struct round {
    const uint64_t *ready;
    uint32_t words, word, left;
    uint64_t bits;
};

static inline struct round round_from(const struct state *st, uint32_t cursor)
{
    const uint64_t *ready = ready_of(st);
    const uint32_t words = ready_words(st->config.slots);
    return (struct round){ready, words, cursor / 64, words, ready[cursor / 64] & ~0ull << cursor % 64};
}

/* -1: there is none. */
static inline int round_next(struct round *round)
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

static inline uint64_t deadline(const struct state *st)
{
    return ina_tensors_deadline(tensors_of(st), &tail_of(st)->times, st->config.timeout_ps);
}

static inline uint64_t next_timer(const void *state)
{
    const struct state *st = state;
    if (tensors_of(st)->failed)
        return UINT64_MAX;
    const uint64_t timer = ina_rto_next(&tail_of(st)->rto), end = deadline(st);
    return timer < end ? timer : end;
}

static inline int next_handle(const void *state)
{
    return ina_tensors_next_handle(tensors_of(state));
}

static inline int events(void *state, struct ina_event *out, int max)
{
    return ina_tensors_events(tensors_of(state), &tail_of(state)->times, out, max);
}

#endif
