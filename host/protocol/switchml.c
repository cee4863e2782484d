/* The SwitchML worker (NSDI'21 §3.5 - §3.7, with the corrections of docs/design/protocol.md).
 *
 * Packets are numbered over the life of the job. Packet number q travels in slot q mod slots, in the other set than the slot's
 * packet before, and is sent when that one has its result, so each slot is a machine of its own:
 *
 *     IDLE ──submit──> BLOCKED ──exponent agreed──> READY ──sent──> FLYING ──result──> IDLE | BLOCKED | READY
 *                                                     ^───time-out───┘
 *
 * What a packet carries and what its result means: tensors.h. The same worker speaks THC, whose own reduction is a sum of what 4-bit
 * indices stand for (indices.h), OmniReduce, whose own reduction is a sum that passes over blocks of zeros (ahead.h), FPISA, whose
 * own reduction is a sum of floats, which are sent as they are, SwitchML with receivers, whose sums may have routes (route.h),
 * the program requantised, whose own reduction is a sum of lanes that comes back rounded (bytes.h), and the program quorum, whose switch
 * decides which workers a sum is of (enum ina_part).
 */
#include "ahead.h"
#include "bytes.h"
#include "frame.h"
#include "indices.h"
#include "protocols.h"
#include "offers.h"
#include "route.h"
#include "slots.h"

#include <errno.h>
#include <string.h>

struct state {                    /* slots.h; its slots are struct ina_slot, and a struct ina_ahead for each behind them */
    struct ina_slots base;
    struct ina_frame_template frame;
    uint8_t kinds[INA_CONTENTS_OFFER + 1], results[INA_CONTENTS_OFFER + 1]; /* by contents: of its packets, and of their results */
    uint64_t answered;            /* while packets wait for gates (route.h): all before are answered, or not this worker's */
};

static_assert((int)INA_WIRE_MOST_VALUES <= (int)INA_TENSORS_MOST, "a packet's values are a block");

enum { SHARDS, CHECK };
static const struct ina_option options[] = {
    [SHARDS] = {"shards", "of the switch: packets of slot s go to its UDP port + s mod shards", 1, 16, 1, .power_of_two = 1},
    [CHECK] = INA_CHECK_OPTION,
    {0},
};

static const struct ina_slots_shape shape = {
    .state = sizeof(struct state), .slot = sizeof(struct ina_slot), .extra = sizeof(struct ina_ahead),
    .max_workers = INA_MAX_WORKERS, .last_life = 255,
    .options = options, .check = CHECK};

static inline struct ina_slot *slots_of(const struct state *st)
{
    return (struct ina_slot *)(st + 1);
}

static inline struct ina_ahead *ahead_of(const struct state *st, uint32_t index)
{
    return (struct ina_ahead *)(slots_of(st) + st->base.config.slots) + index;
}

static int valid(const struct ina_worker_config *c)
{
    return ina_slots_valid(&shape, c) && !(c->peer.port & (ina_option(options, c, SHARDS) - 1));
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
    return INA_WIRE_PAYLOAD + (uint32_t)ina_lane_bytes(config->lane, config->values);
}

static uint32_t frame_size_routes(const struct ina_worker_config *config)
{
    return frame_size(config) + ina_kinds[INA_WIRE_TO].extra;
}

/* 1: its own reduction passes over blocks of zeros (ahead.h). */
static inline int looks_ahead(const struct state *st)
{
    return st->kinds[INA_CONTENTS_OWN] == INA_WIRE_ZEROS;
}

/* Sets the kinds in which contents travel, and come back: SwitchML's, and those that the program adds. */
static void choose_kinds(struct state *st, uint32_t program)
{
    for (uint32_t kind = 0; kind < INA_WIRE_KINDS; kind++) {
        const struct ina_kind *row = &ina_kinds[kind];
        if (!row->contributors || (row->program != INA_PROGRAM_SWITCHML && row->program != program))
            continue;
        const uint32_t contents = row->contributors == INA_CONTRIBUTORS_SOURCES    ? INA_CONTENTS_ROUTED
                                  : row->contributors == INA_CONTRIBUTORS_OFFERING ? INA_CONTENTS_OFFER
                                                                                   : INA_CONTENTS_SUM + row->reduction;
        st->kinds[contents] = (uint8_t)kind;
        st->results[contents] = row->result;
    }
    st->kinds[INA_CONTENTS_NONE] = st->results[INA_CONTENTS_NONE] = INA_WIRE_DATA;
}

static int init_as(struct state *st, const struct ina_worker_config *config, uint32_t program)
{
    if (!valid(config))
        return -EINVAL;
    ina_slots_init(st, &shape, config, INA_EXP_AGREED, 0);
    ina_frame_prepare(&st->frame, config, (uint32_t)ina_option(options, config, SHARDS), (uint32_t)ina_option(options, config, CHECK));
    for (uint32_t i = 0; i < config->slots; i++) {
        struct ina_slot *slot = &slots_of(st)[i];
        slot->seq = config->first_packet + ((i - config->first_packet) & (config->slots - 1));
        slot->set = slot->seq / config->slots & 1;
    }
    choose_kinds(st, program);
    if (st->kinds[INA_CONTENTS_ROUTED])
        ina_tensors_routes(ina_slots_tensors(st));
    if (st->kinds[INA_CONTENTS_OFFER])
        ina_tensors_offers(ina_slots_tensors(st));
    return 0;
}

/* All of this worker's packets before packet seq are answered. */
static int is_drained(struct state *st, uint64_t seq)
{
    const struct ina_slot *slots = slots_of(st);
    while (st->answered < seq && slots[st->answered & (st->base.config.slots - 1)].seq > st->answered)
        st->answered++;
    return st->answered == seq;
}

/* 1: packet seq waits for a gate, or is one and waits for the packets before (route.h). */
static __attribute__((noinline)) int waits_for_gate(struct state *st, uint32_t handle, uint64_t seq)
{
    const struct ina_tensors *ts = ina_slots_tensors(st);
    const uint64_t gate = ina_route_gate_before(ts, handle, seq);
    return (ina_route_is_gate(ts, handle, seq) && !is_drained(st, seq))
           || (gate != UINT64_MAX && slots_of(st)[gate & (st->base.config.slots - 1)].seq <= gate);
}

/* Passes over packets of which this worker is no member. */
static __attribute__((noinline)) void skip(struct state *st, const struct ina_tensor *tensors, struct ina_slot *slot)
{
    struct ina_tensors *ts = ina_slots_tensors(st);
    for (uint32_t handle = slot->op; slot->seq < ts->next_seq; slot->seq += st->base.config.slots, slot->set ^= 1) {
        if (slot->seq - ts->op[handle].first >= ina_tensors_packets(&ts->op[handle]))
            handle = ina_tensors_op_of(ts, slot->seq);
        if (!ts->op[handle].partial || (ina_route_of(ts, tensors, handle, slot->seq).members >> ts->worker & 1))
            break;
        ina_tensors_skip(ts, handle, &ina_slots_tail(st)->stats);
    }
}

/* Next state of the slot, after the packet before seq is answered, or a tensor has come. */
static inline void settle(struct state *st, const struct ina_tensor *tensors, uint32_t index, uint64_t now)
{
    struct ina_slot *slot = &slots_of(st)[index];
    struct ina_tensors *ts = ina_slots_tensors(st);
    if (__builtin_expect(slot->seq < ts->latest.until, 0))
        skip(st, tensors, slot);
    uint32_t handle = slot->op;
    enum ina_slot_state next = IDLE;
    switch (ina_tensors_status(ts, &ina_slots_tail(st)->times, slot->seq, &handle, now)) {
    case INA_PACKET_NONE: break;
    case INA_PACKET_BLOCKED: next = BLOCKED; break;
    case INA_PACKET_READY: next = READY; break;
    }
    if (__builtin_expect(slot->seq < ts->latest.until, 0) && next == READY && waits_for_gate(st, handle, slot->seq))
        next = BLOCKED;
    slot->missing = slot->spoilt = 0;
    slot->state = (uint8_t)next;
    slot->op = (uint8_t)handle;
    slot->asked = 0;
    if (next == READY)
        ina_slots_mark(st, index);
    else
        ina_slots_unmark(st, index);
}

/* Lets packets go that have waited for a gate: all that do, or only the gate that is due. */
static __attribute__((noinline)) void open_gates(struct state *st, const struct ina_tensor *tensors, int all, uint64_t now)
{
    const struct ina_tensors *ts = ina_slots_tensors(st);
    struct ina_slot *slots = slots_of(st);
    for (uint32_t i = 0; all && i < st->base.config.slots; i++)
        if (slots[i].state == BLOCKED && !(ts->op[slots[i].op].mismatch && slots[i].seq == ts->op[slots[i].op].first))
            settle(st, tensors, i, now);
    is_drained(st, ts->next_seq);
    const uint32_t index = (uint32_t)(st->answered & (st->base.config.slots - 1));
    if (slots[index].state == BLOCKED && slots[index].seq == st->answered && ina_route_is_gate(ts, slots[index].op, st->answered)
        && !ts->op[slots[index].op].mismatch) {
        settle(st, tensors, index, now);
        ina_slots_tail(st)->cursor = index; /* what is behind it may have to wait for it: it goes first */
    }
}

static uint64_t lowest(const struct state *st)
{
    uint64_t seq = UINT64_MAX;
    for (uint32_t i = 0; i < st->base.config.slots; i++)
        if (slots_of(st)[i].seq < seq)
            seq = slots_of(st)[i].seq;
    return seq;
}

static int submit(void *state, const struct ina_tensor *tensors, int handle, uint64_t now)
{
    struct state *st = state;
    struct ina_tensors *ts = ina_slots_tensors(st);
    const uint64_t first = ts->next_seq;
    const uint32_t reduction = tensors[handle].reduction;
    if (st->frame.check == INA_CHECK_KEYED && tensors[handle].part != INA_PART_PLAIN)
        return -EINVAL; /* who contributes is not in the tags */
    if (st->frame.check == INA_CHECK_KEYED
        && ((reduction != INA_SUM && !(reduction == INA_OWN && looks_ahead(st))) || ina_tensor_is_routed(&tensors[handle])))
        return -EINVAL; /* only sums have tags, and a tag of those without a part in them would say nothing to those without values */
    if (reduction == INA_OWN && tensors[handle].dtype != INA_INT32)
        return -EINVAL; /* indices; lanes; bits of floats; with exponents of their own, blocks could not be passed over */
    if (reduction == INA_OWN && st->kinds[INA_CONTENTS_OWN] == INA_WIRE_INDICES && st->base.config.workers > INA_LEVELS_WORKERS)
        return -EINVAL;
    const int result = ina_tensors_submit(ts, &ina_slots_tail(st)->times, tensors, handle);
    if (result >= 0 && ts->latest.from == first && ts->latest.until)
        st->answered = lowest(st);
    /* A slot without work waits at the next packet that is its own: one of those that have just come. */
    for (uint64_t seq = first; seq < ts->next_seq && seq < first + st->base.config.slots; seq++) {
        const uint32_t index = (uint32_t)(seq & (st->base.config.slots - 1));
        if (slots_of(st)[index].state == IDLE)
            settle(st, tensors, index, now);
    }
    if (ts->latest.until)
        open_gates(st, tensors, 0, now);
    return result;
}

/* ---- sending ----------------------------------------------------------------------------------------------------- */

static inline struct ina_check nonce(const struct state *st, uint32_t handle, uint64_t seq)
{
    return ina_check_nonce(st->frame.identity ^ seq, INA_CHECK_INTEGERS, ina_tensors_agreed(ina_slots_tensors(st), handle, seq));
}

/* Check words of a packet of zeros, which carries none of them. */
static __attribute__((noinline)) struct ina_check check_of_zeros(const struct state *st, const struct ina_tensor *tensors,
                                                                 uint32_t handle, uint64_t seq)
{
    switch (st->frame.check) {
    case INA_CHECK_OFF: return (struct ina_check){{0}};
    case INA_CHECK_KEYED: return ina_slots_tag(st, tensors, seq, handle, 0, ina_frame_zeros);
    default: return nonce(st, handle, seq);
    }
}

/* Check words of a packet to which this worker brings no values: of zeros; of the open packet, its fingerprint. */
static __attribute__((noinline)) struct ina_check check_of_none(const struct state *st, uint32_t handle, uint64_t seq)
{
    const struct ina_tensors *ts = ina_slots_tensors(st);
    const uint32_t *fingerprint = ts->fingerprint[handle];
    if (seq == ts->op[handle].first)
        return (struct ina_check){{fingerprint[0], fingerprint[1]}};
    return st->frame.check ? nonce(st, handle, seq) : (struct ina_check){{0}};
}

/* Writes the slot's packet into pkt and starts its timer. ahead: of a block of a stream, else NULL; route: of a packet for some. 0, or -1: no
 * room in pkt. */
static inline __attribute__((always_inline)) int write_packet(struct state *st, const struct ina_tensor *tensors,
                                                              struct ina_packet *pkt, uint32_t index, uint32_t kind, int with_values,
                                                              const struct ina_ahead *ahead, struct ina_route route,
                                                              struct ina_rto_run *run, uint64_t now)
{
    struct ina_slots_tail *tail = ina_slots_tail(st);
    struct ina_slot *slot = &slots_of(st)[index];
    const struct ina_kind *row = &ina_kinds[kind];
    const uint64_t seq = slot->seq;
    if (pkt->len + pkt->tailroom < INA_WIRE_PAYLOAD + row->extra + (with_values ? st->frame.bytes : 0))
        return -1; /* indices are packed in place */
    if (__builtin_expect(slot->state == FLYING, 0))
        ina_slots_repeated(tail, index);
    slot->state = FLYING;
    ina_slots_unmark(st, index);
    ina_rto_add(&tail->rto, run, index, now);
    struct ina_wire_frame *frame =
        ina_frame_write(pkt, &st->frame, kind, with_values, (uint32_t)seq, index, slot->set);
    const struct ina_tensors *ts = ina_slots_tensors(st);
    struct ina_check check = {{0}};
    if (row->contributors == INA_CONTRIBUTORS_SOURCES) {
        const struct ina_wire_receivers sets = {htonl(route.receivers), htonl(route.members)};
        memcpy(frame->payload, &sets, sizeof sets);
    }
    if (row->contributors == INA_CONTRIBUTORS_OFFERING) {
        const struct ina_choice *choice = &ts->choice[slot->op];
        const struct ina_wire_offer offer = {choice->state, choice->least, 0, htonl(choice->rivals), htonl(1u << ts->worker)};
        memcpy(frame->payload, &offer, sizeof offer);
        frame->e0 = INA_EXP_MIN;
    } else if (row->values == INA_VALUES_ZEROS) {
        check = check_of_zeros(st, tensors, slot->op, seq);
    } else if (row->contributors != INA_CONTRIBUTORS_ALL && !with_values) {
        check = check_of_none(st, slot->op, seq);
        frame->e0 = (int8_t)ina_tensors_announced(ts, tensors, slot->op, seq);
    } else if (st->frame.check == INA_CHECK_SUM && row->checked && row->words == INA_WORDS_INTEGERS && with_values) {
        check = nonce(st, slot->op, seq);
        frame->e0 = (int8_t)ina_tensors_encode_with(ts, tensors, slot->op, seq, frame->payload + row->extra, &check);
    } else {
        frame->e0 = (int8_t)ina_tensors_encode(ts, tensors, slot->op, seq, frame->payload + row->extra);
        if (row->words == INA_WORDS_INDICES) {
            if (st->frame.check)
                check = nonce(st, slot->op, seq);
            ina_indices_pack(frame->payload, ts->values, &check, st->frame.check != INA_CHECK_OFF);
        } else if (st->frame.check == INA_CHECK_KEYED && with_values) {
            check = ina_slots_tag(st, tensors, seq, slot->op, 0, frame->payload);
        }
    }
    slot->exponent = frame->e0;
    if (ahead)
        frame->e0 = (int8_t)ina_ahead_e0((uint32_t)((ahead->after - seq) / ts->window));
    ina_check_seal(&frame->check, st->frame.check, check, &frame->type_overflow_size, row->extra);
    return 0;
}

static inline enum ina_contents contents_of(const struct state *st, uint32_t index)
{
    const struct ina_slot *slot = &slots_of(st)[index];
    return ina_tensors_contents(ina_slots_tensors(st), slot->op, slot->seq);
}

static inline struct ina_route route_of(const struct state *st, const struct ina_tensor *tensors, uint32_t index)
{
    const struct ina_slot *slot = &slots_of(st)[index];
    return ina_route_of(ina_slots_tensors(st), tensors, slot->op, slot->seq);
}

/* Writes a packet of values to be added, as most are: its kind is known here, so the compiler leaves out what others need. */
static inline __attribute__((always_inline)) int write_sum(struct state *st, const struct ina_tensor *tensors, struct ina_packet *pkt,
                                                           uint32_t index, struct ina_rto_run *run, uint64_t now)
{
    return write_packet(st, tensors, pkt, index, INA_WIRE_DATA, 1, NULL, (struct ina_route){0}, run, now);
}

/* Writes another packet. */
static inline __attribute__((always_inline)) int write_other(struct state *st, const struct ina_tensor *tensors, struct ina_packet *pkt,
                                                             uint32_t index, enum ina_contents contents, struct ina_rto_run *run,
                                                             uint64_t now)
{
    uint32_t kind = st->kinds[contents];
    struct ina_ahead *ahead = NULL;
    if (ina_kinds[kind].values == INA_VALUES_ZEROS) {
        const struct ina_slot *slot = &slots_of(st)[index];
        const struct ina_tensors *ts = ina_slots_tensors(st);
        ahead = ahead_of(st, index);
        ina_ahead_look(ahead, ts, &ts->op[slot->op], &tensors[slot->op], slot->seq);
        if (ahead->has)
            kind = ina_kinds[kind].result;
    }
    int with_values = contents != INA_CONTENTS_NONE && ina_kinds[kind].quarters;
    struct ina_route route = {0};
    if (ina_kinds[kind].contributors == INA_CONTRIBUTORS_SOURCES) {
        route = route_of(st, tensors, index);
        with_values = ina_route_sends(&route, st->base.config.worker);
    }
    return write_packet(st, tensors, pkt, index, kind, with_values, ahead, route, run, now);
}

/* Writes one packet of any kind. */
static __attribute__((noinline)) int transmit(struct state *st, const struct ina_tensor *tensors, struct ina_packet *pkt,
                                              uint32_t index, uint64_t now)
{
    const enum ina_contents contents = contents_of(st, index);
    struct ina_rto *rto = &ina_slots_tail(st)->rto;
    struct ina_rto_run run = ina_rto_begin(rto);
    const int result = __builtin_expect(contents == INA_CONTENTS_SUM, 1) ? write_sum(st, tensors, pkt, index, &run, now)
                                                                         : write_other(st, tensors, pkt, index, contents, &run, now);
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
            result = write_sum(st, tensors, &pkts[filled], (uint32_t)index, &run, now);
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
    for (int index; (index = ina_slots_expired(st, now)) >= 0;)
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
    const uint8_t steps = ahead_of(st, index)->steps;
    const uint64_t before = slot->seq - (uint64_t)st->base.config.slots * (steps ? steps : 1);
    if (!pending && slot->seq >= st->base.config.first_packet + st->base.config.slots && tsi == (uint32_t)before) {
        tail->stats.duplicates++;
        if (ina_rto_duplicate(&tail->rto, index, now)) {
            tail->stats.spurious++;
            ina_rto_late(&tail->rto, index, now);
        }
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
    ina_slots_wait_for(st, slot->missing);
    ina_slots_unmark(st, view->slot);
    ina_rto_pending(&tail->rto, view->slot, now);
    ina_slots_publish_rto(tail);
}

/* The switch has answered an offer. Lets packets go that have waited for that. */
static __attribute__((noinline)) void take_answer(struct state *st, const struct ina_tensor *tensors, const struct ina_frame_view *view,
                                                  struct ina_rto_burst *burst, uint64_t now)
{
    struct ina_slots_tail *tail = ina_slots_tail(st);
    struct ina_slot *slots = slots_of(st), *slot = &slots[view->slot];
    const uint32_t handle = slot->op;
    struct ina_frame_view waits = *view;
    const enum ina_offers_outcome outcome = ina_offers_answer(st, tensors, handle, view->state, view->ranks, &waits.missing);
    if (outcome == INA_OFFERS_OPEN)
        wait_for_others(st, slot, &waits, now);
    if (outcome != INA_OFFERS_DECIDED)
        return;
    ina_rto_answered(&tail->rto, burst, view->slot);
    slot->seq += st->base.config.slots;
    slot->set ^= 1;
    slot->state = IDLE;
    settle(st, tensors, view->slot, now);
    for (uint32_t i = 0; i < st->base.config.slots; i++)
        if (slots[i].state == BLOCKED && slots[i].op == (handle + 1) % INA_MAX_OPS)
            settle(st, tensors, i, now);
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
 * wait for its exponent. passed: the packet was a gate. */
static __attribute__((noinline)) void go_on(struct state *st, const struct ina_tensor *tensors, uint32_t index, int passed, uint64_t unblocked,
                                             uint64_t now)
{
    struct ina_slot *slots = slots_of(st);
    const uint32_t other = (uint32_t)(unblocked & (st->base.config.slots - 1));
    slots[index].state = IDLE;
    if (unblocked != UINT64_MAX && slots[other].state == BLOCKED && slots[other].seq == unblocked)
        settle(st, tensors, other, now);
    settle(st, tensors, index, now);
    if (__builtin_expect(ina_slots_tensors(st)->latest.until != 0, 0))
        open_gates(st, tensors, passed, now);
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

static __attribute__((noinline)) void spoilt(struct state *st, uint32_t index)
{
    if (ina_slots_spoilt(st, index))
        ina_slots_mark(st, index);
}

/* 1: the sums are those of the values of so many workers, as far as the check words say. *decoded: see ina_tensors_read. */
static inline __attribute__((always_inline)) int fits(const struct state *st, const struct ina_tensor *tensors, uint32_t handle, uint64_t seq,
                                                      uint32_t workers, const struct ina_frame_view *view, float room[INA_TENSORS_ROOM], const float **decoded)
{
    if (__builtin_expect(st->frame.check == INA_CHECK_KEYED, 0))
        return view->check == INA_CHECK_KEYED
               && ina_slots_keyed_fits(st, seq, handle, 0, (struct ina_check){{view->check0, view->check1}}, view->overflow, view->values);
    struct ina_check check = ina_check_begin(nonce(st, handle, seq), workers);
    *decoded = ina_tensors_read(ina_slots_tensors(st), tensors, handle, seq, view->values, room, &check);
    return view->check == st->frame.check
           && ina_check_fits(st->base.config.lane, check, view->check0, view->check1, view->overflow);
}

/* Steps that a result says lead to the stream's next block; 1 if the packet is of none. 0: they pass over a block of this worker's. */
static __attribute__((noinline)) uint64_t steps_ahead(const struct state *st, uint32_t index, int e0)
{
    const struct ina_slot *slot = &slots_of(st)[index];
    const uint32_t steps = ina_ahead_steps(e0);
    if (contents_of(st, index) != INA_CONTENTS_OWN)
        return 1;
    return steps <= (ahead_of(st, index)->after - slot->seq) / st->base.config.slots ? steps : 0;
}

/* Number of the slot's next packet, so many steps behind its packet seq, which is answered. */
static __attribute__((noinline)) uint64_t step_ahead(struct state *st, const struct ina_tensor *tensors, uint32_t index, uint64_t seq,
                                                     uint64_t steps)
{
    const uint8_t handle = slots_of(st)[index].op;
    struct ina_ahead *ahead = ahead_of(st, index);
    uint64_t next = seq + st->base.config.slots;
    if (ina_tensors_contents(ina_slots_tensors(st), handle, seq) == INA_CONTENTS_OWN)
        next = ina_ahead_skip(ina_slots_tensors(st), tensors, handle, seq, steps, &ina_slots_tail(st)->stats);
    ahead->steps = (uint8_t)((next - seq) / st->base.config.slots);
    ahead->has = 0;
    return next;
}

/* 1: a result of the slot's packet is for the packet's receivers, and has values if this worker is one, and only then. */
static __attribute__((noinline)) int is_for(const struct state *st, const struct ina_tensor *tensors, const struct ina_frame_view *view)
{
    const struct ina_route route = route_of(st, tensors, view->slot);
    return view->receivers == route.receivers && view->members == route.members
           && (view->values != NULL) == (route.receivers >> st->base.config.worker & 1);
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
    if (__builtin_expect(view.kind == INA_WIRE_REFUSED, 0)) {
        ina_slots_refused(st, view.version);
        return 0;
    }
    if (__builtin_expect(ts->failed || slot->state != FLYING || view.tsi != (uint32_t)seq
                         || view.set != slot->set, 0)) {
        stale(st, slot, view.slot, view.tsi, view.kind == INA_WIRE_PENDING || view.state == INA_OFFER_OPEN, now);
        return 0;
    }
    if (view.kind == INA_WIRE_PENDING) {
        const struct ina_frame_view copy = view;
        wait_for_others(st, slot, &copy, now);
        return 0;
    }
    const enum ina_contents contents = ina_tensors_contents(ts, handle, seq);
    if (__builtin_expect(view.kind != st->results[contents] && view.kind != st->kinds[contents], 0)) {
        tail->stats.drop_malformed++;
        return 0;
    }
    if (__builtin_expect(contents == INA_CONTENTS_OFFER, 0)) {
        const struct ina_frame_view copy = view;
        take_answer(st, tensors, &copy, burst, now);
        return 0;
    }
    uint32_t workers = ts->contributions;
    if (__builtin_expect(ina_kinds[view.kind].contributors == INA_CONTRIBUTORS_SOURCES, 0)) {
        const struct ina_frame_view copy = view;
        workers = (uint32_t)__builtin_popcount(view.members);
        if (!is_for(st, tensors, &copy)) {
            tail->stats.drop_malformed++;
            return 0;
        }
    }
    _Alignas(64) float room[INA_TENSORS_ROOM];
    const float *decoded = NULL;
    if (st->frame.check && view.values && ina_kinds[view.kind].checked
        && __builtin_expect(!fits(st, tensors, handle, seq, workers, &view, room, &decoded), 0)) {
        spoilt(st, view.slot);
        return 0;
    }
    const uint64_t steps = __builtin_expect(looks_ahead(st), 0) ? steps_ahead(st, view.slot, view.e0) : 1;
    if (__builtin_expect(!steps, 0)) {
        spoilt(st, view.slot);
        return 0;
    }
    const struct ina_result result = {view.values, view.e0, view.overflow, 0,
                                      st->frame.check != INA_CHECK_OFF, slot->exponent, decoded, {view.check0, view.check1}};
    struct ina_sums sums;
    uint64_t unblocked;
    int failing;
    switch (ina_tensors_account(ts, tensors, handle, seq, &result, &tail->stats, &sums, &unblocked, &failing)) {
    case INA_OUTCOME_OK: break;
    case INA_OUTCOME_MISMATCH: disagree(st, view.slot, failing, now); return 0;
    case INA_OUTCOME_CORRUPT: spoilt(st, view.slot); return 0;
    default: tail->stats.drop_malformed++; return 0;
    }

    const uint64_t newest = burst->newest, oldest = burst->oldest;
    ina_rto_answered(&tail->rto, burst, view.slot);
    if (__builtin_expect(seq < ts->latest.until && ina_route_is_gated(ts, handle, seq), 0))
        burst->disorderly = 1;
    if (__builtin_expect(workers < ts->contributions, 0))
        burst->newest = newest; /* packets sent before wait for others: no evidence that they are lost */
    if (__builtin_expect(contents == INA_CONTENTS_ROUTED && seq == ts->op[handle].first && ts->op[handle].blocks, 0))
        burst->oldest = oldest; /* its packets with values take longer */
    slot->seq = seq + st->base.config.slots;
    slot->set ^= 1;
    if (__builtin_expect(looks_ahead(st), 0))
        slot->seq = step_ahead(st, tensors, view.slot, seq, steps);
    if (__builtin_expect(unblocked == slot->seq && seq >= ts->latest.until, 1)) { /* the block whose exponent is known now is the slot's own next one */
        slot->state = READY;
        slot->missing = slot->spoilt = 0;
        slot->asked = 0;
        ina_slots_mark(st, view.slot);
    } else {
        go_on(st, tensors, view.slot, ina_route_is_gate(ts, handle, seq), unblocked, now);
    }
    ina_tensors_decode(ts, tensors, handle, &sums, &tail->stats);
    return __builtin_expect(st->base.config.reply_in_place, 0) ? reply(st, tensors, pkt, view.slot, now) : 0;
}

static __attribute__((noinline)) int receive_other(struct state *st, const struct ina_tensor *tensors, struct ina_packet *pkt,
                                                   struct ina_rto_burst *burst, uint64_t now)
{
    struct ina_frame_view view;
    uint8_t words[sizeof(uint32_t[INA_WIRE_MOST_VALUES])];
    switch (ina_frame_parse_any(&view, pkt, &st->frame, &st->base.config)) {
    case INA_FRAME_OK:
        if (ina_kinds[view.kind].words == INA_WORDS_BYTES) {
            ina_bytes_unpack(view.values, st->base.config.values, words);
            view.values = words;
        }
        return take_frame(st, tensors, pkt, view, burst, now);
    case INA_FRAME_CORRUPT: ina_slots_tail(st)->stats.drop_corrupt++; return 0;
    case INA_FRAME_VERSION: ina_slots_tail(st)->stats.drop_version++; return 0;
    case INA_FRAME_FOREIGN: ina_slots_tail(st)->stats.drop_foreign++; return 0;
    default: ina_slots_tail(st)->stats.drop_malformed++; return 0;
    }
}

static int receive(void *state, const struct ina_tensor *tensors, struct ina_packet *pkts, int n, uint64_t now)
{
    struct state *st = state;
    struct ina_slots_tail *tail = ina_slots_tail(st);
    struct ina_rto_burst burst = ina_rto_burst_at(now);
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
        ina_rto_results(&tail->rto, &burst);
        ina_slots_publish_rto(tail);
    }
    return replies;
}

/* The worker of a program, with its own kinds. Nothing starts before a tensor comes. */
#define WORKER(worker, program, ...)                                                                                        \
    static int init_##worker(void *state, const struct ina_worker_config *config, uint64_t now __attribute__((unused)))     \
    {                                                                                                                       \
        return init_as(state, config, INA_PROGRAM_##program);                                                               \
    }                                                                                                                       \
    const struct ina_protocol ina_##worker = {                                                                              \
        .name = #worker, .init = init_##worker, .options = options, .state_size = state_size, .stats_offset = stats_offset, \
        .next_handle = ina_slots_next_handle, .submit = submit, .receive = receive, .frames_to_send = frames_to_send,       \
        .next_timer = ina_slots_next_timer, .expire = expire, .abort = ina_slots_abort, .events = ina_slots_events, __VA_ARGS__};

WORKER(switchml, SWITCHML, .reductions = INA_REDUCTIONS_SWITCHML, .keyed = 1 << INA_SUM, .max_workers = INA_MAX_WORKERS,
       .frame_size = frame_size)
WORKER(thc, THC, .reductions = INA_REDUCTIONS_THC, .keyed = 1 << INA_SUM, .max_workers = INA_MAX_WORKERS, .frame_size = frame_size)
WORKER(omnireduce, OMNIREDUCE, .reductions = INA_REDUCTIONS_OMNIREDUCE, .keyed = 1 << INA_SUM | 1 << INA_OWN,
       .max_workers = INA_MAX_WORKERS, .frame_size = frame_size)
WORKER(fpisa, FPISA, .reductions = INA_REDUCTIONS_FPISA, .keyed = 1 << INA_SUM, .max_workers = INA_MAX_WORKERS, .frame_size = frame_size)
WORKER(quorum, QUORUM, .reductions = INA_REDUCTIONS_QUORUM, .keyed = 1 << INA_SUM, .offers = 1, .amend = ina_offers_amend, .frame_size = frame_size)
WORKER(requantised, REQUANTISED, .reductions = INA_REDUCTIONS_REQUANTISED, .keyed = 1 << INA_SUM, .max_workers = INA_MAX_WORKERS,
       .frame_size = frame_size)
WORKER(receivers, RECEIVERS, .reductions = INA_REDUCTIONS_RECEIVERS, .keyed = 1 << INA_SUM, .routes = 1, .frame_size = frame_size_routes)
