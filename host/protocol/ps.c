/* The parameter server. Packet number q has row q mod (2 * slots); a row is one *phase*: a number, in integers or in floats.
 *
 * A worker sends q only when it has the result of q - slots, so that when a packet for q arrives, every worker has the result
 * of q - 2 * slots: nobody needs the row that it takes (docs/design/protocol-atp.md has the proof; it is that of SwitchML's rows).
 * Within a phase, packets of workers that are in the sum already are not added. So each worker's values are in it once.
 *
 * A phase may be one of offers: its row has who contributes to the sum that follows, and is complete when that is decided.
 */
#include "ps.h"

#include "atp_frame.h"
#include "codec.h"
#include "keyed.h"
#include "memory.h"
#include "values.h"

#include <errno.h>
#include <string.h>

struct row {
    uint64_t seq;            /* 40 bits */
    uint32_t bitmap;         /* workers in the sum; 0: the row was never used */
    uint32_t ask;            /* workers to be answered */
    uint16_t index;          /* aggregator that the result frees */
    uint8_t floats, flags;
    uint8_t kind;            /* type of the packets in the sum; 0: they have no values */
    uint8_t integer_flags;   /* floats: flags of the result in integers */
    uint8_t ask_integers;    /* floats: reply that integers did not suffice */
    uint8_t queued;
    int8_t exponent;
    uint8_t check;           /* how the check words are made, by the packets that were added */
    uint8_t decided;         /* offers: who contributes does not change any more */
    uint8_t brought;         /* 1: the sum has values */
    uint8_t padding[4];      /* states are compared byte by byte */
    uint32_t receivers, members; /* of a sum from and for some workers; members 0: of all, for all */
    union {
        struct ina_check sum; /* of their check words */
        struct { uint32_t contributors, passed; } offers; /* workers that contribute, and that never will */
    };
};
static_assert(sizeof(struct row) == 48, "no padding");

struct state {
    struct ina_ps_config config;
    uint64_t full, queue_begin, queue_length; /* full: the bitmap of all workers; rows that wait in the queue */
    /* then: struct row [rows], uint32_t queue[rows], sums: room for as many doubles as values for each row, which are uint32_t or double, struct ina_keyed */
};

static uint32_t rows_of(const struct ina_ps_config *config)
{
    return 2 * config->slots;
}

static size_t sums_offset(const struct ina_ps_config *config)
{
    return ina_whole_lines(sizeof(struct state) + rows_of(config) * (sizeof(struct row) + sizeof(uint32_t)));
}

static struct row *row_at(const struct state *st, uint32_t row)
{
    return (struct row *)(st + 1) + row;
}

static int is_complete(const struct state *st, const struct row *row)
{
    return row->kind == INA_ATP_OFFER ? row->decided
           : row->members             ? row->bitmap == row->members
                                      : ina_rule_complete(st->config.rule, row->bitmap, st->full);
}

static uint32_t *queue_of(const struct state *st)
{
    return (uint32_t *)row_at(st, rows_of(&st->config));
}

static void *sums_at(const struct state *st, uint32_t row)
{
    return (uint8_t *)st + sums_offset(&st->config) + (size_t)row * sizeof(double) * st->config.values;
}

static size_t keyed_offset(const struct ina_ps_config *config)
{
    return sums_offset(config) + (size_t)rows_of(config) * sizeof(double) * config->values;
}

static struct ina_keyed *keyed_of(const struct state *st)
{
    return (struct ina_keyed *)((uint8_t *)st + keyed_offset(&st->config));
}

static int valid(const struct ina_ps_config *c)
{
    return c->workers >= 1 && c->workers <= INA_BITMAP_WORKERS && c->job <= 255 && c->life && c->life <= 65535 && c->slots >= 1
           && c->slots <= 8192 && !(c->slots & (c->slots - 1)) && ina_lane_holds(c->lane, c->values) && c->direct <= 1 && c->multicast <= 1
           && !(c->direct && c->multicast) && c->routes <= 1 && c->keyed <= 1 && (!c->keyed || c->lane == INA_KEYED_LANE) && ina_rule_valid(c->rule);
}

size_t ina_ps_stats_offset(const struct ina_ps_config *config)
{
    return valid(config) ? keyed_offset(config) + (config->keyed ? ina_whole_lines(ina_keyed_size(config->values)) : 0) : 0;
}

size_t ina_ps_state_size(const struct ina_ps_config *config)
{
    return valid(config) ? ina_whole_lines(ina_ps_stats_offset(config) + sizeof(struct ina_ps_stats)) : 0;
}

uint32_t ina_ps_frame_size(const struct ina_ps_config *config)
{
    return INA_ATP_PAYLOAD + (config->routes ? INA_ATP_MOST_EXTRA : 0u) + (uint32_t)ina_lane_bytes(config->lane, config->values);
}

static struct ina_ps_stats *stats_of(const struct state *st)
{
    return (struct ina_ps_stats *)((uint8_t *)st + ina_ps_stats_offset(&st->config));
}

int ina_ps_init(void *state, const struct ina_ps_config *config, uint64_t now)
{
    struct state *st = state;
    (void)now;
    if (!valid(config))
        return -EINVAL;
    memset(st, 0, ina_ps_state_size(config));
    st->config = *config;
    st->full = (1ull << config->workers) - 1;
    if (config->keyed)
        ina_keyed_init(keyed_of(st), config->key, config->values);
    return 0;
}

uint64_t ina_ps_next_timer(const void *state)
{
    (void)state;
    return UINT64_MAX;
}

int ina_ps_job_of(const struct ina_packet *pkt)
{
    struct ina_atp_wire h;
    if (pkt->len < INA_ATP_PAYLOAD)
        return -1;
    memcpy(&h, pkt->data, INA_ATP_PAYLOAD);
    const uint32_t type = h.type_flags >> INA_ATP_TYPE_SHIFT;
    if (ina_internet_payload(&h.net, pkt->len) < 0 || !ina_atp_upwards(type))
        return -1;
    return ina_atp_job(h.identity);
}

/* ---- receiving --------------------------------------------------------------------------------------------------- */

/* 1: it is of this job, and its source may send for those workers. */
static int ours(const struct state *st, const struct ina_atp_view *view)
{
    const struct ina_ps_config *c = &st->config;
    if (view->job != c->job || view->life != c->life || !view->bitmap || (view->bitmap & ~st->full))
        return 0;
    if (!c->direct)
        return ina_internet_is(&view->net, &c->peer, &c->self);
    return !(view->bitmap & (view->bitmap - 1))
           && ina_internet_is(&view->net, &c->worker[__builtin_ctz(view->bitmap)], &c->self);
}

static void answer(struct state *st, uint32_t number, uint32_t workers)
{
    struct row *row = row_at(st, number);
    row->ask |= workers;
    if (row->queued)
        return;
    row->queued = 1;
    queue_of(st)[(st->queue_begin + st->queue_length++) & (rows_of(&st->config) - 1)] = number;
}

#define ONCE(kernel, lane, ...) kernel(lane, __VA_ARGS__)

/* *overflow: its bit for the sign is set if a signed overflow happened. */
INA_KERNEL_PART void added(uint32_t lane, uint32_t *restrict sums, const uint8_t *restrict wire, uint32_t count, int first,
                           uint32_t *restrict overflow)
{
    uint32_t any = 0;
    for (size_t i = 0; first && i < count; i++)
        sums[i] = load_value(lane, wire, i);
    for (size_t i = 0; !first && i < count; i++)
        sums[i] = ina_lane_sum(sums[i], load_value(lane, wire, i), &any);
    *overflow = any;
}

/* 1: a signed overflow happened. */
INA_KERNEL static int add_integers(uint32_t lane, uint32_t *restrict sums, const uint8_t *restrict wire, uint32_t count, int first)
{
    uint32_t overflow;
    INA_BY_LANE(lane, ONCE, added, sums, wire, count, first, &overflow)
    return ina_lane_overflown(lane, overflow);
}

INA_KERNEL_PART void larger(uint32_t lane, int32_t *restrict sums, const uint8_t *restrict wire, uint32_t count, int first)
{
    for (size_t i = 0; i < count; i++) {
        const int32_t value = (int32_t)load_value(lane, wire, i);
        sums[i] = first || value > sums[i] ? value : sums[i];
    }
}

INA_KERNEL static void take_maxima(uint32_t lane, int32_t *restrict sums, const uint8_t *restrict wire, uint32_t count, int first)
{
    INA_BY_LANE(lane, ONCE, larger, sums, wire, count, first)
}

INA_KERNEL static void add_floats(double *restrict sums, const uint8_t *restrict wire, uint32_t count, int first)
{
    for (size_t i = 0; i < count; i++) {
        const float value = float_of(load_value(INA_LANE_INT32, wire, i));
        sums[i] = first ? (double)value : sums[i] + (double)value;
    }
}

static struct ina_check nonce(const struct state *st, uint64_t seq, int floats)
{
    return ina_atp_nonce(st->config.life, st->config.job, seq, floats ? INA_CHECK_FLOATS : INA_CHECK_INTEGERS, 0);
}

static struct ina_keyed_packet floats_of(uint64_t seq)
{
    return (struct ina_keyed_packet){.number = seq, .kind = INA_CHECK_FLOATS};
}

/* 1: the packet's values are those of its workers, as far as the check words say. Of integers the second word depends on the exponent, which
 * only workers know; so does the whole tag of mode keyed, which workers check. */
static int fits(const struct state *st, const struct ina_atp_view *view)
{
    if (st->config.keyed != (view->check == INA_CHECK_KEYED))
        return !view->values;
    if (st->config.keyed && view->type == INA_ATP_FLOATS) {
        const struct ina_keyed_packet packet = floats_of(view->seq);
        return !(view->bitmap & (view->bitmap - 1))
               && ina_keyed_fits(keyed_of(st), &packet, (uint32_t)__builtin_ctz(view->bitmap), 1,
                                 (struct ina_check){{view->check0, view->check1}}, 0, view->values);
    }
    if (st->config.keyed)
        return view->type != INA_ATP_MAXIMA;
    if (!view->check || !view->values || view->type == INA_ATP_MAXIMA)
        return 1;
    const int floats = view->type == INA_ATP_FLOATS;
    struct ina_check check = ina_check_begin(nonce(st, view->seq, floats), (uint32_t)__builtin_popcount(view->bitmap));
    ina_check_add(st->config.lane, &check, view->values, st->config.values);
    return ina_check_fits(st->config.lane, check, view->check0, floats ? view->check1 : check.word[1], (view->flags & INA_ATP_OVERFLOW) != 0);
}

/* Adds a packet unless its workers overlap with the sum's. */
static void merge(struct state *st, uint32_t number, const struct ina_atp_view *view, uint64_t now)
{
    struct row *row = row_at(st, number);
    struct ina_ps_stats *stats = stats_of(st);
    const int first = !row->brought, single = !(view->bitmap & (view->bitmap - 1));
    const uint8_t kind = view->values || view->members ? view->type : 0;
    if (!row->bitmap) {
        row->exponent = view->exponent;
        row->kind = kind;
        row->check = view->check;
        row->sum = (struct ina_check){{0}};
    } else if (row->kind != kind || row->check != view->check
               || (kind == INA_ATP_TO && (row->receivers != view->receivers || row->members != view->members))) {
        stats->drop_malformed++;
        return;
    }
    if (kind == INA_ATP_FLOATS)
        add_floats(sums_at(st, number), view->values, st->config.values, first);
    else if (kind == INA_ATP_MAXIMA)
        take_maxima(st->config.lane, sums_at(st, number), view->values, st->config.values, first);
    else if (view->values && add_integers(st->config.lane, sums_at(st, number), view->values, st->config.values, first))
        row->flags |= INA_ATP_OVERFLOW;
    row->sum.word[0] += view->check0;
    row->sum.word[1] += view->check1;
    row->flags |= view->flags & (INA_ATP_COLLISION | INA_ATP_ECN | INA_ATP_OVERFLOW);
    if (view->exponent > row->exponent)
        row->exponent = view->exponent;
    row->brought |= view->values != NULL;
    row->bitmap |= view->bitmap;
    row->index = view->index;
    stats->merged_raw += (uint64_t)single;
    stats->merged_partial += (uint64_t)!single;
    stats->float_packets += row->floats;
    stats->last_rx_ps = now;
    if (is_complete(st, row)) {
        stats->results++;
        answer(st, number, row->members ? row->members : (uint32_t)st->full);
    } else if (view->flags & INA_ATP_RESEND) {
        answer(st, number, view->bitmap);
    }
}

static void begin(struct row *row, const struct ina_atp_view *view, int floats)
{
    const uint8_t queued = row->queued; /* it keeps its place, with nobody to answer */
    const int again = row->bitmap && row->seq == view->seq; /* in floats, as integers did not suffice */
    *row = (struct row){.seq = view->seq, .floats = (uint8_t)floats, .integer_flags = again ? row->flags : 0, .queued = queued,
                        .receivers = again ? row->receivers : view->receivers, .members = again ? row->members : view->members};
}

/* 1: an offer of one worker. */
static int is_offer(const struct state *st, const struct ina_atp_view *view)
{
    return !st->config.keyed && !(view->bitmap & (view->bitmap - 1)) && ina_atp_state(view) <= INA_OFFER_PASS && ina_atp_least(view)
           && ina_atp_least(view) <= st->config.workers && !(view->check0 & (view->bitmap | ~(uint32_t)st->full));
}

/* 1: a packet that names receivers and members may do so: its workers are some of the members, and these of the job's; or it names none. */
static int has_sets(const struct state *st, const struct ina_atp_view *view)
{
    if (view->type != INA_ATP_TO)
        return 1;
    return st->config.routes && !st->config.keyed && !(view->members & ~(uint32_t)st->full) && !(view->receivers & ~view->members)
           && !(view->bitmap & ~view->members);
}

/* An offer in a phase that is open, by the rule of p4/include/quorum/offers.p4. It is decided when a packet of every worker has come, and so many
 * contribute as this one says are enough, or nobody is left who may. */
static void offer(struct state *st, uint32_t number, const struct ina_atp_view *view, uint64_t now)
{
    struct row *row = row_at(st, number);
    struct ina_ps_stats *stats = stats_of(st);
    const uint32_t worker = view->bitmap, state = ina_atp_state(view);
    const uint32_t again = (row->bitmap & worker) != 0, known = ((row->offers.contributors | row->offers.passed) & worker) != 0;
    row->bitmap |= worker;
    stats->merged_raw += !again;
    stats->overlaps += again;
    stats->last_rx_ps = now;
    if (!known && state == INA_OFFER_GIVE && !(row->offers.contributors & view->check0))
        row->offers.contributors |= worker;
    else if (!known && state != INA_OFFER_ASK)
        row->offers.passed |= worker;
    const uint32_t enough = (uint32_t)__builtin_popcount(row->offers.contributors) >= ina_atp_least(view);
    row->decided = row->bitmap == st->full && (enough || (row->offers.contributors | row->offers.passed) == st->full);
    if (row->decided) {
        stats->results++;
        answer(st, number, (uint32_t)st->full);
    } else if (again && (known || state == INA_OFFER_ASK)) {
        answer(st, number, worker);
    }
}

/* Takes an offer: the row's phase is its number's, or becomes it; once decided, all that comes is answered with the contributors. */
static void take_offer(struct state *st, uint32_t number, const struct ina_atp_view *view, int begins, uint64_t now)
{
    struct row *row = row_at(st, number);
    struct ina_ps_stats *stats = stats_of(st);
    if (begins)
        *row = (struct row){.seq = view->seq, .kind = INA_ATP_OFFER, .queued = row->queued}; /* it keeps its place, as in begin */
    if (row->decided) {
        stats->overlaps++;
        stats->repeated++;
        answer(st, number, view->bitmap);
    } else {
        offer(st, number, view, now);
    }
}

int ina_ps_receive(void *state, struct ina_packet *pkt, uint64_t now)
{
    struct state *st = state;
    struct ina_ps_stats *stats = stats_of(st);
    struct ina_atp_view view;
    stats->rx_packets++;
    stats->rx_bytes += pkt->len;
    const enum ina_atp_verdict verdict = ina_atp_parse(&view, pkt, (uint32_t)ina_lane_bytes(st->config.lane, st->config.values));
    if (verdict != INA_ATP_OK || !ina_atp_upwards(view.type)) {
        *(verdict == INA_ATP_CORRUPT ? &stats->drop_corrupt
          : verdict == INA_ATP_VERSION ? &stats->drop_version : &stats->drop_malformed) += 1;
        return 0;
    }
    if (!ours(st, &view)) {
        stats->drop_foreign++;
        return 0;
    }
    const uint32_t number = (uint32_t)(view.seq & (rows_of(&st->config) - 1));
    struct row *row = row_at(st, number);
    const int floats = view.type == INA_ATP_FLOATS, resend = (view.flags & INA_ATP_RESEND) != 0;
    const uint64_t ahead = (view.seq - row->seq) & INA_ATP_SEQUENCE_MASK; /* serial number arithmetic, RFC 1982 */
    const int newer = ahead ? ahead < 1ull << (INA_ATP_SEQUENCE_BITS - 1) : floats > row->floats && row->kind != INA_ATP_OFFER;
    const int begins = !row->bitmap || (newer && is_complete(st, row)), offers = view.type == INA_ATP_OFFER;
    if ((offers && !is_offer(st, &view)) || !has_sets(st, &view) || (!begins && !ahead && offers != (row->kind == INA_ATP_OFFER))) {
        stats->drop_malformed++;
        return 0;
    }
    if (!begins && (ahead || floats != row->floats)) {
        if (!ahead && resend && !floats) { /* it has missed the reply that integers did not suffice */
            row->ask_integers = 1;
            answer(st, number, view.bitmap);
        }
        stats->drop_stale++;
        return 0;
    }

    if (offers) {
        take_offer(st, number, &view, begins, now);
        return 0;
    }
    if (begins || !(row->bitmap & view.bitmap)) { /* never a complete row: by the rule `all` it has everybody; another has to say what late values do */
        if (!fits(st, &view)) { /* first: a packet that is not what was sent does not take the row from its phase either */
            stats->drop_corrupt++;
            return 0;
        }
        if (begins)
            begin(row, &view, floats);
        merge(st, number, &view, now);
        return 0;
    }
    stats->overlaps++;
    if (resend) {
        stats->repeated += (uint64_t)is_complete(st, row);
        answer(st, number, view.bitmap);
    }
    return 0;
}

/* ---- sending ----------------------------------------------------------------------------------------------------- */

INA_KERNEL static void put_floats(uint8_t *restrict wire, const double *restrict sums, uint32_t count)
{
    for (size_t i = 0; i < count; i++)
        store_value(INA_LANE_INT32, wire, i, bits_of((float)sums[i]));
}

INA_KERNEL_PART void stored(uint32_t lane, uint8_t *restrict wire, const uint32_t *restrict sums, uint32_t count)
{
    for (size_t i = 0; i < count; i++)
        store_value(lane, wire, i, sums[i]);
}

INA_KERNEL static void put_integers(uint32_t lane, uint8_t *restrict wire, const uint32_t *restrict sums, uint32_t count)
{
    INA_BY_LANE(lane, ONCE, stored, wire, sums, count)
}

static void put_sums(const struct state *st, uint32_t number, uint8_t *wire)
{
    if (row_at(st, number)->floats)
        put_floats(wire, sums_at(st, number), st->config.values);
    else
        put_integers(st->config.lane, wire, sums_at(st, number), st->config.values);
}

/* Writes the answer of a row of offers for `workers`. There is room. */
static void write_choice(const struct state *st, struct ina_packet *pkt, const struct row *row, const struct ina_internet *net, uint32_t workers)
{
    const uint32_t full = (uint32_t)st->full, may = full & ~(row->offers.contributors | row->offers.passed);
    const uint32_t ranks = row->decided ? row->offers.contributors : row->bitmap != full ? full & ~row->bitmap : may;
    ina_atp_write(pkt, net, INA_ATP_ANSWER, 0, ina_atp_terms(row->decided ? INA_OFFER_DECIDED : INA_OFFER_OPEN, 0),
                  ina_atp_identity(st->config.life, st->config.job, row->seq), workers, 0);
    ina_atp_complete(pkt, INA_EXP_MIN, INA_CHECK_OFF, (struct ina_check){{ranks, 0}});
}

/* Writes any other row's answer, of this type, for `workers`. There is room. */
static void write_sums(const struct state *st, struct ina_packet *pkt, uint32_t number, const struct ina_internet *net, uint32_t type,
                       uint32_t payload, uint32_t workers)
{
    const struct ina_ps_config *c = &st->config;
    const struct row *row = row_at(st, number);
    const int integers = row->floats && row->ask_integers;
    uint8_t *wire = ina_atp_write(pkt, net, type, type == INA_ATP_PENDING ? 0 : integers ? row->integer_flags : row->flags, row->index,
                                  ina_atp_identity(c->life, c->job, row->seq), workers, ina_atp_kinds[type].extra + payload);
    if (ina_atp_is_routed(type))
        wire = ina_atp_put_sets(wire, row->receivers, row->members);
    if (type == INA_ATP_PENDING)
        memcpy(wire, &(uint32_t){htonl(row->bitmap)}, sizeof row->bitmap);
    else if (payload)
        put_sums(st, number, wire);
    struct ina_check check = {{0}};
    if ((type == INA_ATP_RESULT && payload) || (type == INA_ATP_TO_RESULT && !integers)) {
        check = row->sum;
    } else if (type == INA_ATP_FLOAT_RESULT && c->keyed) {
        const struct ina_keyed_packet packet = floats_of(row->seq);
        check = ina_keyed_result(keyed_of(st), &packet, wire);
    } else if (type == INA_ATP_FLOAT_RESULT && row->check) {
        check = nonce(st, row->seq, 1);
        ina_check_add(c->lane, &check, wire, c->values);
    }
    ina_atp_complete(pkt, integers ? INA_EXP_NONFINITE : row->exponent, row->check, check);
}

/* Writes the row's answer for `workers`. 0, or -1: no room in pkt. */
static int write_answer(struct state *st, struct ina_packet *pkt, uint32_t number, uint32_t workers)
{
    const struct ina_ps_config *c = &st->config;
    struct row *row = row_at(st, number);
    const int complete = is_complete(st, row), integers = row->floats && row->ask_integers;
    const uint32_t in_integers = row->members ? INA_ATP_TO_RESULT : INA_ATP_RESULT;
    const uint32_t type = row->kind == INA_ATP_OFFER ? INA_ATP_ANSWER
                          : integers                 ? in_integers
                          : !complete                ? INA_ATP_PENDING
                          : row->floats              ? INA_ATP_FLOAT_RESULT : in_integers;
    const uint32_t all = ina_atp_is_routed(type) ? row->receivers : UINT32_MAX;
    const uint32_t payload = type == INA_ATP_PENDING ? (uint32_t)sizeof(struct ina_atp_pending)
                             : !integers && row->brought && (workers & all) ? (uint32_t)ina_lane_bytes(c->lane, c->values) : 0;
    const uint32_t headers = INA_ATP_PAYLOAD + ina_atp_kinds[type].extra;
    if (pkt->len + pkt->tailroom < headers + payload)
        return -1;
    struct ina_internet net;
    ina_internet_write(&net, &c->self, c->direct ? &c->worker[__builtin_ctz(workers)] : &c->peer, headers - INA_INTERNET_SIZE + payload);
    if (type == INA_ATP_ANSWER)
        write_choice(st, pkt, row, &net, workers);
    else
        write_sums(st, pkt, number, &net, type, payload, workers);
    stats_of(st)->pending += type == INA_ATP_PENDING || (type == INA_ATP_ANSWER && !complete);
    stats_of(st)->tx_packets++;
    stats_of(st)->tx_bytes += pkt->len;
    return 0;
}

int ina_ps_frames_to_send(void *state, struct ina_packet *pkts, int n, uint64_t now)
{
    struct state *st = state;
    int filled = 0;
    (void)now;
    while (filled < n && st->queue_length) {
        const uint32_t number = queue_of(st)[st->queue_begin & (rows_of(&st->config) - 1)];
        struct row *row = row_at(st, number);
        if (row->ask) {
            const uint32_t lowest = row->ask & -row->ask;
            const int open = row->kind == INA_ATP_OFFER && !row->decided; /* who waits is told so when it asks, and nobody else */
            const uint32_t workers = st->config.multicast && row->ask != lowest && !open ? (uint32_t)st->full : lowest;
            if (write_answer(st, &pkts[filled], number, workers) < 0)
                break;
            filled++;
            row->ask &= ~workers;
        }
        if (!row->ask) {
            row->queued = row->ask_integers = 0;
            st->queue_begin = (st->queue_begin + 1) & (rows_of(&st->config) - 1);
            st->queue_length--;
        }
    }
    return filled;
}
