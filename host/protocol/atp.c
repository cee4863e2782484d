/* The ATP worker (NSDI'21 §3, with the decisions of docs/design/protocol-atp.md), the plain parameter server's, which is the
 * same without a switch that helps, and that of ATP with receivers, whose sums may have routes (route.h).
 *
 * Packets are numbered over the life of the job and sent in order: at most `slots` beyond the oldest that has no result, of
 * which at most a congestion window are on their way. Packet q belongs to slot q mod slots; each slot knows the aggregator
 * that its packets use. Packets of which a worker is no member are passed over.
 *
 *     IDLE ──sent──> FLYING ──result──> IDLE
 *                    │    ^
 *       time-out, or │    │ sent again (a resend, or the same block in floats)
 *     result: floats └READY
 *
 * What a packet carries and what its result means: tensors.h.
 */
#include "atp_frame.h"
#include "offers.h"
#include "protocols.h"
#include "route.h"
#include "slots.h"

#include <errno.h>
#include <string.h>

enum { OVERTAKEN = 3 /* later results that make a packet suspect: the paper's */, FIRST_WINDOW = 200 * 306 /* bytes, the paper's */ };
enum { ONE = 1 << 16 /* a packet, in the unit of windows */ };

struct slot {
    struct ina_slot base;
    uint16_t index;           /* aggregator of the next packet */
    uint8_t floats;           /* this packet goes to the server in floats */
    uint8_t resend;           /* the next transmission asks switches for their partial sums */
    uint8_t used;             /* seq means something */
    uint8_t padding[3];       /* states are compared byte by byte */
};
static_assert(sizeof(struct slot) == 24, "no padding");

struct state {                   /* slots.h */
    struct ina_slots base;
    struct ina_internet net[2][2]; /* of frames: 1 of those that name receivers; 1 of those with values */
    struct ina_address peer;     /* the switch, or the server */
    uint64_t check;              /* INA_CHECK_OFF, INA_CHECK_SUM */
    uint64_t next;               /* first packet that has not been sent */
    uint64_t recover;            /* the window shrinks once for all packets before this one */
    uint64_t window, threshold;  /* AIMD, in 1/ONE packets; below the threshold it grows fast */
    uint32_t flying, reserved;   /* packets sent that have no result */
};

enum { WINDOW, EXPONENT, CHECK };
static const struct ina_option options[] = {
    [WINDOW] = {"window", "first congestion window, packets; not set: as much as the paper's, 60 KB", 1, INA_MAX_SLOTS, 0},
    [EXPONENT] = {"exponent", "float32 blocks are in fixed point, values up to 2^exponent, to 2^(exponent - 30 + ceil(log2 workers)), "
                  "and are sent as floats if they do not fit; not set: agreed for each block", INA_EXP_MIN, INA_EXP_MAX, INA_EXP_AGREED},
    [CHECK] = INA_CHECK_OPTION,
    {0},
};

static const struct ina_slots_shape shape = {
    .state = sizeof(struct state), .slot = sizeof(struct slot), .max_workers = INA_BITMAP_WORKERS, .last_life = 65535,
    .options = options, .check = CHECK};

static inline struct slot *slots_of(const struct state *st)
{
    return (struct slot *)(st + 1);
}

static size_t state_size(const struct ina_worker_config *config)
{
    return ina_slots_valid(&shape, config) ? ina_slots_state_size(&shape, config) : 0;
}

static size_t stats_offset(const struct ina_worker_config *config)
{
    return ina_slots_valid(&shape, config) ? ina_slots_head_size(&shape, config) : 0;
}

static uint32_t frame_size(const struct ina_worker_config *config)
{
    return INA_ATP_PAYLOAD + (uint32_t)ina_lane_bytes(config->lane, config->values);
}

static uint32_t frame_size_routes(const struct ina_worker_config *config)
{
    return frame_size(config) + INA_ATP_MOST_EXTRA;
}

static void publish(struct state *st)
{
    struct ina_slots_tail *tail = ina_slots_tail(st);
    ina_slots_publish_rto(tail);
    tail->stats.window = st->window / ONE;
}

static int start(void *state, const struct ina_worker_config *config, const struct ina_address *peer, int routes)
{
    struct state *st = state;
    if (!ina_slots_valid(&shape, config))
        return -EINVAL;
    ina_slots_init(st, &shape, config, (int32_t)ina_option(options, config, EXPONENT), 1);
    ina_tensors_offers(ina_slots_tensors(st));
    if (routes)
        ina_tensors_routes(ina_slots_tensors(st));
    st->peer = *peer;
    st->check = (uint64_t)ina_option(options, config, CHECK);
    const uint32_t header = INA_ATP_PAYLOAD - INA_INTERNET_SIZE;
    for (uint32_t i = 0; i < 4; i++)
        ina_internet_write(&st->net[i / 2][i % 2], &config->self, peer,
                           header + i / 2 * INA_ATP_MOST_EXTRA + i % 2 * (uint32_t)ina_lane_bytes(config->lane, config->values));
    st->next = st->recover = config->first_packet;
    uint64_t window = (uint64_t)ina_option(options, config, WINDOW);
    window = window ? window : FIRST_WINDOW / frame_size(config);
    window = window < 1 ? 1 : window > config->slots ? config->slots : window;
    st->window = window * ONE;
    st->threshold = (uint64_t)config->slots * ONE;
    /* All workers of the job hash alike and jobs spread over the pool; side by side, a job's slots do not meet each other. */
    const uint64_t hash = ina_mix(ina_atp_identity(config->life, config->job, 0) + 0x9e3779b97f4a7c15ull) >> 48;
    for (uint32_t i = 0; i < config->slots; i++)
        slots_of(st)[i].index = (uint16_t)(hash + i);
    publish(st);
    return 0;
}

static int submit(void *state, const struct ina_tensor *tensors, int handle, uint64_t now)
{
    struct state *st = state;
    uint32_t ignored = 0;
    if (st->check == INA_CHECK_KEYED && tensors[handle].reduction == INA_MAX)
        return -EINVAL; /* maxima have no tags */
    if (st->check == INA_CHECK_KEYED && tensors[handle].part != INA_PART_PLAIN)
        return -EINVAL; /* nor have answers to offers */
    if (st->check == INA_CHECK_KEYED && ina_tensor_is_routed(&tensors[handle]))
        return -EINVAL; /* nor what a worker has no part in */
    const int result = ina_tensors_submit(ina_slots_tensors(st), &ina_slots_tail(st)->times, tensors, handle);
    if (result >= 0 && !st->flying)
        ina_tensors_status(ina_slots_tensors(st), &ina_slots_tail(st)->times, st->next, &ignored, now); /* its time starts */
    return result;
}

/* ---- the congestion window (ATP NSDI'21 §3.4) -------------------------------------------------------------------- */

static void grow(struct state *st)
{
    const uint64_t limit = (uint64_t)st->base.config.slots * ONE;
    st->window += st->window < st->threshold ? ONE : (uint64_t)ONE * ONE / st->window;
    if (st->window > limit)
        st->window = limit;
}

/* Halves, but only once for packets that were in flight together. */
static void shrink(struct state *st, uint64_t seq)
{
    if (seq < st->recover)
        return;
    st->recover = st->next;
    st->window = st->window / 2 < ONE ? ONE : st->window / 2;
    st->threshold = st->window;
}

/* ---- packets that are sent again --------------------------------------------------------------------------------- */

static void set_ready(struct state *st, uint32_t index)
{
    slots_of(st)[index].base.state = READY;
    ina_slots_mark(st, index);
}

static void clear_ready(struct state *st, uint32_t index)
{
    if (slots_of(st)[index].base.state == READY)
        slots_of(st)[index].base.state = FLYING;
    ina_slots_unmark(st, index);
}

static void ask_again(struct state *st, uint32_t index)
{
    slots_of(st)[index].resend = 1;
    set_ready(st, index);
}

/* ---- sending ----------------------------------------------------------------------------------------------------- */

static struct ina_check nonce(const struct state *st, const struct slot *slot)
{
    const struct ina_worker_config *c = &st->base.config;
    return slot->floats ? ina_atp_nonce(c->life, c->job, slot->base.seq, INA_CHECK_FLOATS, 0)
                        : ina_atp_nonce(c->life, c->job, slot->base.seq, INA_CHECK_INTEGERS,
                                        ina_tensors_agreed(ina_slots_tensors(st), slot->base.op, slot->base.seq));
}

static struct ina_route route_of(const struct state *st, const struct ina_tensor *tensors, const struct slot *slot)
{
    return ina_route_of(ina_slots_tensors(st), tensors, slot->base.op, slot->base.seq);
}

/* 1: the slot's packet names receivers and members. */
static int is_routed(const struct state *st, const struct slot *slot)
{
    return !slot->floats && ina_tensors_contents(ina_slots_tensors(st), slot->base.op, slot->base.seq) == INA_CONTENTS_ROUTED;
}

/* Aggregator of the slot's packet. Members of a block may be a window ahead of those of the block before in its slot (route.h), so the two
 * have aggregators of their own. */
static uint32_t aggregator_of(const struct state *st, const struct slot *slot)
{
    const uint32_t slots = st->base.config.slots;
    return slot->index + (ina_slots_tensors(st)->op[slot->base.op].partial && slot->base.seq / slots & 1 ? slots : 0);
}

/* Writes what the slot's packet to which this worker brings no values says, from and for some. */
static void write_nothing(const struct state *st, const struct ina_tensor *tensors, struct ina_packet *pkt, struct slot *slot,
                          const struct ina_route *route)
{
    const struct ina_tensors *ts = ina_slots_tensors(st);
    const uint32_t handle = slot->base.op, *fingerprint = ts->fingerprint[handle];
    uint8_t *wire = ina_atp_write(pkt, &st->net[1][0], INA_ATP_TO, slot->resend ? INA_ATP_RESEND : 0, aggregator_of(st, slot),
                                  ina_atp_identity(st->base.config.life, st->base.config.job, slot->base.seq),
                                  1u << st->base.config.worker, INA_ATP_MOST_EXTRA);
    ina_atp_put_sets(wire, route->receivers, route->members);
    struct ina_check check = {{0}};
    if (slot->base.seq == ts->op[handle].first)
        check = (struct ina_check){{fingerprint[0], fingerprint[1]}};
    else if (st->check)
        check = nonce(st, slot);
    slot->base.exponent = (int8_t)ina_tensors_announced(ts, tensors, handle, slot->base.seq);
    ina_atp_complete(pkt, slot->base.exponent, (uint32_t)st->check, check);
}

/* Writes what the slot's packet, an offer, says. */
static void write_offer(const struct state *st, struct ina_packet *pkt, const struct slot *slot)
{
    const struct ina_worker_config *c = &st->base.config;
    const struct ina_choice *choice = &ina_slots_tensors(st)->choice[slot->base.op];
    ina_atp_write(pkt, &st->net[0][0], INA_ATP_OFFER, slot->resend ? INA_ATP_RESEND : 0, ina_atp_terms(choice->state, choice->least),
                  ina_atp_identity(c->life, c->job, slot->base.seq), 1u << c->worker, 0);
    ina_atp_complete(pkt, INA_EXP_MIN, INA_CHECK_OFF, (struct ina_check){{choice->rivals, 0}});
}

/* Writes what the slot's packet, any other, says. route: of one from and for some, else NULL. */
static void write_sum(const struct state *st, const struct ina_tensor *tensors, struct ina_packet *pkt, struct slot *slot, enum ina_contents contents,
                      const struct ina_route *route, uint32_t payload)
{
    const struct ina_tensors *ts = ina_slots_tensors(st);
    const int with_values = payload != 0;
    const uint32_t type = slot->floats ? INA_ATP_FLOATS
                          : route ? INA_ATP_TO
                          : contents == INA_CONTENTS_MAX ? INA_ATP_MAXIMA : INA_ATP_DATA;
    uint8_t *wire = ina_atp_write(pkt, &st->net[route != NULL][with_values], type,
                                  slot->resend ? INA_ATP_RESEND : 0, aggregator_of(st, slot),
                                  ina_atp_identity(st->base.config.life, st->base.config.job, slot->base.seq),
                                  1u << st->base.config.worker, payload + ina_atp_kinds[type].extra);
    if (route)
        wire = ina_atp_put_sets(wire, route->receivers, route->members);
    struct ina_check check = {{0}};
    const int summed = st->check == INA_CHECK_SUM && with_values && type != INA_ATP_MAXIMA;
    if (summed)
        check = nonce(st, slot);
    const int exponent = slot->floats ? ina_tensors_encode_floats(ts, tensors, slot->base.op, slot->base.seq, wire)
                                      : ina_tensors_encode_with(ts, tensors, slot->base.op, slot->base.seq, wire, summed ? &check : NULL);
    if (summed && slot->floats)
        ina_check_add(ts->lane, &check, wire, ts->values);
    else if (st->check == INA_CHECK_KEYED && with_values)
        check = ina_slots_tag(st, tensors, slot->base.seq, slot->base.op, slot->floats, wire);
    slot->base.exponent = (int8_t)exponent;
    ina_atp_complete(pkt, exponent, (uint32_t)st->check, check);
}

/* Writes the slot's packet into pkt and starts its timer. 0, or -1: no room in pkt. */
static int transmit(struct state *st, const struct ina_tensor *tensors, struct ina_packet *pkt, uint32_t index, uint64_t now)
{
    struct ina_slots_tail *tail = ina_slots_tail(st);
    struct slot *slot = &slots_of(st)[index];
    const struct ina_tensors *ts = ina_slots_tensors(st);
    const enum ina_contents contents = ina_tensors_contents(ts, slot->base.op, slot->base.seq);
    const int routed = is_routed(st, slot);
    const struct ina_route route = routed ? route_of(st, tensors, slot) : (struct ina_route){0};
    const int with_values = slot->floats || (routed ? ina_route_sends(&route, ts->worker)
                                                    : contents != INA_CONTENTS_NONE && contents != INA_CONTENTS_OFFER);
    const uint32_t payload = with_values ? (uint32_t)ina_lane_bytes(ts->lane, ts->values) : 0;
    if (pkt->len + pkt->tailroom < INA_ATP_PAYLOAD + (routed ? INA_ATP_MOST_EXTRA : 0u) + payload)
        return -1;
    if (contents == INA_CONTENTS_OFFER)
        write_offer(st, pkt, slot);
    else if (routed && !with_values)
        write_nothing(st, tensors, pkt, slot, &route);
    else
        write_sum(st, tensors, pkt, slot, contents, routed ? &route : NULL, payload);
    clear_ready(st, index);
    slot->base.state = FLYING;
    tail->stats.tx_packets++;
    tail->stats.tx_bytes += pkt->len;
    if (slot->resend)
        ina_slots_repeated(tail, index);
    ina_rto_sent(&tail->rto, index, now);
    return 0;
}

/* Passes over packets of which this worker is no member, behind one that it has just sent: so no tensor ends here, and the first packet of
 * each is everybody's. */
static void skip(struct state *st, const struct ina_tensor *tensors)
{
    struct ina_tensors *ts = ina_slots_tensors(st);
    for (uint32_t handle = slots_of(st)[0].base.op; st->next < ts->next_seq; st->next++) {
        if (st->next - ts->op[handle].first >= ina_tensors_packets(&ts->op[handle]))
            handle = ina_tensors_op_of(ts, st->next);
        if (!ts->op[handle].partial || (ina_route_of(ts, tensors, handle, st->next).members >> ts->worker & 1))
            break;
        ina_tensors_skip(ts, handle, &ina_slots_tail(st)->stats);
    }
}

/* 1: packet seq, the next, waits for a gate, or is one and waits for the packets before (route.h). */
static int waits_for_gate(const struct state *st, uint32_t handle, uint64_t seq)
{
    const struct ina_tensors *ts = ina_slots_tensors(st);
    const uint64_t gate = ina_route_gate_before(ts, handle, seq);
    const struct ina_slot *slot = &slots_of(st)[gate & (st->base.config.slots - 1)].base;
    return (ina_route_is_gate(ts, handle, seq) && st->flying) || (gate != UINT64_MAX && slot->seq == gate && slot->state != IDLE);
}

/* Sends a packet again that is due for it, else the next packet in order if the window allows. In order: the oldest packet that is
 * not summed is on its way, or has its turn, at every worker, however small the windows are. 1: pkt is filled. */
static int send_one(struct state *st, const struct ina_tensor *tensors, struct ina_packet *pkt, uint64_t now)
{
    struct ina_slots_tail *tail = ina_slots_tail(st);
    struct ina_tensors *ts = ina_slots_tensors(st);
    struct ina_slots_round round = ina_slots_round_from(st, tail->cursor);
    const int again = ina_slots_round_next(&round);
    if (again >= 0) {
        if (transmit(st, tensors, pkt, (uint32_t)again, now) < 0)
            return 0;
        tail->cursor = ((uint32_t)again + 1) & (st->base.config.slots - 1);
        return 1;
    }
    const uint32_t index = (uint32_t)(st->next & (st->base.config.slots - 1));
    struct slot *slot = &slots_of(st)[index];
    uint32_t handle = slot->base.op;
    if ((uint64_t)st->flying * ONE + ONE > st->window || slot->base.state != IDLE
        || ina_tensors_status(ts, &tail->times, st->next, &handle, now) != INA_PACKET_READY
        || (st->next < ts->latest.until && waits_for_gate(st, handle, st->next)))
        return 0;
    const struct slot before = *slot;
    slot->base.seq = st->next;
    slot->base.op = (uint8_t)handle;
    slot->floats = (uint8_t)ina_tensors_needs_floats(ts, handle, st->next);
    slot->resend = slot->base.asked = 0;
    slot->base.missing = slot->base.spoilt = 0;
    slot->used = 1;
    if (transmit(st, tensors, pkt, index, now) < 0) {
        *slot = before;
        return 0;
    }
    st->flying++;
    st->next++;
    if (st->next < ts->latest.until)
        skip(st, tensors);
    return 1;
}

/* The oldest packet, if three that were sent after it have their results: all workers send in the order of the numbers, so it is
 * lost, or split between switch and server, and only a resend brings it together (ATP NSDI'21 §3.5). -1: it is not suspect. */
static int suspect(struct state *st)
{
    struct ina_slots_tail *tail = ina_slots_tail(st);
    const uint32_t index = ina_rto_head(&tail->rto);
    if (tail->rto.fixed || index >= st->base.config.slots || tail->rto.slot[index].sent != 1 || slots_of(st)[index].floats
        || slots_of(st)[index].base.seq + OVERTAKEN > tail->latest)
        return -1;
    return ina_rto_again(&tail->rto, index, INA_RTO_GAP);
}

static int frames_to_send(void *state, const struct ina_tensor *tensors, struct ina_packet *pkts, int n, uint64_t now)
{
    struct state *st = state;
    if (!ina_slots_alive(st, now))
        return 0;
    for (int index; (index = suspect(st)) >= 0 || (index = ina_slots_expired(st, now)) >= 0;) {
        ask_again(st, (uint32_t)index);
        if (ina_slots_tail(st)->rto.slot[index].kind == INA_RTO_TIMEOUT)
            shrink(st, slots_of(st)[index].base.seq);
    }
    int filled = 0;
    while (filled < n && send_one(st, tensors, &pkts[filled], now))
        filled++;
    return filled;
}

static int expire(void *state, uint32_t index, uint64_t now)
{
    struct state *st = state;
    (void)now;
    const int result = ina_slots_expire(st, index);
    if (result < 0)
        return result;
    ask_again(st, index);
    shrink(st, slots_of(st)[index].base.seq);
    return 0;
}

/* ---- receiving --------------------------------------------------------------------------------------------------- */

/* A pending reply: the server waits for other workers; or it lacks this one's values, as it could not use their sum. */
static void pending(struct state *st, const struct ina_tensor *tensors, uint32_t index, const struct ina_atp_view *view, uint64_t now)
{
    struct ina_slots_tail *tail = ina_slots_tail(st);
    struct slot *slot = &slots_of(st)[index];
    tail->stats.pending_replies++;
    tail->times.last_rx = now;
    slot->base.missing = ~view->seen & (is_routed(st, slot) ? route_of(st, tensors, slot).members : UINT32_MAX);
    ina_slots_wait_for(st, slot->base.missing);
    slot->base.asked = 1;
    if (view->seen >> st->base.config.worker & 1) {
        clear_ready(st, index);
        ina_rto_pending(&tail->rto, index, now);
    } else if (view->bitmap >> st->base.config.worker & 1) {
        slot->base.asked = 0;
        slot->base.missing = 0;
        const uint8_t kind = tail->rto.slot[index].kind;
        ina_rto_again(&tail->rto, index, kind == INA_RTO_FIRST ? INA_RTO_GAP : kind);
        ask_again(st, index);
    }
    publish(st);
}

static void stale(struct state *st, uint32_t index, const struct ina_atp_view *view, uint64_t now)
{
    struct ina_slots_tail *tail = ina_slots_tail(st);
    const struct slot *slot = &slots_of(st)[index];
    const uint64_t last = slot->base.state == IDLE ? slot->base.seq : slot->base.seq - st->base.config.slots;
    const int waits = view->type == INA_ATP_PENDING || (view->type == INA_ATP_ANSWER && ina_atp_state(view) == INA_OFFER_OPEN);
    if (slot->used && !waits && view->seq == (last & INA_ATP_SEQUENCE_MASK)) {
        tail->stats.duplicates++;
        tail->stats.spurious += (uint64_t)ina_rto_duplicate(&tail->rto, index, now);
        publish(st);
    } else {
        tail->stats.drop_stale++;
    }
}

/* 1: the sums are those of the values of so many workers, as far as the check words say. *decoded: see ina_tensors_read. */
static int fits(const struct state *st, const struct ina_tensor *tensors, const struct slot *slot, uint32_t workers, const struct ina_atp_view *view,
                float room[INA_TENSORS_ROOM], const float **decoded)
{
    if (!st->check || !view->values
        || ina_tensors_contents(ina_slots_tensors(st), slot->base.op, slot->base.seq) == INA_CONTENTS_MAX)
        return 1;
    if (st->check == INA_CHECK_KEYED)
        return view->check == INA_CHECK_KEYED
               && ina_slots_keyed_fits(st, slot->base.seq, slot->base.op, slot->floats, (struct ina_check){{view->check0, view->check1}},
                                       view->flags & INA_ATP_OVERFLOW, view->values);
    struct ina_check check = ina_check_begin(nonce(st, slot), slot->floats ? 1 : workers);
    if (slot->floats)
        ina_check_add(st->base.config.lane, &check, view->values, st->base.config.values);
    else
        *decoded = ina_tensors_read(ina_slots_tensors(st), tensors, slot->base.op, slot->base.seq, view->values, room, &check);
    return view->check == st->check
           && ina_check_fits(st->base.config.lane, check, view->check0, view->check1, (view->flags & INA_ATP_OVERFLOW) != 0);
}

static void spoilt(struct state *st, uint32_t index)
{
    if (ina_slots_spoilt(st, index))
        ask_again(st, index);
}

/* Type of the result of the packet that the slot has in flight. */
static uint32_t result_of(const struct state *st, const struct slot *slot)
{
    if (slot->base.state != IDLE && ina_tensors_contents(ina_slots_tensors(st), slot->base.op, slot->base.seq) == INA_CONTENTS_OFFER)
        return INA_ATP_ANSWER;
    return slot->floats ? INA_ATP_FLOAT_RESULT : slot->base.state != IDLE && is_routed(st, slot) ? INA_ATP_TO_RESULT : INA_ATP_RESULT;
}

/* 1: a result is for the packet's receivers, and has values if this worker is one, and only then: but where floats did not fit into fixed
 * point, which a server that has floats of this number already says without values. */
static int is_for(const struct state *st, const struct slot *slot, const struct ina_route *route, const struct ina_atp_view *view)
{
    const int fixed = ina_tensors_is_fixed(ina_slots_tensors(st), slot->base.op, slot->base.seq);
    return view->receivers == route->receivers && view->members == route->members
           && ((view->values != NULL) == (route->receivers >> st->base.config.worker & 1)
               || (fixed && !view->values && view->exponent == INA_EXP_NONFINITE));
}

/* The server has answered the slot's packet, an offer. */
static void take_answer(struct state *st, const struct ina_tensor *tensors, uint32_t index, const struct ina_atp_view *view, uint64_t now)
{
    struct ina_slots_tail *tail = ina_slots_tail(st);
    struct slot *slot = &slots_of(st)[index];
    uint32_t missing;
    if (ina_atp_state(view) == INA_OFFER_OPEN && slot->base.state == READY) { /* what is to be sent may be new */
        tail->stats.drop_stale++;
        return;
    }
    const enum ina_offers_outcome outcome = ina_offers_answer(st, tensors, slot->base.op, ina_atp_state(view), view->check0, &missing);
    if (outcome == INA_OFFERS_WRONG)
        return;
    tail->times.last_rx = now;
    if (outcome == INA_OFFERS_OPEN) {
        tail->stats.pending_replies++;
        slot->base.missing = missing;
        slot->base.asked = 1;
        ina_slots_wait_for(st, missing);
        ina_rto_pending(&tail->rto, index, now);
        publish(st);
        return;
    }
    struct ina_rto_burst burst = ina_rto_burst_at(now);
    clear_ready(st, index);
    ina_rto_answered(&tail->rto, &burst, index);
    ina_rto_results(&tail->rto, &burst);
    slot->resend = slot->base.asked = 0;
    slot->base.missing = 0;
    slot->base.state = IDLE;
    st->flying--;
    publish(st);
}

/* 1: pkt is a frame to send back. */
static int take(struct state *st, const struct ina_tensor *tensors, struct ina_packet *pkt, uint64_t now)
{
    struct ina_slots_tail *tail = ina_slots_tail(st);
    struct ina_worker_stats *stats = &tail->stats;
    struct ina_atp_view view;

    stats->rx_packets++;
    stats->rx_bytes += pkt->len;
    const enum ina_atp_verdict verdict = ina_atp_parse(&view, pkt, (uint32_t)ina_lane_bytes(st->base.config.lane, st->base.config.values));
    if (verdict != INA_ATP_OK || ina_atp_upwards(view.type)) {
        *(verdict == INA_ATP_CORRUPT ? &stats->drop_corrupt
          : verdict == INA_ATP_VERSION ? &stats->drop_version : &stats->drop_malformed) += 1;
        return 0;
    }
    if (!ina_internet_is(&view.net, &st->peer, &st->base.config.self) || view.job != st->base.config.job
        || view.life != st->base.config.life) {
        stats->drop_foreign++;
        return 0;
    }
    if (view.type == INA_ATP_REFUSED) {
        ina_slots_refused(st, view.version);
        return 0;
    }
    const uint32_t index = (uint32_t)(view.seq & (st->base.config.slots - 1));
    struct slot *slot = &slots_of(st)[index];
    const uint32_t expected = result_of(st, slot);
    if (ina_slots_tensors(st)->failed || slot->base.state == IDLE || view.seq != (slot->base.seq & INA_ATP_SEQUENCE_MASK)
        || (view.type != INA_ATP_PENDING && view.type != expected)) {
        stale(st, index, &view, now);
        return 0;
    }
    if (view.type == INA_ATP_PENDING) {
        pending(st, tensors, index, &view, now);
        return 0;
    }
    if (view.type == INA_ATP_ANSWER) {
        take_answer(st, tensors, index, &view, now);
        return st->base.config.reply_in_place && send_one(st, tensors, pkt, now);
    }

    uint32_t workers = ina_slots_tensors(st)->contributions;
    if (view.type == INA_ATP_TO_RESULT) {
        const struct ina_route route = route_of(st, tensors, slot);
        workers = (uint32_t)__builtin_popcount(route.members);
        if (!is_for(st, slot, &route, &view)) {
            stats->drop_malformed++;
            return 0;
        }
    }
    const int all = workers == ina_slots_tensors(st)->contributions; /* members, who then have sent what came before */
    _Alignas(64) float room[INA_TENSORS_ROOM];
    const float *decoded = NULL;
    if (!fits(st, tensors, slot, workers, &view, room, &decoded)) {
        spoilt(st, index);
        return 0;
    }
    const struct ina_result result = {view.values, view.exponent, view.flags & INA_ATP_OVERFLOW, slot->floats,
                                      st->check != INA_CHECK_OFF, slot->base.exponent, decoded, {view.check0, view.check1}};
    uint64_t unblocked;
    int failing;
    const enum ina_outcome outcome =
        ina_tensors_result(ina_slots_tensors(st), tensors, slot->base.op, slot->base.seq, &result, stats, &unblocked, &failing);
    if (outcome == INA_OUTCOME_CORRUPT) {
        spoilt(st, index);
        return 0;
    }
    if (outcome == INA_OUTCOME_MALFORMED) {
        stats->drop_malformed++;
        return 0;
    }
    tail->times.last_rx = now;
    clear_ready(st, index);
    if (outcome == INA_OUTCOME_MISMATCH) {
        if (failing >= 0)
            ina_slots_fail(st, INA_ERR_MISMATCH, (uint32_t)failing);
        ina_rto_stop(&tail->rto, index); /* and FLYING for good */
        return 0;
    }
    struct ina_rto_burst burst = ina_rto_burst_at(now);
    if (all && tail->rto.slot[index].sent == 1 && slot->base.seq > tail->latest)
        tail->latest = slot->base.seq;
    ina_rto_answered(&tail->rto, &burst, index);
    burst.disorderly = (uint32_t)ina_route_is_gated(ina_slots_tensors(st), slot->base.op, slot->base.seq);
    if (!all)
        burst.newest = 0; /* packets sent before wait for others: no evidence that they are lost */
    if (is_routed(st, slot) && slot->base.seq == ina_slots_tensors(st)->op[slot->base.op].first
        && ina_slots_tensors(st)->op[slot->base.op].blocks)
        burst.oldest = UINT64_MAX; /* its packets with values take longer */
    ina_rto_results(&tail->rto, &burst);
    stats->marked += (view.flags & INA_ATP_ECN) != 0;
    if (view.flags & INA_ATP_ECN)
        shrink(st, slot->base.seq);
    else
        grow(st);
    stats->collided += (view.flags & INA_ATP_COLLISION) != 0;
    if (all && (view.flags & INA_ATP_COLLISION)) { /* every worker gets this result once, so all move to the same aggregator */
        slot->index = (uint16_t)(ina_mix((uint64_t)slot->index << 48 ^ slot->base.seq) >> 48);
    }
    slot->resend = slot->base.asked = 0;
    slot->base.missing = slot->base.spoilt = 0;
    if (outcome == INA_OUTCOME_FLOATS) {
        slot->floats = 1;
        set_ready(st, index);
    } else {
        slot->base.state = IDLE;
        slot->floats = 0;
        st->flying--;
    }
    publish(st);
    return st->base.config.reply_in_place && send_one(st, tensors, pkt, now);
}

static int receive(void *state, const struct ina_tensor *tensors, struct ina_packet *pkts, int n, uint64_t now)
{
    int replies = 0;
    for (int i = 0; i < n; i++)
        if (take(state, tensors, &pkts[i], now))
            pkts[replies++] = pkts[i];
    return replies;
}

/* ---- the protocols ----------------------------------------------------------------------------------------------- */

#define WORKER(worker, address, with_routes, size)                                                                           \
    static int init_##worker(void *state, const struct ina_worker_config *config, uint64_t now __attribute__((unused)))      \
    {                                                                                                                        \
        return start(state, config, &config->address, with_routes); /* nothing starts before a tensor comes */               \
    }                                                                                                                        \
    const struct ina_protocol ina_##worker = {                                                                               \
        .name = #worker, .init = init_##worker, .reductions = INA_REDUCTIONS_ATP, .keyed = 1 << INA_SUM, .options = options, \
        .offers = 1, .amend = ina_offers_amend, .routes = (with_routes),                                                     \
        .state_size = state_size, .stats_offset = stats_offset, .next_handle = ina_slots_next_handle, .submit = submit,      \
        .receive = receive, .frames_to_send = frames_to_send, .next_timer = ina_slots_next_timer, .expire = expire,          \
        .abort = ina_slots_abort, .events = ina_slots_events, .frame_size = (size)};

WORKER(atp, peer, 0, frame_size)
WORKER(ps, server, 0, frame_size)
WORKER(atp_routes, peer, 1, frame_size_routes)
