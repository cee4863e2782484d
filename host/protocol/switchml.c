/* The SwitchML worker (NSDI'21 §3.5 - §3.7, with the corrections of docs/design/protocol.md).
 *
 * Packets are numbered over the life of the job. Packet number q travels in slot q mod slots, set (q / slots) & 1, and is
 * sent when packet q - slots has its result, so each slot is a machine of its own:
 *
 *     IDLE ──submit──> BLOCKED ──exponent agreed──> READY ──sent──> FLYING ──result──> IDLE | BLOCKED | READY
 *                                                     ^───time-out───┘
 *
 * What a packet carries and what its result means: tensors.h.
 */
#include "frame.h"
#include "protocols.h"
#include "slots.h"

#include <errno.h>
#include <string.h>

struct state {                    /* slots.h; its slots are struct ina_slot */
    struct ina_slots base;
    struct ina_frame_template frame;
    uint32_t slots_log2, reserved;
};

static const struct ina_slots_shape shape = {
    .state = sizeof(struct state), .slot = sizeof(struct ina_slot), .max_workers = INA_MAX_WORKERS, .last_life = 255};

enum { SHARDS };
static const struct ina_option options[] = {
    [SHARDS] = {"shards", "of the switch: packets of slot s go to its UDP port + s mod shards", 1, 16, 1, .power_of_two = 1},
    {0},
};

static inline struct ina_slot *slots_of(const struct state *st)
{
    return (struct ina_slot *)(st + 1);
}

static int valid(const struct ina_worker_config *c)
{
    return ina_slots_valid(&shape, c) && ina_options_valid(options, c) && !(c->peer.port & (ina_option(options, c, SHARDS) - 1));
}

static size_t state_size(const struct ina_worker_config *config)
{
    return valid(config) ? ina_slots_state_size(&shape, config) : 0;
}

static size_t stats_offset(const struct ina_worker_config *config)
{
    return valid(config) ? ina_slots_head_size(&shape, config) : 0;
}

static uint32_t frame_size(const struct ina_worker_config *config)
{
    return INA_WIRE_PAYLOAD + 4 * config->values;
}

static int init(void *state, const struct ina_worker_config *config, uint64_t now)
{
    struct state *st = state;
    (void)now; /* nothing starts before a tensor comes */
    if (!valid(config))
        return -EINVAL;
    ina_slots_init(st, &shape, config, INA_EXP_AGREED, 0);
    ina_frame_prepare(&st->frame, config, (uint32_t)ina_option(options, config, SHARDS));
    st->slots_log2 = (uint32_t)__builtin_ctz(config->slots);
    for (uint32_t i = 0; i < config->slots; i++)
        slots_of(st)[i].seq = config->first_packet + ((i - config->first_packet) & (config->slots - 1));
    return 0;
}

/* Next state of the slot, after the packet before seq is answered, or a tensor has come. */
static inline void settle(struct state *st, uint32_t index, uint64_t now)
{
    struct ina_slot *slot = &slots_of(st)[index];
    uint32_t handle = slot->op;
    enum ina_slot_state next = IDLE;
    switch (ina_tensors_status(ina_slots_tensors(st), &ina_slots_tail(st)->times, slot->seq, &handle, now)) {
    case INA_PACKET_NONE: break;
    case INA_PACKET_BLOCKED: next = BLOCKED; break;
    case INA_PACKET_READY: next = READY; break;
    }
    slot->missing = 0;
    slot->state = (uint8_t)next;
    slot->op = (uint8_t)handle;
    slot->asked = 0;
    if (next == READY)
        ina_slots_mark(st, index);
    else
        ina_slots_unmark(st, index);
}

static int submit(void *state, const struct ina_tensor *tensors, int handle, uint64_t now)
{
    struct state *st = state;
    struct ina_tensors *ts = ina_slots_tensors(st);
    const uint64_t first = ts->next_seq;
    const int result = ina_tensors_submit(ts, &ina_slots_tail(st)->times, tensors, handle);
    /* A slot without work waits at the next packet that is its own: one of those that have just come. */
    for (uint64_t seq = first; seq < ts->next_seq && seq < first + st->base.config.slots; seq++) {
        const uint32_t index = (uint32_t)(seq & (st->base.config.slots - 1));
        if (slots_of(st)[index].state == IDLE)
            settle(st, index, now);
    }
    return result;
}

/* ---- sending ----------------------------------------------------------------------------------------------------- */

/* Writes the slot's packet into pkt and starts its timer. 0, or -1: no room in pkt. */
static inline __attribute__((always_inline)) int write_packet(struct state *st, const struct ina_tensor *tensors,
                                                              struct ina_packet *pkt, uint32_t index, uint32_t type, int with_values,
                                                              struct ina_rto_run *run, uint64_t now)
{
    struct ina_slots_tail *tail = ina_slots_tail(st);
    struct ina_slot *slot = &slots_of(st)[index];
    const uint64_t seq = slot->seq;
    if (pkt->len + pkt->tailroom < ina_frame_length(&st->frame, with_values))
        return -1;
    if (__builtin_expect(slot->state == FLYING, 0))
        tail->stats.retransmissions++;
    slot->state = FLYING;
    ina_slots_unmark(st, index);
    ina_rto_add(&tail->rto, run, index, now);
    struct ina_wire_frame *frame =
        ina_frame_write(pkt, &st->frame, type, with_values, (uint32_t)seq, index, (int)(seq >> st->slots_log2 & 1));
    frame->e0 = (int8_t)ina_tensors_encode(ina_slots_tensors(st), tensors, slot->op, seq, frame->payload);
    return 0;
}

static inline enum ina_contents contents_of(const struct state *st, uint32_t index)
{
    const struct ina_slot *slot = &slots_of(st)[index];
    return ina_tensors_contents(ina_slots_tensors(st), slot->op, slot->seq);
}

/* Writes one packet of any kind. */
static __attribute__((noinline)) int transmit(struct state *st, const struct ina_tensor *tensors, struct ina_packet *pkt,
                                              uint32_t index, uint64_t now)
{
    const enum ina_contents contents = contents_of(st, index);
    struct ina_rto *rto = &ina_slots_tail(st)->rto;
    struct ina_rto_run run = ina_rto_begin(rto);
    const int result = write_packet(st, tensors, pkt, index, contents == INA_CONTENTS_MAX ? INA_WIRE_MAXIMUM : INA_WIRE_DATA,
                                    contents != INA_CONTENTS_NONE, &run, now);
    ina_rto_end(rto, &run);
    return result;
}

/* Packets of the slots that are ready, as many as there is room for. Most carry values to be added. */
static int transmit_all(struct state *st, const struct ina_tensor *tensors, struct ina_packet *pkts, int n, uint64_t now)
{
    struct ina_slots_tail *tail = ina_slots_tail(st);
    struct ina_slots_round round = ina_slots_round_from(st, tail->cursor);
    struct ina_rto_run run = ina_rto_begin(&tail->rto);
    uint64_t bytes = 0;
    uint32_t cursor = tail->cursor;
    int filled = 0;
    for (int index; filled < n && (index = ina_slots_round_next(&round)) >= 0; filled++) {
        int result;
        if (__builtin_expect(contents_of(st, (uint32_t)index) == INA_CONTENTS_SUM, 1)) {
            result = write_packet(st, tensors, &pkts[filled], (uint32_t)index, INA_WIRE_DATA, 1, &run, now);
        } else {
            ina_rto_end(&tail->rto, &run);
            result = transmit(st, tensors, &pkts[filled], (uint32_t)index, now);
            run = ina_rto_begin(&tail->rto);
        }
        if (result < 0)
            break;
        bytes += pkts[filled].len;
        cursor = ((uint32_t)index + 1) & (st->base.config.slots - 1);
    }
    ina_rto_end(&tail->rto, &run);
    tail->cursor = cursor;
    tail->stats.tx_packets += (uint64_t)filled;
    tail->stats.tx_bytes += bytes;
    return filled;
}

static int frames_to_send(void *state, const struct ina_tensor *tensors, struct ina_packet *pkts, int n, uint64_t now)
{
    struct state *st = state;
    if (!ina_slots_alive(st, now))
        return 0;
    for (int index, probe; (index = ina_slots_expired(st, now, &probe)) >= 0;)
        ina_slots_mark(st, (uint32_t)index);
    return transmit_all(st, tensors, pkts, n, now);
}

static int expire(void *state, uint32_t index, uint64_t now)
{
    struct state *st = state;
    (void)now;
    const int result = ina_slots_expire(st, index);
    if (result == 0)
        ina_slots_mark(st, index);
    return result;
}

/* ---- receiving --------------------------------------------------------------------------------------------------- */

/* A result that the slot does not wait for: a duplicate, or older still. */
static __attribute__((noinline)) void stale(struct state *st, const struct ina_slot *slot, uint32_t index, uint32_t tsi, int pending,
                                            uint64_t now)
{
    struct ina_slots_tail *tail = ina_slots_tail(st);
    const uint64_t before = slot->seq - st->base.config.slots;
    if (!pending && slot->seq >= st->base.config.first_packet + st->base.config.slots && tsi == (uint32_t)before) {
        tail->stats.duplicates++;
        ina_rto_duplicate(&tail->rto, index, now);
        ina_slots_publish_rto(tail);
    } else {
        tail->stats.drop_stale++;
    }
}

static __attribute__((noinline)) void wait_for_others(struct state *st, struct ina_slot *slot, const struct ina_frame_view *view,
                                                      uint64_t now)
{
    struct ina_slots_tail *tail = ina_slots_tail(st);
    tail->stats.pending_replies++;
    tail->times.last_rx = now;
    slot->asked = 1;
    if (view->missing) /* a complete leaf does not know whom a switch above it misses: keeps that switch's bitmap */
        slot->missing = view->missing;
    ina_slots_unmark(st, view->slot);
    ina_rto_pending(&tail->rto, view->slot, now);
    ina_slots_publish_rto(tail);
}

/* The workers do not agree: the slot stays where it is, for good. */
static __attribute__((noinline)) void disagree(struct state *st, uint32_t index, int failing, uint64_t now)
{
    struct ina_slots_tail *tail = ina_slots_tail(st);
    tail->times.last_rx = now;
    if (failing >= 0)
        ina_slots_fail(st, INA_ERR_MISMATCH, (uint32_t)failing);
    slots_of(st)[index].state = BLOCKED;
    ina_slots_unmark(st, index);
    ina_rto_stop(&tail->rto, index);
}

/* A slot's packet has its result: sets the next state of the slot, and of another one, in which the block `unblocked` may
 * wait for its exponent. */
static __attribute__((noinline)) void go_on(struct state *st, uint32_t index, uint64_t unblocked, uint64_t now)
{
    struct ina_slot *slots = slots_of(st);
    const uint32_t other = (uint32_t)(unblocked & (st->base.config.slots - 1));
    slots[index].state = IDLE;
    if (unblocked != UINT64_MAX && slots[other].state == BLOCKED && slots[other].seq == unblocked)
        settle(st, other, now);
    settle(st, index, now);
}

static __attribute__((noinline)) int reply(struct state *st, const struct ina_tensor *tensors, struct ina_packet *pkt,
                                           uint32_t index, uint64_t now)
{
    struct ina_worker_stats *stats = &ina_slots_tail(st)->stats;
    if (slots_of(st)[index].state != READY || transmit(st, tensors, pkt, index, now) < 0)
        return 0;
    stats->tx_packets++;
    stats->tx_bytes += pkt->len;
    return 1;
}

/* Handles a frame of this job; 1: it is now one to send back. Inlined twice: most frames are results with values, which need
 * fewer checks. */
static inline __attribute__((always_inline)) int take_frame(struct state *st, const struct ina_tensor *tensors,
                                                            struct ina_packet *pkt, const struct ina_frame_view view,
                                                            struct ina_rto_burst *burst, uint64_t now)
{
    struct ina_slots_tail *tail = ina_slots_tail(st);
    struct ina_tensors *ts = ina_slots_tensors(st);
    struct ina_slot *slot = &slots_of(st)[view.slot];
    const uint64_t seq = slot->seq;
    const uint32_t handle = slot->op;
    if (__builtin_expect(ts->failed || slot->state != FLYING || view.tsi != (uint32_t)seq
                         || view.set != (seq >> st->slots_log2 & 1), 0)) {
        stale(st, slot, view.slot, view.tsi, view.pending, now);
        return 0;
    }
    if (view.pending) {
        const struct ina_frame_view copy = view;
        wait_for_others(st, slot, &copy, now);
        return 0;
    }
    if (__builtin_expect(view.maximum != (ina_tensors_contents(ts, handle, seq) == INA_CONTENTS_MAX), 0)) {
        tail->stats.drop_malformed++;
        return 0;
    }
    const struct ina_result result = {view.with_values ? view.values : NULL, view.e0, view.overflow, 0};
    struct ina_sums sums;
    uint64_t unblocked;
    int failing;
    switch (ina_tensors_account(ts, tensors, handle, seq, &result, &tail->stats, &sums, &unblocked, &failing)) {
    case INA_OUTCOME_OK: break;
    case INA_OUTCOME_MISMATCH: disagree(st, view.slot, failing, now); return 0;
    default: tail->stats.drop_malformed++; return 0;
    }

    ina_rto_answered(&tail->rto, burst, view.slot);
    slot->seq = seq + st->base.config.slots;
    if (__builtin_expect(unblocked == slot->seq, 1)) { /* the block whose exponent is known now is the slot's own next one */
        slot->state = READY;
        slot->missing = slot->asked = 0;
        ina_slots_mark(st, view.slot);
    } else {
        go_on(st, view.slot, unblocked, now);
    }
    ina_tensors_decode(ts, tensors, handle, &sums);
    return __builtin_expect(st->base.config.reply_in_place, 0) ? reply(st, tensors, pkt, view.slot, now) : 0;
}

static __attribute__((noinline)) int receive_other(struct state *st, const struct ina_tensor *tensors, struct ina_packet *pkt,
                                                   struct ina_rto_burst *burst, uint64_t now)
{
    struct ina_frame_view view;
    switch (ina_frame_parse_any(&view, pkt, &st->frame, &st->base.config)) {
    case INA_FRAME_OK: return take_frame(st, tensors, pkt, view, burst, now);
    case INA_FRAME_FOREIGN: ina_slots_tail(st)->stats.drop_foreign++; return 0;
    default: ina_slots_tail(st)->stats.drop_malformed++; return 0;
    }
}

static int receive(void *state, const struct ina_tensor *tensors, struct ina_packet *pkts, int n, uint64_t now)
{
    struct state *st = state;
    struct ina_slots_tail *tail = ina_slots_tail(st);
    struct ina_rto_burst burst = {.since = UINT64_MAX};
    uint64_t bytes = 0;
    int replies = 0;
    for (int i = 0; i < n; i++) {
        struct ina_packet *pkt = &pkts[i];
        struct ina_frame_view view;
        bytes += pkt->len;
        if (ina_frame_is_result(&view, pkt, &st->frame) ? take_frame(st, tensors, pkt, view, &burst, now)
                                                        : receive_other(st, tensors, pkt, &burst, now))
            pkts[replies++] = *pkt;
    }
    tail->stats.rx_packets += (uint64_t)n;
    tail->stats.rx_bytes += bytes;
    if (burst.results) {
        tail->times.last_rx = now;
        ina_rto_results(&tail->rto, &burst, now);
        ina_slots_publish_rto(tail);
    }
    return replies;
}

const struct ina_protocol ina_switchml = {
    .name = "switchml",
    .reductions = 1 << INA_SUM | 1 << INA_MAX,
    .max_workers = INA_MAX_WORKERS,
    .options = options,
    .state_size = state_size,
    .stats_offset = stats_offset,
    .init = init,
    .next_handle = ina_slots_next_handle,
    .submit = submit,
    .receive = receive,
    .frames_to_send = frames_to_send,
    .next_timer = ina_slots_next_timer,
    .expire = expire,
    .abort = ina_slots_abort,
    .events = ina_slots_events,
    .frame_size = frame_size,
};
