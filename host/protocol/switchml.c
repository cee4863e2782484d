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
#include "protocols.h"
#include "switchml_state.h"

#include <errno.h>
#include <string.h>

static int valid(const struct ina_worker_config *c)
{
    return c->workers >= 1 && c->workers <= INA_MAX_WORKERS && c->worker < c->workers && c->job <= 255
           && c->life && c->life <= 255 && c->slots >= 1 && c->slots <= 8192 && !(c->slots & (c->slots - 1)) && ina_wire_size_code(c->values) >= 0 && c->rto_min_ps
           && c->rto_min_ps <= c->rto_max_ps && c->timeout_ps && c->first_packet < 1ull << 63 && c->shards <= 16
           && !(c->shards & (c->shards - 1)) && (!c->shards || !(c->peer.port & (c->shards - 1)));
}

static size_t state_size(const struct ina_worker_config *config)
{
    return valid(config) ? round_up(head_size(config->slots) + sizeof(struct tail) + ina_rto_size(config->slots)) : 0;
}

static size_t stats_offset(const struct ina_worker_config *config)
{
    return valid(config) ? head_size(config->slots) : 0;
}

static uint32_t frame_size(const struct ina_worker_config *config)
{
    return INA_WIRE_PAYLOAD + 4 * config->values;
}

static void publish_rto(struct tail *tail)
{
    tail->stats.srtt_ps = tail->rto.srtt;
    tail->stats.rttvar_ps = tail->rto.rttvar;
    tail->stats.rto_ps = tail->rto.rto;
}

static int init(void *state, const struct ina_worker_config *config, uint64_t now)
{
    struct state *st = state;
    (void)now; /* nothing starts before a tensor comes */
    if (!valid(config))
        return -EINVAL;
    memset(st, 0, state_size(config));
    st->config = *config;
    place(st);
    ina_frame_prepare(&st->frame, config);
    st->slots_log2 = (uint32_t)__builtin_ctz(config->slots);
    ina_tensors_init(tensors_of(st), config, INA_EXP_AGREED, 0);
    struct slot *slots = slots_of(st);
    for (uint32_t i = 0; i < config->slots; i++)
        slots[i].seq = config->first_packet + ((i - config->first_packet) & (config->slots - 1));
    struct tail *tail = tail_of(st);
    ina_rto_init(&tail->rto, config->slots, config->rto_min_ps, config->rto_max_ps);
    publish_rto(tail);
    return 0;
}

/* Next state of the slot, after the packet before seq is answered, or a tensor has come. */
static inline void settle(struct state *st, uint32_t index, uint64_t now)
{
    struct slot *slot = &slots_of(st)[index];
    uint32_t handle = slot->op;
    enum slot_state next = IDLE;
    switch (ina_tensors_status(tensors_of(st), &tail_of(st)->times, slot->seq, &handle, now)) {
    case INA_PACKET_NONE: break;
    case INA_PACKET_BLOCKED: next = BLOCKED; break;
    case INA_PACKET_READY: next = READY; break;
    }
    slot->missing = 0;
    slot->state = (uint8_t)next;
    slot->op = (uint8_t)handle;
    slot->asked = 0;
    if (next == READY)
        mark_ready(st, index);
    else
        unmark_ready(st, index);
}

static int submit(void *state, const struct ina_tensor *tensors, int handle, uint64_t now)
{
    struct state *st = state;
    struct ina_tensors *ts = tensors_of(st);
    const uint64_t first = ts->next_seq;
    const int result = ina_tensors_submit(ts, &tail_of(st)->times, tensors, handle);
    /* A slot without work waits at the next packet that is its own: one of those that have just come. */
    for (uint64_t seq = first; seq < ts->next_seq && seq < first + st->config.slots; seq++) {
        const uint32_t index = (uint32_t)(seq & (st->config.slots - 1));
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
    struct tail *tail = tail_of(st);
    struct slot *slot = &slots_of(st)[index];
    const uint64_t seq = slot->seq;
    if (pkt->len + pkt->tailroom < ina_frame_length(&st->frame, with_values))
        return -1;
    if (__builtin_expect(slot->state == FLYING, 0))
        tail->stats.retransmissions++;
    slot->state = FLYING;
    unmark_ready(st, index);
    ina_rto_add(&tail->rto, run, index, now);
    struct ina_wire_frame *frame =
        ina_frame_write(pkt, &st->frame, type, with_values, (uint32_t)seq, index, (int)(seq >> st->slots_log2 & 1));
    frame->e0 = (int8_t)ina_tensors_encode(tensors_of(st), tensors, slot->op, seq, frame->payload);
    return 0;
}

static inline enum ina_contents contents_of(const struct state *st, uint32_t index)
{
    const struct slot *slot = &slots_of(st)[index];
    return ina_tensors_contents(tensors_of(st), slot->op, slot->seq);
}

/* Writes one packet of any kind. */
static __attribute__((noinline)) int transmit(struct state *st, const struct ina_tensor *tensors, struct ina_packet *pkt,
                                              uint32_t index, uint64_t now)
{
    const enum ina_contents contents = contents_of(st, index);
    struct ina_rto *rto = &tail_of(st)->rto;
    struct ina_rto_run run = ina_rto_begin(rto);
    const int result = write_packet(st, tensors, pkt, index, contents == INA_CONTENTS_MAX ? INA_WIRE_MAXIMUM : INA_WIRE_DATA,
                                    contents != INA_CONTENTS_NONE, &run, now);
    ina_rto_end(rto, &run);
    return result;
}

/* Packets of the slots that are ready, as many as there is room for. Most carry values to be added. */
static int transmit_all(struct state *st, const struct ina_tensor *tensors, struct ina_packet *pkts, int n, uint64_t now)
{
    struct tail *tail = tail_of(st);
    struct round round = round_from(st, tail->cursor);
    struct ina_rto_run run = ina_rto_begin(&tail->rto);
    uint64_t bytes = 0;
    uint32_t cursor = tail->cursor;
    int filled = 0;
    for (int index; filled < n && (index = round_next(&round)) >= 0; filled++) {
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
        cursor = ((uint32_t)index + 1) & (st->config.slots - 1);
    }
    ina_rto_end(&tail->rto, &run);
    tail->cursor = cursor;
    tail->stats.tx_packets += (uint64_t)filled;
    tail->stats.tx_bytes += bytes;
    return filled;
}

/* Bits that a pending reply may name: workers; of more than there are bits, the children of a switch. */
static uint32_t all_of(uint32_t workers)
{
    return workers < INA_BITMAP_WORKERS ? (1u << workers) - 1 : UINT32_MAX;
}

/* The job is over. Remembers the oldest unanswered packet of the tensor, which fails first. */
static void fail(struct state *st, uint32_t code, uint32_t handle)
{
    struct ina_tensors *ts = tensors_of(st);
    const struct slot *slots = slots_of(st);
    const struct ina_op *op = &ts->op[handle];
    uint64_t oldest = UINT64_MAX;
    for (uint32_t i = 0; ts->ops_open < ts->ops_end && i < st->config.slots; i++) {
        if (slots[i].state == IDLE || slots[i].seq >= oldest || slots[i].seq < op->first
            || slots[i].seq >= op->first + ina_tensors_packets(op))
            continue;
        oldest = slots[i].seq;
        ts->culprit = (struct ina_event){.slot = i, .tsi = (uint32_t)oldest, .have_missing = slots[i].asked,
                                         .missing = slots[i].missing & all_of(st->config.workers)};
    }
    ina_tensors_fail(ts, code, handle);
}

static int frames_to_send(void *state, const struct ina_tensor *tensors, struct ina_packet *pkts, int n, uint64_t now)
{
    struct state *st = state;
    struct tail *tail = tail_of(st);
    if (tensors_of(st)->failed)
        return 0;
    if (deadline(st) <= now) {
        fail(st, INA_ERR_TIMEOUT, ina_tensors_oldest(tensors_of(st)));
        return 0;
    }
    for (int index, probe; (index = ina_rto_expired(&tail->rto, now, &probe)) >= 0;) {
        mark_ready(st, (uint32_t)index);
        tail->stats.timeouts += !probe;
        tail->stats.probes += (uint64_t)probe;
    }
    return transmit_all(st, tensors, pkts, n, now);
}

static int expire(void *state, uint32_t index, uint64_t now)
{
    struct state *st = state;
    (void)now;
    if (tensors_of(st)->failed || index >= st->config.slots || slots_of(st)[index].state != FLYING)
        return -ENOENT;
    ina_rto_stop(&tail_of(st)->rto, index);
    mark_ready(st, index);
    return 0;
}

/* ---- receiving --------------------------------------------------------------------------------------------------- */

/* A result that the slot does not wait for: a duplicate, or older still. */
static __attribute__((noinline)) void stale(struct state *st, const struct slot *slot, uint32_t index, uint32_t tsi, int pending,
                                            uint64_t now)
{
    struct tail *tail = tail_of(st);
    const uint64_t before = slot->seq - st->config.slots;
    if (!pending && slot->seq >= st->config.first_packet + st->config.slots && tsi == (uint32_t)before) {
        tail->stats.duplicates++;
        ina_rto_duplicate(&tail->rto, index, now);
        publish_rto(tail);
    } else {
        tail->stats.drop_stale++;
    }
}

static __attribute__((noinline)) void wait_for_others(struct state *st, struct slot *slot, const struct ina_frame_view *view,
                                                      uint64_t now)
{
    struct tail *tail = tail_of(st);
    tail->stats.pending_replies++;
    tail->times.last_rx = now;
    slot->asked = 1;
    if (view->missing) /* a complete leaf does not know whom a switch above it misses: keeps that switch's bitmap */
        slot->missing = view->missing;
    unmark_ready(st, view->slot);
    ina_rto_pending(&tail->rto, view->slot, now);
    publish_rto(tail);
}

/* The workers do not agree: the slot stays where it is, for good. */
static __attribute__((noinline)) void disagree(struct state *st, uint32_t index, int culprit, uint64_t now)
{
    struct tail *tail = tail_of(st);
    tail->times.last_rx = now;
    if (culprit >= 0)
        fail(st, INA_ERR_MISMATCH, (uint32_t)culprit);
    slots_of(st)[index].state = BLOCKED;
    unmark_ready(st, index);
    ina_rto_stop(&tail->rto, index);
}

/* A slot's packet has its result: sets the next state of the slot, and of another one, in which the block `unblocked` may
 * wait for its exponent. */
static __attribute__((noinline)) void go_on(struct state *st, uint32_t index, uint64_t unblocked, uint64_t now)
{
    struct slot *slots = slots_of(st);
    const uint32_t other = (uint32_t)(unblocked & (st->config.slots - 1));
    slots[index].state = IDLE;
    if (unblocked != UINT64_MAX && slots[other].state == BLOCKED && slots[other].seq == unblocked)
        settle(st, other, now);
    settle(st, index, now);
}

static __attribute__((noinline)) int reply(struct state *st, const struct ina_tensor *tensors, struct ina_packet *pkt,
                                           uint32_t index, uint64_t now)
{
    struct ina_worker_stats *stats = &tail_of(st)->stats;
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
    struct tail *tail = tail_of(st);
    struct ina_tensors *ts = tensors_of(st);
    struct slot *slot = &slots_of(st)[view.slot];
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
    int culprit;
    switch (ina_tensors_account(ts, tensors, handle, seq, &result, &tail->stats, &sums, &unblocked, &culprit)) {
    case INA_OUTCOME_OK: break;
    case INA_OUTCOME_MISMATCH: disagree(st, view.slot, culprit, now); return 0;
    default: tail->stats.drop_malformed++; return 0;
    }

    ina_rto_answered(&tail->rto, burst, view.slot);
    slot->seq = seq + st->config.slots;
    if (__builtin_expect(unblocked == slot->seq, 1)) { /* the block whose exponent is known now is the slot's own next one */
        slot->state = READY;
        slot->missing = slot->asked = 0;
        mark_ready(st, view.slot);
    } else {
        go_on(st, view.slot, unblocked, now);
    }
    ina_tensors_decode(ts, tensors, handle, &sums);
    return __builtin_expect(st->config.reply_in_place, 0) ? reply(st, tensors, pkt, view.slot, now) : 0;
}

static __attribute__((noinline)) int receive_other(struct state *st, const struct ina_tensor *tensors, struct ina_packet *pkt,
                                                   struct ina_rto_burst *burst, uint64_t now)
{
    struct ina_frame_view view;
    switch (ina_frame_parse_any(&view, pkt, &st->frame, &st->config)) {
    case INA_FRAME_OK: return take_frame(st, tensors, pkt, view, burst, now);
    case INA_FRAME_FOREIGN: tail_of(st)->stats.drop_foreign++; return 0;
    default: tail_of(st)->stats.drop_malformed++; return 0;
    }
}

static int receive(void *state, const struct ina_tensor *tensors, struct ina_packet *pkts, int n, uint64_t now)
{
    struct state *st = state;
    struct tail *tail = tail_of(st);
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
        publish_rto(tail);
    }
    return replies;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static int abort_job(void *state, uint32_t code, uint64_t now)
{
    struct state *st = state;
    (void)now;
    if (!code)
        return -EINVAL;
    if (!tensors_of(st)->failed)
        fail(st, code, ina_tensors_oldest(tensors_of(st)));
    return 0;
}

const struct ina_protocol ina_switchml = {
    .name = "switchml",
    .reductions = 1 << INA_SUM | 1 << INA_MAX,
    .max_workers = INA_MAX_WORKERS,
    .state_size = state_size,
    .stats_offset = stats_offset,
    .init = init,
    .next_handle = next_handle,
    .submit = submit,
    .receive = receive,
    .frames_to_send = frames_to_send,
    .next_timer = next_timer,
    .expire = expire,
    .abort = abort_job,
    .events = events,
    .frame_size = frame_size,
};
