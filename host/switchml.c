/* The SwitchML worker (NSDI'21 §3.5 - §3.7, with the corrections of docs/protocol.md).
 *
 * Packets are numbered over the life of the job. Packet number q travels in slot q mod slots, set (q / slots) & 1, and is
 * sent when packet q - slots has its result, so each slot is a machine of its own:
 *
 *     IDLE ──submit──> BLOCKED ──exponent agreed──> READY ──sent──> FLYING ──result──> IDLE | BLOCKED | READY
 *                                                     ^───time-out───┘
 *
 * A tensor is a run of packets, number p = q - first:
 *
 *     p = 0        open: fingerprint of the tensor; and the whole tensor if it fits (int32 as it is, float32 exact)
 *     0 < p < m    float32: exponent of block p, no values; m = min(blocks, slots). int32: none, m = 1
 *     p = m + j    block j
 *
 * Every float32 packet p carries the exponent of block p while there is one, so the exponent of block j is agreed by the
 * result of packet j, at least one round trip before packet m + j needs it.
 */
#include "codec.h"
#include "protocols.h"
#include "switchml_state.h"

#include <errno.h>
#include <string.h>

static int valid(const struct ina_worker_config *c)
{
    return c->workers >= 1 && c->workers <= INA_MAX_WORKERS && c->worker < c->workers && c->job <= 255 && c->slots >= 1
           && c->slots <= 8192 && !(c->slots & (c->slots - 1)) && ina_wire_size_code(c->values) >= 0 && c->rto_min_ps
           && c->rto_min_ps <= c->rto_max_ps && c->timeout_ps && c->first_packet < 1ull << 63;
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
    ina_frame_prepare(&st->frame, config);
    st->slots_log2 = (uint32_t)__builtin_ctz(config->slots);
    st->shift = (uint32_t)ina_codec_shift((int)config->workers);
    struct slot *slots = slots_of(st);
    st->next_seq = config->first_packet;
    for (uint32_t i = 0; i < config->slots; i++)
        slots[i].seq = st->next_seq + ((i - st->next_seq) & (config->slots - 1));
    struct tail *tail = tail_of(st);
    ina_rto_init(&tail->rto, config->slots, config->rto_min_ps, config->rto_max_ps);
    publish_rto(tail);
    return 0;
}

/* ---- which packet is it? ---------------------------------------------------------------------------------------- */

static uint32_t op_of(struct state *st, uint64_t seq)
{
    uint64_t low = st->ops_begin, high = st->ops_end; /* the last op whose first packet is not after seq */
    while (high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;
        if (op_at(st, middle)->first <= seq)
            low = middle;
        else
            high = middle;
    }
    return (uint32_t)(low % INA_MAX_OPS);
}

/* What can slot do next, now that the packet before seq is answered, or a tensor has come? */
static void settle(struct state *st, uint32_t index, uint64_t now)
{
    struct slot *slot = &slots_of(st)[index];
    slot->state = IDLE;
    slot->has_seen = 0;
    slot->seen = 0;
    slot->op = 0;
    if (slot->seq >= st->next_seq)
        return;
    slot->op = (uint8_t)op_of(st, slot->seq);
    const struct op *op = &st->op[slot->op];
    const uint64_t p = slot->seq - op->first;
    if (!tail_of(st)->started[slot->op])
        tail_of(st)->started[slot->op] = now ? now : 1;
    if (has_exponents(op) && p >= op->ahead && agreed_of(st, slot->op)[(p - op->ahead) & (st->config.slots - 1)] == UNKNOWN) {
        slot->state = BLOCKED;
        return;
    }
    slot->state = READY;
    set_ready(st, index);
}

static void fail(struct state *st, uint32_t code, uint32_t handle);

/* ---- submit ------------------------------------------------------------------------------------------------------ */

/* splitmix64's finaliser: every bit of the input changes half of the output. */
static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/* Equal on all workers if, and but for a chance of 2^-75 only if, they submit the same. A worker sends its own words and
 * gets the sums: n times its own. Every worker of a group that disagrees sees it, also when several differ. */
static void fingerprint(uint32_t words[FINGERPRINT_WORDS], const struct ina_tensor *t)
{
    for (uint32_t i = 0; i < FINGERPRINT_WORDS; i++) {
        uint64_t h = mix(0x9e3779b97f4a7c15ull * (i + 1));
        h = mix(h ^ t->count);
        h = mix(h + t->tag);
        h = mix(h ^ ((uint64_t)t->dtype << 32 | t->average));
        words[i] = (uint32_t)(h >> (64 - FINGERPRINT_BITS));
    }
}

static int next_handle(const void *state)
{
    const struct state *st = state;
    if (st->failed)
        return -EPIPE;
    return st->ops_end - st->ops_begin < INA_MAX_OPS ? (int)(st->ops_end % INA_MAX_OPS) : -EAGAIN;
}

int ina_tensor_valid(const struct ina_tensor *t)
{
    return t->dtype <= INA_FLOAT32 && t->average <= 1 && (!t->average || t->dtype == INA_FLOAT32)
           && (!t->count || (t->in && t->out)) && t->count <= UINT64_MAX / 8;
}

static int submit(void *state, const struct ina_tensor *tensors, int handle, uint64_t now)
{
    struct state *st = state;
    const int expected = next_handle(st);
    if (expected < 0)
        return expected;
    if (handle != expected)
        return -EINVAL;
    const struct ina_tensor *t = &tensors[handle];
    if (!ina_tensor_valid(t))
        return -EINVAL;

    const uint32_t slots = st->config.slots, room = st->config.values - FINGERPRINT_WORDS;
    struct op *op = &st->op[handle];
    memset(op, 0, sizeof *op);
    op->first = st->next_seq;
    op->count = t->count;
    op->dtype = (uint8_t)t->dtype;
    op->average = (uint8_t)t->average;
    op->is_inline = t->count <= (t->dtype == INA_FLOAT32 ? room / INA_EXACT_WORDS : room);
    op->blocks = op->is_inline ? 0 : (t->count - 1) / st->config.values + 1;
    op->ahead = has_exponents(op) ? (op->blocks < slots ? op->blocks : slots) : 1;
    op->packets = op->unanswered = op->ahead + op->blocks;
    fingerprint(op->fingerprint, t);
    if (has_exponents(op))
        memset(agreed_of(st, (uint32_t)handle), UNKNOWN, op->ahead);

    st->fetched &= ~(1ull << handle);
    tail_of(st)->started[handle] = 0;
    st->ops_end++;
    st->next_seq += op->packets;
    /* A slot without work waits at the next packet that is its own: one of those that have just come. */
    const uint64_t fresh = op->packets < slots ? op->packets : slots;
    for (uint64_t seq = op->first; seq < op->first + fresh; seq++) {
        const uint32_t index = (uint32_t)(seq & (slots - 1));
        if (slots_of(st)[index].state == IDLE)
            settle(st, index, now);
    }
    return handle;
}

/* ---- sending ----------------------------------------------------------------------------------------------------- */

static void encode_open(const struct state *st, const struct op *op, const struct ina_tensor *t, uint8_t *wire, int *e0)
{
    const uint32_t words = FINGERPRINT_WORDS;
    ina_codec_put_int32(wire, (const int32_t *)op->fingerprint, words);
    wire += 4 * words;
    uint64_t used = 0;
    if (op->is_inline && op->dtype == INA_INT32) {
        ina_codec_put_int32(wire, t->in, op->count);
        used = op->count;
    } else if (op->is_inline) {
        *e0 = ina_codec_encode_exact(wire, t->in, op->count);
        used = op->count * INA_EXACT_WORDS;
    }
    memset(wire + 4 * used, 0, 4 * (st->config.values - words - used));
}

/* Writes the slot's packet into pkt and starts its timer. 0, or -1: no room in pkt. */
static int transmit(struct state *st, const struct ina_tensor *tensors, struct ina_packet *pkt, uint32_t index,
                    uint64_t now)
{
    struct tail *tail = tail_of(st);
    struct slot *slot = &slots_of(st)[index];
    const struct op *op = &st->op[slot->op];
    const struct ina_tensor *t = &tensors[slot->op];
    const uint64_t p = slot->seq - op->first;
    const uint32_t values = st->config.values;
    const int with_values = has_values(op, p);
    if (pkt->len + pkt->tailroom < ina_frame_length(&st->frame, with_values))
        return -1;

    int e0 = INA_EXP_MIN;
    if (has_exponents(op) && p < op->blocks)
        e0 = ina_codec_exponent((const float *)t->in + p * values, block_values(st, op, p));
    uint8_t *wire = ina_frame_write(pkt, &st->frame, with_values, (uint32_t)slot->seq, index,
                                    slot->seq >> st->slots_log2 & 1, e0);
    if (p == 0) {
        encode_open(st, op, t, wire, &e0);
        ((struct ina_wire_frame *)pkt->data)->e0 = (int8_t)e0;
    } else if (with_values) {
        const uint64_t block = p - op->ahead, count = block_values(st, op, block);
        if (op->dtype == INA_INT32)
            ina_codec_put_int32(wire, (const int32_t *)t->in + block * values, count);
        else
            ina_codec_encode(wire, (const float *)t->in + block * values, count,
                             agreed_of(st, slot->op)[block & (st->config.slots - 1)], (int)st->shift);
        memset(wire + 4 * count, 0, 4 * (values - count));
    }

    clear_ready(st, index);
    tail->stats.tx_packets++;
    tail->stats.tx_bytes += pkt->len;
    tail->stats.retransmissions += slot->state == FLYING;
    slot->state = FLYING;
    ina_rto_sent(&tail->rto, index, now);
    return 0;
}

/* The next slot with something to send, going round from the cursor; -1: none. */
static int next_ready(const struct state *st, uint32_t cursor)
{
    const uint64_t *ready = ready_of(st);
    const uint32_t words = ready_words(st->config.slots);
    uint32_t word = cursor / 64;
    uint64_t bits = ready[word] & ~0ull << cursor % 64;
    for (uint32_t i = 0; i <= words; i++) {
        if (bits)
            return (int)(word * 64 + (uint32_t)__builtin_ctzll(bits));
        word = word + 1 < words ? word + 1 : 0;
        bits = ready[word];
    }
    return -1;
}

static uint64_t deadline(const struct state *st)
{
    if (st->ops_open == st->ops_end)
        return UINT64_MAX;
    const uint64_t start = tail_of(st)->started[st->ops_open % INA_MAX_OPS];
    return start > UINT64_MAX - st->config.timeout_ps ? UINT64_MAX : start + st->config.timeout_ps;
}

static int frames_to_send(void *state, const struct ina_tensor *tensors, struct ina_packet *pkts, int n, uint64_t now)
{
    struct state *st = state;
    struct tail *tail = tail_of(st);
    if (st->failed)
        return 0;
    if (deadline(st) <= now) {
        fail(st, INA_ERR_TIMEOUT, (uint32_t)(st->ops_open % INA_MAX_OPS));
        return 0;
    }
    for (int index, probe; (index = ina_rto_expired(&tail->rto, now, &probe)) >= 0;) {
        set_ready(st, (uint32_t)index);
        tail->stats.timeouts += !probe;
        tail->stats.probes += (uint64_t)probe;
    }
    int filled = 0;
    while (filled < n) {
        const int index = next_ready(st, tail->cursor);
        if (index < 0 || transmit(st, tensors, &pkts[filled], (uint32_t)index, now) < 0)
            break;
        tail->cursor = ((uint32_t)index + 1) & (st->config.slots - 1);
        filled++;
    }
    return filled;
}

static uint64_t next_timer(const void *state)
{
    const struct state *st = state;
    if (st->failed)
        return UINT64_MAX;
    const uint64_t timer = ina_rto_next(&tail_of(st)->rto), end = deadline(st);
    return timer < end ? timer : end;
}

static int expire(void *state, uint32_t index, uint64_t now)
{
    struct state *st = state;
    (void)now;
    if (st->failed || index >= st->config.slots || slots_of(st)[index].state != FLYING)
        return -ENOENT;
    ina_rto_stop(&tail_of(st)->rto, index);
    set_ready(st, index);
    return 0;
}

/* ---- receiving --------------------------------------------------------------------------------------------------- */

/* 0, or -1: the workers do not agree on this tensor. */
static int decode_open(const struct state *st, const struct op *op, const struct ina_tensor *t,
                       const struct ina_frame_view *view)
{
    int32_t sums[FINGERPRINT_WORDS];
    ina_codec_get_int32(sums, view->values, FINGERPRINT_WORDS);
    for (int i = 0; i < FINGERPRINT_WORDS; i++)
        if ((uint32_t)sums[i] != st->config.workers * op->fingerprint[i])
            return -1;
    const uint8_t *wire = view->values + 4 * FINGERPRINT_WORDS;
    if (!op->is_inline)
        return 0;
    if (op->dtype == INA_INT32)
        ina_codec_get_int32(t->out, wire, op->count);
    else if (view->e0 == INA_EXP_NONFINITE)
        ina_codec_decode(t->out, wire, op->count, INA_EXP_NONFINITE, (int)st->shift, 1);
    else
        ina_codec_decode_exact(t->out, wire, op->count, op->average ? (int)st->config.workers : 1);
    return 0;
}

static void decode_block(const struct state *st, const struct op *op, const struct ina_tensor *t, uint32_t handle,
                         uint64_t block, const uint8_t *wire)
{
    const uint64_t count = block_values(st, op, block), at = block * st->config.values;
    if (op->dtype == INA_INT32) {
        ina_codec_get_int32((int32_t *)t->out + at, wire, count);
        return;
    }
    const int exponent = agreed_of(st, handle)[block & (st->config.slots - 1)];
    tail_of(st)->stats.nonfinite_blocks += exponent == INA_EXP_NONFINITE;
    ina_codec_decode((float *)t->out + at, wire, count, exponent, (int)st->shift,
                     op->average ? (int)st->config.workers : 1);
}

/* The exponent of a block is known: its packet may have waited for it in another slot. */
static void agree(struct state *st, uint32_t handle, uint64_t block, int8_t exponent, uint64_t now)
{
    const struct op *op = &st->op[handle];
    agreed_of(st, handle)[block & (st->config.slots - 1)] = exponent;
    const uint64_t seq = op->first + op->ahead + block;
    const uint32_t index = (uint32_t)(seq & (st->config.slots - 1));
    if (slots_of(st)[index].state == BLOCKED && slots_of(st)[index].seq == seq)
        settle(st, index, now);
}

/* An open packet is answered. When a tensor disagrees, an older one may too, and another worker may need this worker's
 * open packet of that one to see it: so the job fails once every older tensor is open. -1: go no further with this one. */
static int open_answered(struct state *st, uint32_t handle, int mismatch)
{
    struct op *op = &st->op[handle];
    op->opened = 1;
    op->mismatch = (uint8_t)mismatch;
    st->suspect |= (uint32_t)mismatch;
    if (!st->suspect)
        return 0;
    for (uint64_t ordinal = st->ops_open; ordinal < st->ops_end && op_at(st, ordinal)->opened; ordinal++) {
        if (op_at(st, ordinal)->mismatch) {
            fail(st, INA_ERR_MISMATCH, (uint32_t)(ordinal % INA_MAX_OPS));
            return -1;
        }
    }
    return mismatch ? -1 : 0;
}

static void answered(struct state *st, uint32_t handle)
{
    struct op *op = &st->op[handle];
    struct ina_worker_stats *stats = &tail_of(st)->stats;
    if (--op->unanswered)
        return;
    stats->tensors++;
    stats->elements += op->count;
    st->done[st->done_end++ % INA_MAX_OPS] = (uint8_t)handle;
    while (st->ops_open < st->ops_end && !op_at(st, st->ops_open)->unanswered)
        st->ops_open++;
}

static int receive(void *state, const struct ina_tensor *tensors, struct ina_packet *pkt, uint64_t now)
{
    struct state *st = state;
    struct tail *tail = tail_of(st);
    struct ina_worker_stats *stats = &tail->stats;
    struct ina_frame_view view;

    stats->rx_packets++;
    stats->rx_bytes += pkt->len;
    switch (ina_frame_parse(&view, pkt, &st->frame, &st->config)) {
    case INA_FRAME_OK: break;
    case INA_FRAME_FOREIGN: stats->drop_foreign++; return 0;
    default: stats->drop_malformed++; return 0;
    }

    struct slot *slot = &slots_of(st)[view.slot];
    const uint64_t seq = slot->seq;
    if (st->failed || slot->state != FLYING || view.tsi != (uint32_t)seq || view.set != (seq >> st->slots_log2 & 1)) {
        const uint64_t before = seq - st->config.slots;
        if (!view.pending && seq >= st->config.first_packet + st->config.slots && view.tsi == (uint32_t)before) {
            stats->duplicates++;
            ina_rto_duplicate(&tail->rto, view.slot, now);
            publish_rto(tail);
        } else {
            stats->drop_stale++;
        }
        return 0;
    }
    if (view.pending) {
        stats->pending_replies++;
        tail->last_rx = now;
        slot->seen = view.seen;
        slot->has_seen = 1;
        clear_ready(st, view.slot);
        ina_rto_pending(&tail->rto, view.slot, now);
        publish_rto(tail);
        return 0;
    }

    const uint32_t handle = slot->op;
    struct op *op = &st->op[handle];
    const uint64_t p = seq - op->first;
    const int carries_exponent = has_exponents(op) && p < op->blocks;
    if (view.with_values != has_values(op, p) || (carries_exponent && view.e0 < INA_EXP_MIN)) {
        stats->drop_malformed++;
        return 0;
    }
    if (p == 0 && open_answered(st, handle, decode_open(st, op, &tensors[handle], &view) < 0) < 0) {
        tail->last_rx = now;
        slot->state = BLOCKED; /* for good */
        clear_ready(st, view.slot);
        ina_rto_stop(&tail->rto, view.slot);
        return 0;
    }
    if (p == 0 && op->is_inline && op->dtype == INA_FLOAT32)
        stats->nonfinite_blocks += view.e0 == INA_EXP_NONFINITE;
    if (p >= op->ahead)
        decode_block(st, op, &tensors[handle], handle, p - op->ahead, view.values);

    stats->results++;
    tail->last_rx = now;
    op->overflow |= view.overflow;
    stats->overflows += view.overflow;
    clear_ready(st, view.slot);
    ina_rto_result(&tail->rto, view.slot, now);
    publish_rto(tail);
    answered(st, handle);
    slot->seq = seq + st->config.slots;
    slot->state = IDLE;
    if (carries_exponent)
        agree(st, handle, p, view.e0, now);
    settle(st, view.slot, now);
    return st->config.reply_in_place && slot->state == READY && transmit(st, tensors, pkt, view.slot, now) == 0;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

/* The job is over. Remembers the oldest unanswered packet of the tensor, and puts it first among those that fail. */
static void fail(struct state *st, uint32_t code, uint32_t handle)
{
    const struct slot *slots = slots_of(st);
    const struct op *op = &st->op[handle];
    uint64_t oldest = UINT64_MAX;
    st->failed = code;
    if (st->ops_open == st->ops_end)
        return; /* nothing in flight */
    for (uint32_t i = 0; i < st->config.slots; i++) {
        if (slots[i].state == IDLE || slots[i].seq >= oldest || slots[i].seq < op->first
            || slots[i].seq >= op->first + op->packets)
            continue;
        oldest = slots[i].seq;
        st->culprit_slot = i;
        st->culprit_tsi = (uint32_t)oldest;
        st->have_missing = slots[i].has_seen;
        st->missing = slots[i].has_seen ? (uint32_t)((1ull << st->config.workers) - 1) & ~slots[i].seen : 0;
    }
    st->done[st->done_end++ % INA_MAX_OPS] = (uint8_t)handle;
    for (uint64_t ordinal = st->ops_open; ordinal < st->ops_end; ordinal++)
        if (op_at(st, ordinal)->unanswered && ordinal % INA_MAX_OPS != handle)
            st->done[st->done_end++ % INA_MAX_OPS] = (uint8_t)(ordinal % INA_MAX_OPS);
    st->ops_open = st->ops_end;
}

static int abort_job(void *state, uint32_t code, uint64_t now)
{
    struct state *st = state;
    (void)now;
    if (!code)
        return -EINVAL;
    if (!st->failed)
        fail(st, code, (uint32_t)(st->ops_open % INA_MAX_OPS));
    return 0;
}

static int events(void *state, struct ina_event *out, int max)
{
    struct state *st = state;
    int n = 0;
    for (; n < max && st->done_begin < st->done_end; n++) {
        const uint32_t handle = st->done[st->done_begin++ % INA_MAX_OPS];
        const struct op *op = &st->op[handle];
        out[n] = (struct ina_event){.type = INA_EVENT_DONE, .op = handle, .overflow = op->overflow,
                                    .last_rx = tail_of(st)->last_rx};
        if (op->unanswered) {
            out[n].type = INA_EVENT_FAILED;
            out[n].code = st->failed;
            out[n].slot = st->culprit_slot;
            out[n].tsi = st->culprit_tsi;
            out[n].missing = st->missing;
            out[n].have_missing = st->have_missing;
        }
        st->fetched |= 1ull << handle;
    }
    while (st->ops_begin < st->ops_end && (st->fetched >> st->ops_begin % INA_MAX_OPS & 1))
        st->ops_begin++;
    return n;
}

const struct ina_protocol ina_switchml = {
    .name = "switchml",
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
