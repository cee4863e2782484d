#include "tensors.h"

#include "halves.h"
#include "route.h"
#include "values.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum { FINGERPRINT_BITS = 25 };
static_assert(((uint32_t)INA_BITMAP_WORKERS << FINGERPRINT_BITS) < 1u << 31, "fingerprints of 32 workers add up without overflow");

size_t ina_tensors_size(uint32_t window)
{
    return sizeof(struct ina_tensors) + (size_t)INA_MAX_OPS * window;
}

void ina_tensors_init(struct ina_tensors *ts, const struct ina_worker_config *config, int32_t exponent, uint32_t floats)
{
    memset(ts, 0, ina_tensors_size(config->slots));
    ts->workers = config->workers;
    ts->worker = config->worker;
    ts->contributions = (uint16_t)ina_rule_contributions(config->rule, config->workers);
    ts->values = config->values;
    ts->window = config->slots;
    ts->lane = (uint16_t)config->lane;
    ts->shift = (uint32_t)ina_lane_shift(config->lane, (int)config->workers);
    ts->next_seq = config->first_packet;
    ts->exponent = exponent;
    ts->floats = floats && ina_lane_bits(config->lane) == 8 * sizeof(float);
}

/* ---- which packet is it? ---------------------------------------------------------------------------------------- */

static struct ina_op *op_at(struct ina_tensors *ts, uint64_t ordinal)
{
    return &ts->op[ordinal % INA_MAX_OPS];
}

uint32_t ina_tensors_op_of(const struct ina_tensors *ts, uint64_t seq)
{
    uint64_t low = ts->ops_begin, high = ts->ops_end; /* the last op whose first packet is not after seq */
    while (high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;
        if (ts->op[middle % INA_MAX_OPS].first <= seq)
            low = middle;
        else
            high = middle;
    }
    return (uint32_t)(low % INA_MAX_OPS);
}

/* ---- submit ------------------------------------------------------------------------------------------------------ */

/* A word of a fingerprint: those of n workers add up to less than 2^30. */
static uint32_t within(uint64_t h, uint32_t shift)
{
    return (uint32_t)(h >> (64 - (shift < FINGERPRINT_BITS ? shift : FINGERPRINT_BITS)));
}

/* Equal on all workers if, and but for a chance of 2^-75 (2^-60 for 1,024 workers) only if, they submit the same. A worker sends its own words and
 * gets the sums: as many times its own as there are contributions, n. Every worker of a group that disagrees sees it, also when several differ. */
static void fingerprint(uint32_t words[INA_FINGERPRINT_WORDS], const struct ina_tensor *t, uint32_t shift)
{
    const uint64_t route = ina_tensor_is_routed(t) ? ina_route_hash(t) : 0;
    for (uint32_t i = 0; i < INA_FINGERPRINT_WORDS; i++) {
        uint64_t h = ina_mix(0x9e3779b97f4a7c15ull * (i + 1));
        h = ina_mix(h ^ t->count);
        h = ina_mix(h + t->tag);
        h = ina_mix(h ^ ((uint64_t)t->dtype << 32 | t->reduction << 1 | t->average));
        if (ina_tensor_is_routed(t))
            h = ina_mix(h ^ route);
        words[i] = within(h, shift);
    }
}

int ina_tensors_next_handle(const struct ina_tensors *ts)
{
    if (ts->failed)
        return -EPIPE;
    return ts->ops_end - ts->ops_begin < INA_MAX_OPS ? (int)(ts->ops_end % INA_MAX_OPS) : -EAGAIN;
}

int ina_tensor_valid(const struct ina_tensor *t)
{
    return t->dtype < INA_DTYPES && t->average <= 1 && (!t->average || ina_is_float(t->dtype))
           && t->reduction <= INA_OWN && (t->reduction != INA_MAX || !ina_is_float(t->dtype))
           && (t->reduction == INA_SUM || !(t->average || ina_tensor_is_routed(t)))
           && t->routed <= 1 && (!t->count || ((t->in || t->part == INA_PART_CHOSEN) && t->out)) && t->count <= UINT64_MAX / 8
           && t->part <= INA_PART_CHOSEN && (t->part == INA_PART_PLAIN || (t->reduction == INA_SUM && !ina_tensor_is_routed(t)))
           && (t->part != INA_PART_OFFER || (!t->count && !t->average && t->offer.state <= INA_OFFER_PASS && t->offer.least));
}

int ina_protocol_submit(const struct ina_protocol *protocol, void *state, struct ina_tensor *tensors, const struct ina_tensor *tensor, uint64_t now)
{
    int handle = protocol->next_handle(state);
    if (handle >= 0 && tensor->part == INA_PART_CHOSEN) {
        if (!ina_tensor_valid(tensor))
            return -EINVAL;
        tensors[handle] = (struct ina_tensor){.dtype = tensor->dtype, .part = INA_PART_OFFER, .offer = tensor->offer};
        handle = protocol->submit(state, tensors, handle, now);
        if (handle >= 0)
            handle = protocol->next_handle(state);
    }
    if (handle < 0)
        return handle;
    tensors[handle] = *tensor;
    return protocol->submit(state, tensors, handle, now);
}

int ina_protocol_amend(const struct ina_protocol *protocol, void *state, struct ina_tensor *tensors, int handle, const struct ina_offer *offer,
                       const void *in, uint64_t now)
{
    const int asks = (handle + INA_MAX_OPS - 1) % INA_MAX_OPS;
    const struct ina_offer before = tensors[asks].offer;
    tensors[asks].offer = *offer;
    if (protocol->amend(state, tensors, asks, now) < 0) {
        tensors[asks].offer = before;
        return -EINVAL;
    }
    tensors[handle].offer = *offer;
    tensors[handle].in = in;
    return 0;
}

/* The offer before tensor `handle` is decided. */
static void take_choice(struct ina_tensors *ts, const struct ina_tensor *tensors, uint32_t handle, uint32_t contributors)
{
    struct ina_op *op = &ts->op[handle];
    ts->choice[handle].contributors = contributors;
    ts->choice[handle].decided = 1;
    op->absent = !(contributors >> ts->worker & 1);
    if (op->average)
        op->divisor = (uint16_t)(contributors ? __builtin_popcount(contributors) : 1);
    if (op->absent)
        memset(tensors[handle].out, 0, ina_op_is_halves(op) ? op->count * sizeof(uint16_t) : ina_is_float(op->dtype) ? op->count * sizeof(float)
                                                                                              : ina_lane_bytes(ts->lane, op->count));
    for (uint32_t i = 0; i < INA_FINGERPRINT_WORDS; i++) /* a switch that has lost its state may have told others something else */
        ts->fingerprint[handle][i] = within(ina_mix(ina_mix(contributors + 1) ^ ts->fingerprint[handle][i]), ts->shift);
}

/* 1: it may be one of this worker: not a rival of its own. */
static int is_offer(const struct ina_tensors *ts, const struct ina_offer *offer)
{
    return offer->state <= INA_OFFER_PASS && offer->least && offer->least <= ts->workers && !(offer->rivals >> ts->worker & 1);
}

/* Notes what a tensor that is submitted has to do with offers. */
static void choose(struct ina_tensors *ts, const struct ina_tensor *tensors, int handle)
{
    const struct ina_tensor *t = &tensors[handle];
    const struct ina_choice *before = &ts->choice[(ts->ops_end - 1) % INA_MAX_OPS];
    ts->choice[handle] = (struct ina_choice){.part = (uint8_t)t->part};
    if (t->part == INA_PART_OFFER)
        ina_tensors_amend(ts, tensors, (uint32_t)handle);
    if (t->part == INA_PART_CHOSEN && before->decided)
        take_choice(ts, tensors, (uint32_t)handle, before->contributors);
    else if (t->part == INA_PART_CHOSEN)
        ts->waiting++;
}

int ina_tensors_amend(struct ina_tensors *ts, const struct ina_tensor *tensors, uint32_t handle)
{
    struct ina_choice *choice = &ts->choice[handle];
    const struct ina_offer *offer = &tensors[handle].offer;
    if (choice->part != INA_PART_OFFER || !is_offer(ts, offer) || (choice->state != INA_OFFER_ASK && offer->state != choice->state))
        return -EINVAL;
    choice->state = (uint8_t)offer->state;
    choice->least = (uint8_t)offer->least;
    choice->rivals = offer->rivals;
    return 0;
}

enum ina_outcome ina_tensors_decide(struct ina_tensors *ts, const struct ina_tensor *tensors, uint32_t handle, uint32_t contributors,
                                    struct ina_worker_stats *stats)
{
    struct ina_choice *choice = &ts->choice[handle];
    const uint32_t next = (handle + 1) % INA_MAX_OPS;
    const int is_last = handle == (ts->ops_end - 1) % INA_MAX_OPS;
    if (contributors & ~(uint32_t)((1ull << ts->workers) - 1) || (contributors >> ts->worker & 1 && choice->state != INA_OFFER_GIVE))
        return INA_OUTCOME_MALFORMED;
    choice->contributors = contributors;
    choice->decided = 1;
    if (!is_last && ts->choice[next].part == INA_PART_CHOSEN) {
        take_choice(ts, tensors, next, contributors);
        ts->waiting--;
    }
    ts->op[handle].opened = 1;
    ts->op[handle].unanswered = 0;
    stats->results++;
    stats->waits_for = 0;
    ina_tensors_finish(ts, handle, stats);
    return INA_OUTCOME_OK;
}

/* 1: an offer in this job, or a tensor that comes right after one, or neither. */
static int has_part(const struct ina_tensors *ts, const struct ina_tensor *t)
{
    switch (t->part) {
    case INA_PART_OFFER: return ts->offers && ts->workers <= INA_BITMAP_WORKERS && is_offer(ts, &t->offer);
    case INA_PART_CHOSEN: return ts->ops_end && ts->choice[(ts->ops_end - 1) % INA_MAX_OPS].part == INA_PART_OFFER;
    default: return 1;
    }
}

int ina_tensors_submit(struct ina_tensors *ts, struct ina_tensor_times *times, const struct ina_tensor *tensors, int handle)
{
    const int expected = ina_tensors_next_handle(ts);
    if (expected < 0)
        return expected;
    const struct ina_tensor *t = &tensors[handle];
    if (handle != expected || !ina_tensor_valid(t) || (!ina_is_float(t->dtype) && t->dtype != ina_lanes[ts->lane].dtype) || !(ts->routes || !ina_tensor_is_routed(t)) || !ina_route_valid(t, ts->workers)
        || !has_part(ts, t))
        return -EINVAL;
    if (t->part == INA_PART_OFFER && ts->ops_end - ts->ops_begin > INA_MAX_OPS - 2)
        return -EAGAIN; /* no room for the tensor that comes after it */

    const uint32_t room = ts->values - INA_FINGERPRINT_WORDS;
    const uint32_t exact = ts->workers <= INA_EXACT_WORKERS && ts->lane == INA_LANE_INT32 ? room / INA_EXACT_WORDS : 0;
    struct ina_op *op = &ts->op[handle];
    memset(op, 0, sizeof *op);
    op->first = ts->next_seq;
    op->count = t->count;
    op->dtype = (uint8_t)t->dtype;
    op->average = (uint8_t)t->average;
    op->reduction = (uint8_t)t->reduction;
    op->routed = t->routed & 1;
    op->offer = t->part == INA_PART_OFFER;
    op->is_inline = !t->count
                    || (t->reduction == INA_SUM && !ina_tensor_is_routed(t) && !ts->idempotent && t->count <= (ina_is_float(t->dtype) ? exact : room));
    op->blocks = op->routed ? ina_route_blocks(t, ts->workers, ts->values, &op->partial) : op->is_inline ? 0 : (t->count - 1) / ts->values + 1;
    op->exponents = ina_is_float(op->dtype) && op->blocks && ts->exponent == INA_EXP_AGREED;
    op->ahead = op->exponents ? (op->blocks < ts->window ? op->blocks : ts->window) : 1;
    op->unanswered = ina_tensors_packets(op);
    op->exponents_at = (uint32_t)handle * ts->window;
    op->announced = op->exponents ? op->blocks : 0;
    op->divisor = (uint16_t)(!ina_is_float(op->dtype) ? 0 : op->average ? ts->contributions : 1);
    fingerprint(ts->fingerprint[handle], t, ts->shift);
    if (op->exponents)
        memset(&ts->agreed[op->exponents_at], INA_EXP_UNKNOWN, op->ahead);

    choose(ts, tensors, handle);

    ts->fetched &= ~(1ull << handle);
    times->started[handle] = 0;
    ts->ops_end++;
    ts->next_seq += op->unanswered;
    if (op->partial) /* those that follow each other have one row of gates */
        ts->latest = (struct ina_gates){op->first < ts->latest.until ? ts->latest.from : op->first, ts->next_seq + 2ull * ts->window};
    ts->gates[handle] = ts->latest;
    return handle;
}

/* ---- floats of 16 bits -------------------------------------------------------------------------------------------- */

enum { ROOM = INA_TENSORS_MOST };
static_assert(INA_FLOATS_BF16 == INA_BFLOAT16 - INA_FLOAT32 && INA_FLOATS_FP16 == INA_FLOAT16 - INA_FLOAT32, "in one order");

/* Floats of a tensor, which are there, or widened in `room`. */
static const float *floats_of(const struct ina_op *op, const void *elements, struct ina_place place, float room[ROOM])
{
    if (!ina_op_is_halves(op))
        return (const float *)elements + place.at;
    ina_halves_widen(op->dtype - INA_FLOAT32, place.count, (const uint16_t *)elements + place.at, room);
    return room;
}

/* Where floats of a tensor are written: there, or in `room`, from which `put_floats` rounds them. */
static float *floats_for(const struct ina_op *op, void *elements, struct ina_place place, float room[ROOM])
{
    return ina_op_is_halves(op) ? room : (float *)elements + place.at;
}

static void put_floats(const struct ina_op *op, void *elements, struct ina_place place, const float room[ROOM])
{
    if (ina_op_is_halves(op))
        ina_halves_narrow(op->dtype - INA_FLOAT32, place.count, room, (uint16_t *)elements + place.at);
}

int ina_tensors_exponent_of(const struct ina_tensors *ts, const struct ina_op *op, const struct ina_tensor *t, uint64_t block)
{
    if (!ina_op_is_halves(op))
        return ina_tensors_exponent_of_float32(ts, op, t, block);
    float room[ROOM];
    const struct ina_place place = ina_tensors_place(ts, op, t, block);
    return ina_codec_exponent(floats_of(op, ina_tensors_in(op, t), place, room), place.count);
}

int ina_tensors_encode_halves(const struct ina_tensors *ts, const struct ina_op *op, const struct ina_tensor *t, uint64_t p,
                              uint8_t *wire, struct ina_check *check)
{
    float room[ROOM];
    const uint64_t block = p - op->ahead;
    const struct ina_place place = ina_tensors_place(ts, op, t, block);
    ina_tensors_encode_values(ts, wire, floats_of(op, ina_tensors_in(op, t), place, room), place.count,
                              ts->agreed[ina_tensors_exponent_at(ts, op, block)], check);
    return p < op->blocks ? ina_tensors_exponent_of(ts, op, t, p) : INA_EXP_MIN;
}

void ina_tensors_decode_halves(const struct ina_tensors *ts, const struct ina_op *op, const struct ina_tensor *t,
                               const struct ina_sums *sums, struct ina_worker_stats *stats)
{
    float room[ROOM];
    const struct ina_place place = ina_tensors_place(ts, op, t, sums->block);
    stats->flushed += ina_codec_flushed(floats_of(op, ina_tensors_in(op, t), place, room), place.count, sums->exponent, (int)ts->shift);
    ina_codec_decode(ts->lane, room, sums->wire, place.count, sums->exponent, (int)ts->shift, (int)op->divisor);
    put_floats(op, t->out, place, room);
}

/* ---- contents of packets ----------------------------------------------------------------------------------------- */

static void encode_open(const struct ina_tensors *ts, const struct ina_tensor *t, uint32_t handle, uint8_t *wire)
{
    const struct ina_op *op = &ts->op[handle];
    const size_t words = INA_FINGERPRINT_WORDS;
    uint8_t *rest = wire + ina_lane_bytes(ts->lane, words);
    uint64_t used = words;
    for (size_t i = 0; i < words; i++)
        store_value(ts->lane, wire, i, ts->fingerprint[handle][i]);
    if (ts->idempotent) {
        for (size_t i = 0; i < words; i++, used++)
            store_value(ts->lane, rest, i, ~ts->fingerprint[handle][i]);
    } else if (op->is_inline && op->divisor) {
        float room[ROOM];
        ina_codec_encode_exact(rest, floats_of(op, ina_tensors_in(op, t), (struct ina_place){0, op->count}, room), op->count);
        used += op->count * INA_EXACT_WORDS;
    } else if (op->is_inline) {
        ina_codec_swap(ts->lane, rest, ina_tensors_in(op, t), op->count);
        used += op->count;
    }
    ina_tensors_fill(ts, wire, used);
}

/* Encodes a block other than floats with agreed exponents. */
static int encode_block(const struct ina_tensors *ts, const struct ina_op *op, const struct ina_tensor *t, uint64_t block,
                        uint8_t *wire)
{
    const struct ina_place place = ina_tensors_place(ts, op, t, block);
    const uint64_t count = place.count, at = place.at;
    int exponent = INA_EXP_MIN;
    float room[ROOM];
    if (!op->divisor) {
        ina_codec_swap(ts->lane, wire, ina_tensors_integers(ts, ina_tensors_in(op, t), at), count);
    } else {
        const float *x = floats_of(op, ina_tensors_in(op, t), place, room);
        if (ina_codec_exponent(x, count) > ts->exponent)
            exponent = INA_EXP_NONFINITE; /* the largest: all workers see that one had no exponent */
        ina_codec_encode(ts->lane, wire, x, count, exponent == INA_EXP_NONFINITE ? exponent : ts->exponent, (int)ts->shift);
    }
    ina_tensors_fill(ts, wire, count);
    return exponent;
}

int ina_tensors_encode_other(const struct ina_tensors *ts, const struct ina_tensor *tensors, uint32_t handle, uint64_t seq,
                             uint8_t *wire)
{
    const struct ina_op *op = &ts->op[handle];
    const struct ina_tensor *t = &tensors[handle];
    const uint64_t p = seq - op->first;
    int exponent = INA_EXP_MIN;
    if (p == 0 && !op->routed)
        encode_open(ts, t, handle, wire);
    else if (p >= op->ahead)
        exponent = encode_block(ts, op, t, p - op->ahead, wire);
    return ina_tensors_carries_exponent(op, p) ? ina_tensors_exponent_of(ts, op, t, p) : exponent;
}

int ina_tensors_needs_floats(const struct ina_tensors *ts, uint32_t handle, uint64_t seq)
{
    const struct ina_op *op = &ts->op[handle];
    const uint64_t p = seq - op->first;
    return ts->floats && op->exponents && p >= op->ahead
           && ts->agreed[ina_tensors_exponent_at(ts, op, p - op->ahead)] == INA_EXP_NONFINITE;
}

int ina_tensors_encode_floats(const struct ina_tensors *ts, const struct ina_tensor *tensors, uint32_t handle, uint64_t seq,
                              uint8_t *wire)
{
    const struct ina_op *op = &ts->op[handle];
    const struct ina_tensor *t = &tensors[handle];
    const uint64_t p = seq - op->first, block = p - op->ahead;
    const struct ina_place place = ina_tensors_place(ts, op, t, block);
    float room[ROOM];
    ina_codec_swap(ts->lane, wire, floats_of(op, ina_tensors_in(op, t), place, room), place.count); /* float32's bits as they are, swapped */
    ina_tensors_fill(ts, wire, place.count);
    return ina_tensors_carries_exponent(op, p) ? ina_tensors_exponent_of(ts, op, t, p) : INA_EXP_MIN;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static int agrees(const struct ina_tensors *ts, uint32_t handle, const uint8_t *wire)
{
    const uint32_t *own = ts->fingerprint[handle];
    for (size_t i = 0; i < INA_FINGERPRINT_WORDS; i++) {
        const uint32_t sum = load_value(ts->lane, wire, i);
        if (ts->idempotent ? sum != own[i] || load_value(ts->lane, wire, INA_FINGERPRINT_WORDS + i) != ~own[i] : sum != ts->contributions * own[i])
            return 0;
    }
    return 1;
}

/* The same of an open packet without values: its check words are the fingerprint's first. */
static int words_agree(const struct ina_tensors *ts, uint32_t handle, const uint32_t words[2])
{
    const uint32_t *own = ts->fingerprint[handle];
    return words[0] == ts->contributions * own[0] && words[1] == ts->contributions * own[1];
}

static void decode_inline(const struct ina_tensors *ts, const struct ina_op *op, const struct ina_tensor *t, const uint8_t *wire,
                          struct ina_worker_stats *stats)
{
    wire += ina_lane_bytes(ts->lane, INA_FINGERPRINT_WORDS);
    if (!op->divisor) {
        ina_codec_swap(ts->lane, t->out, wire, op->count);
        return;
    }
    const struct ina_place place = {0, op->count};
    float room[ROOM];
    if (!ina_codec_decode_exact(floats_for(op, t->out, place, room), wire, op->count, (int)ts->contributions, (int)op->divisor))
        stats->nonfinite_blocks++;
    put_floats(op, t->out, place, room);
}

static void decode_floats(const struct ina_tensors *ts, const struct ina_op *op, const struct ina_tensor *t, uint64_t p,
                          const uint8_t *wire)
{
    const struct ina_place place = ina_tensors_place(ts, op, t, p - op->ahead);
    float room[ROOM], *out = floats_for(op, t->out, place, room);
    ina_codec_swap(ts->lane, out, wire, place.count);
    if (op->average)
        for (uint64_t i = 0; i < place.count; i++)
            out[i] /= (float)op->divisor;
    put_floats(op, t->out, place, room);
}

/* An open packet is answered. When a tensor disagrees, an older one may too, and another worker may need this worker's
 * open packet of that one to see it: so the job fails once every older tensor is open. */
static enum ina_outcome opened(struct ina_tensors *ts, uint32_t handle, int mismatch, int *failing)
{
    struct ina_op *op = &ts->op[handle];
    op->opened = 1;
    op->mismatch = (uint8_t)mismatch;
    ts->suspect |= (uint32_t)mismatch;
    if (!ts->suspect)
        return INA_OUTCOME_OK;
    for (uint64_t ordinal = ts->ops_open; ordinal < ts->ops_end && op_at(ts, ordinal)->opened; ordinal++) {
        if (op_at(ts, ordinal)->mismatch) {
            *failing = (int)(ordinal % INA_MAX_OPS);
            return INA_OUTCOME_MISMATCH;
        }
    }
    return mismatch ? INA_OUTCOME_MISMATCH : INA_OUTCOME_OK;
}

void ina_tensors_finish(struct ina_tensors *ts, uint32_t handle, struct ina_worker_stats *stats)
{
    stats->tensors++;
    stats->elements += ts->op[handle].count;
    ts->done[ts->done_end++ % INA_MAX_OPS] = (uint8_t)handle;
    while (ts->ops_open < ts->ops_end && !op_at(ts, ts->ops_open)->unanswered)
        ts->ops_open++;
}

void ina_tensors_skip(struct ina_tensors *ts, uint32_t handle, struct ina_worker_stats *stats)
{
    if (!--ts->op[handle].unanswered)
        ina_tensors_finish(ts, handle, stats);
}

int ina_tensors_add_own(struct ina_tensors *ts, const struct ina_tensor *tensors, uint32_t handle, const struct ina_sums *sums,
                        struct ina_worker_stats *stats)
{
    enum { PART = 64 };
    struct ina_op *op = &ts->op[handle];
    const struct ina_tensor *t = &tensors[handle];
    const struct ina_route route = ina_route_of(ts, tensors, handle, op->first + op->ahead + sums->block);
    if (!ina_route_adds(&route, ts->worker))
        return 0;
    const struct ina_place place = ina_tensors_place(ts, op, t, sums->block);
    uint8_t whole[PART * sizeof(uint32_t)]; /* of the widest lane */
    float room[ROOM];
    int overflow = 0;
    for (uint64_t i = 0; i < place.count; i += PART) {
        const uint64_t at = place.at + i, count = place.count - i < PART ? place.count - i : PART;
        const struct ina_place part = {at, count};
        if (op->divisor) {
            const float *own = floats_of(op, ina_tensors_in(op, t), part, room);
            stats->flushed += ina_codec_flushed(own, count, sums->exponent, (int)ts->shift);
            ina_codec_encode(ts->lane, whole, own, count, sums->exponent, (int)ts->shift);
        } else {
            ina_codec_swap(ts->lane, whole, ina_tensors_integers(ts, ina_tensors_in(op, t), at), count);
        }
        overflow |= ina_codec_add(ts->lane, whole, sums->wire + ina_lane_bytes(ts->lane, i), count);
        if (op->divisor) {
            ina_codec_decode(ts->lane, floats_for(op, t->out, part, room), whole, count, sums->exponent, (int)ts->shift, (int)op->divisor);
            put_floats(op, t->out, part, room);
        } else {
            ina_codec_swap(ts->lane, ina_tensors_integers(ts, t->out, at), whole, count);
        }
    }
    if (overflow) { /* of integers: those of floats have the room */
        stats->overflows++;
        op->overflow = 1;
    }
    return 1;
}

/* Takes results other than a block's integer sums: exponents alone, a first packet, floats or a request for them. */
enum ina_outcome ina_tensors_take(struct ina_tensors *ts, const struct ina_tensor *tensors, uint32_t handle, uint64_t p,
                                  const struct ina_result *result, struct ina_worker_stats *stats, int *failing)
{
    struct ina_op *op = &ts->op[handle];
    const struct ina_tensor *t = &tensors[handle];
    const int block = p && p >= op->ahead; /* the first packet is never a block */
    if (result->floats) {
        if (!result->wire || !op->divisor || !block)
            return INA_OUTCOME_MALFORMED;
        if (!op->routed || (ina_route_of(ts, tensors, handle, op->first + p).receivers >> ts->worker & 1)) /* floats go to all */
            decode_floats(ts, op, t, p, result->wire);
        stats->float_blocks++;
        return INA_OUTCOME_OK;
    }
    const int fixed = block && ina_tensors_is_fixed(ts, handle, op->first + p);
    const int overflown = fixed && ts->floats && result->exponent == INA_EXP_NONFINITE;
    if (op->routed && !(fixed && (overflown || result->wire))) { /* the open packet, or sums for others */
        if (result->wire)
            return INA_OUTCOME_MALFORMED;
        return p ? INA_OUTCOME_OK : opened(ts, handle, !words_agree(ts, handle, result->words), failing);
    }
    if ((result->wire != NULL) != (p == 0 || block) && !(overflown && !result->wire))
        return INA_OUTCOME_MALFORMED;
    if (p == 0) {
        const enum ina_outcome outcome = opened(ts, handle, !agrees(ts, handle, result->wire), failing);
        if (outcome != INA_OUTCOME_OK)
            return outcome;
        if (op->is_inline)
            decode_inline(ts, op, t, result->wire, stats);
    }
    if (overflown)
        return INA_OUTCOME_FLOATS;
    if (block) { /* of fixed point */
        const struct ina_sums sums = ina_tensors_sums(ts, handle, p - op->ahead, result->wire);
        stats->nonfinite_blocks += sums.exponent == INA_EXP_NONFINITE;
        ina_tensors_decode(ts, tensors, handle, &sums, stats);
    }
    return INA_OUTCOME_OK;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

uint64_t ina_tensors_deadline(const struct ina_tensors *ts, const struct ina_tensor_times *times, uint64_t timeout)
{
    if (ts->ops_open == ts->ops_end)
        return UINT64_MAX;
    const uint64_t start = times->started[ina_tensors_oldest(ts)];
    return !start || start > UINT64_MAX - timeout ? UINT64_MAX : start + timeout;
}

void ina_tensors_fail(struct ina_tensors *ts, uint32_t code, uint32_t handle)
{
    ts->failed = code;
    if (ts->ops_open == ts->ops_end)
        return; /* nothing in flight */
    ts->done[ts->done_end++ % INA_MAX_OPS] = (uint8_t)handle;
    for (uint64_t ordinal = ts->ops_open; ordinal < ts->ops_end; ordinal++)
        if (op_at(ts, ordinal)->unanswered && ordinal % INA_MAX_OPS != handle)
            ts->done[ts->done_end++ % INA_MAX_OPS] = (uint8_t)(ordinal % INA_MAX_OPS);
    ts->ops_open = ts->ops_end;
}

int ina_tensors_events(struct ina_tensors *ts, const struct ina_tensor_times *times, struct ina_event *out, int max)
{
    int n = 0;
    for (; n < max && ts->done_begin < ts->done_end; n++) {
        const uint32_t handle = ts->done[ts->done_begin++ % INA_MAX_OPS];
        const struct ina_op *op = &ts->op[handle];
        if (op->unanswered)
            out[n] = ts->failure;
        else
            out[n] = (struct ina_event){.type = INA_EVENT_DONE};
        if (op->unanswered) {
            out[n].type = INA_EVENT_FAILED;
            out[n].code = ts->failed;
        }
        out[n].op = handle;
        out[n].overflow = op->overflow;
        out[n].last_rx = times->last_rx;
        out[n].contributors = ts->choice[handle].contributors;
        ts->fetched |= 1ull << handle;
    }
    while (ts->ops_begin < ts->ops_end && (ts->fetched >> ts->ops_begin % INA_MAX_OPS & 1))
        ts->ops_begin++;
    return n;
}
