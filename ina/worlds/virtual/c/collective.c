#include "collective.h"
#include "internet.h"
#include "kernel.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct head {                  /* frames: collective.h */
    struct ina_internet net;
    uint8_t kind, flags;
    uint16_t rank;
    uint32_t number;
} __attribute__((packed));
struct data {
    struct head head;
    uint64_t sent;
    uint8_t values[];
} __attribute__((packed));
struct ack {
    struct head head;
    uint32_t limit, marked;
    uint64_t selective, echo;
} __attribute__((packed));
static_assert(sizeof(struct data) == INA_INTERNET_SIZE + 16 && sizeof(struct ack) == INA_INTERNET_SIZE + 32, "as in collective.h");

enum { SHORTEST = 60 /* bytes of a frame without its FCS */ };
enum { ELEMENT = sizeof(float) }; /* bytes of a tensor's element, in memory and in packets */
static_assert(sizeof(int32_t) == ELEMENT, "the same for integers");
enum { KIND_DATA = 1, KIND_ACK = 2, KIND_PROBE = 3, FLAG_PUSH = 1 };

struct step {                  /* a transfer of the tensor under way */
    struct ina_transfer transfer;
    uint32_t start, packets;   /* its first packet among those of the tensor in its flow */
    uint32_t left;             /* a receive: packets that have not arrived */
};

struct peer {
    struct ina_flow flow;
    uint32_t *sends, *receives; /* steps, in order */
    uint32_t send_count, receive_count;
    uint32_t offered;          /* sends whose packets the flow has */
    uint32_t send_hint, receive_hint;
    uint32_t out_base, in_base, in_end; /* packet numbers of the tensor under way */
    uint8_t **early;           /* packets of later tensors, by number mod window */
    struct ina_address address;
    uint64_t last_rx;          /* 0: it never sent a frame */
};

struct ina_collective {
    struct ina_collective_config config;
    struct ina_worker_stats stats;
    struct ina_address own;
    struct step *steps;
    uint32_t step_count, peer_count;
    struct peer *peers;
    uint32_t *peer_of;         /* by rank, UINT32_MAX: none */
    uint32_t *gates;           /* receives that are not complete */
    uint32_t turn;             /* the peer that sends next */
    uint64_t receives_left;
    uint64_t begun, submitted, done, reported; /* ordinals of tensors; handle = ordinal mod INA_MAX_OPS */
    const struct ina_tensor *tensor; /* under way, NULL: none */
    uint64_t deadline;         /* of it, UINT64_MAX: nothing to send, and no packet yet */
    int failed;                /* the rank: it sends nothing more */
    uint32_t late;             /* failed: the rank that was waited for */
};

void ina_collective_get_stats(const struct ina_collective *c, struct ina_worker_stats *stats)
{
    *stats = c->stats;
    for (uint32_t i = 0; i < c->peer_count; i++) {
        stats->retransmissions += c->peers[i].flow.again;
        stats->timeouts += c->peers[i].flow.timeouts;
    }
}

/* ---- building -------------------------------------------------------------------------------------------------------- */

void ina_collective_destroy(struct ina_collective *c)
{
    for (uint32_t i = 0; c->peers && i < c->peer_count; i++) {
        struct peer *p = &c->peers[i];
        for (uint32_t k = 0; p->early && k < c->config.window; k++)
            free(p->early[k]);
        free(p->early);
        free(p->sends);
        free(p->receives);
        ina_flow_destroy(&p->flow);
    }
    free(c->peers);
    free(c->peer_of);
    free(c->gates);
    free(c->steps);
    free(c);
}

static int fits(const struct ina_collective_config *config, const struct ina_transfer *t)
{
    return t->kind <= INA_COPY && t->peer < config->ranks && t->peer != config->rank && t->first <= t->last
           && t->last <= config->parts && t->gate <= t->last_gate && t->last_gate < config->gates
           && (t->kind == INA_SEND || t->gate > 0);
}

static int add_peer(struct ina_collective *c, const struct ina_address *addresses, uint32_t rank)
{
    struct peer *p = &c->peers[c->peer_count];
    c->peer_of[rank] = c->peer_count++;
    p->sends = calloc(c->step_count, sizeof *p->sends);
    p->receives = calloc(c->step_count, sizeof *p->receives);
    p->early = calloc(c->config.window, sizeof *p->early);
    p->address = addresses[rank];
    int bad = ina_flow_init(&p->flow, c->config.window, c->config.congestion, c->config.rto_ps);
    return p->sends && p->receives && p->early ? bad : -ENOMEM;
}

struct ina_collective *ina_collective_create(const struct ina_collective_config *config, const struct ina_address *addresses,
                                             const struct ina_transfer *transfers, uint32_t count)
{
    int ok = config->rank < config->ranks && config->values && config->parts && config->gates && config->rto_ps
             && config->timeout_ps && config->window && config->window <= 65536 && config->congestion <= INA_DCTCP;
    for (uint32_t i = 0; ok && i < count; i++)
        ok = fits(config, &transfers[i]);
    struct ina_collective *c = ok ? calloc(1, sizeof *c) : NULL;
    if (!c) {
        errno = ok ? ENOMEM : EINVAL;
        return NULL;
    }
    c->config = *config;
    c->own = addresses[config->rank];
    c->step_count = count;
    c->steps = calloc(count ? count : 1, sizeof *c->steps);
    c->peers = calloc(config->ranks, sizeof *c->peers);
    c->peer_of = malloc(config->ranks * sizeof *c->peer_of);
    c->gates = calloc(config->gates, sizeof *c->gates);
    int bad = c->steps && c->peers && c->peer_of && c->gates ? 0 : -ENOMEM;
    if (!bad)
        memset(c->peer_of, 0xff, config->ranks * sizeof *c->peer_of);
    for (uint32_t i = 0; !bad && i < count; i++) {
        c->steps[i].transfer = transfers[i];
        if (c->peer_of[transfers[i].peer] == UINT32_MAX)
            bad = add_peer(c, addresses, transfers[i].peer);
        struct peer *p = &c->peers[c->peer_of[transfers[i].peer]];
        if (!bad && transfers[i].kind == INA_SEND)
            p->sends[p->send_count++] = i;
        else if (!bad)
            p->receives[p->receive_count++] = i;
    }
    if (bad) {
        ina_collective_destroy(c);
        errno = ENOMEM;
        return NULL;
    }
    return c;
}

/* ---- a tensor -------------------------------------------------------------------------------------------------------- */

static uint64_t part_begin(const struct ina_collective *c, uint32_t part)
{
    return c->tensor->count * part / c->config.parts;
}

/* Numbers the packets of these steps consecutively in their flow; returns how many there are. */
static uint32_t lay_out(struct ina_collective *c, const uint32_t *list, uint32_t count)
{
    uint32_t packets = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct step *step = &c->steps[list[i]];
        uint64_t elements = part_begin(c, step->transfer.last) - part_begin(c, step->transfer.first);
        step->start = packets;
        step->packets = step->left = (uint32_t)((elements + c->config.values - 1) / c->config.values);
        packets += step->packets;
    }
    return packets;
}

/* Offers sends whose gates are open, in the order of each flow. */
static void offer(struct ina_collective *c, uint64_t now)
{
    for (uint32_t i = 0; i < c->peer_count; i++) {
        struct peer *p = &c->peers[i];
        for (; p->offered < p->send_count && !c->gates[c->steps[p->sends[p->offered]].transfer.gate]; p->offered++)
            ina_flow_offer(&p->flow, c->steps[p->sends[p->offered]].packets, now);
    }
}

/* Returns the step that has packet `number` of the tensor; searches from the last result on. */
static struct step *find(struct ina_collective *c, const uint32_t *list, uint32_t *hint, uint32_t number)
{
    while (number < c->steps[list[*hint]].start)
        --*hint;
    while (number >= c->steps[list[*hint]].start + c->steps[list[*hint]].packets)
        ++*hint;
    return &c->steps[list[*hint]];
}

static uint64_t element_of(const struct ina_collective *c, const struct step *step, uint32_t number)
{
    return part_begin(c, step->transfer.first) + (uint64_t)(number - step->start) * c->config.values;
}

static uint32_t elements_at(const struct ina_collective *c, const struct step *step, uint64_t first)
{
    uint64_t left = part_begin(c, step->transfer.last) - first;
    return left < c->config.values ? (uint32_t)left : c->config.values;
}

INA_KERNEL static void add_int32(int32_t *restrict to, const uint8_t *restrict from, uint32_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t value;
        memcpy(&value, from + ELEMENT * i, ELEMENT);
        to[i] = (int32_t)((uint32_t)to[i] + value);
    }
}

INA_KERNEL static void add_float32(float *restrict to, const uint8_t *restrict from, uint32_t count)
{
    for (size_t i = 0; i < count; i++) {
        float value;
        memcpy(&value, from + ELEMENT * i, ELEMENT);
        to[i] += value;
    }
}

static void start_clock(struct ina_collective *c, uint64_t now)
{
    if (c->deadline == UINT64_MAX && now < UINT64_MAX - c->config.timeout_ps)
        c->deadline = now + c->config.timeout_ps;
}

static void apply(struct ina_collective *c, struct peer *p, uint32_t number, const uint8_t *values, uint64_t now)
{
    struct step *step = find(c, p->receives, &p->receive_hint, number - p->in_base);
    if (!c->config.bare) {
        uint64_t first = element_of(c, step, number - p->in_base);
        uint32_t count = elements_at(c, step, first);
        if (step->transfer.kind == INA_COPY)
            memcpy((uint8_t *)c->tensor->out + ELEMENT * first, values, ELEMENT * (size_t)count);
        else if (c->tensor->dtype == INA_INT32)
            add_int32((int32_t *)c->tensor->out + first, values, count);
        else
            add_float32((float *)c->tensor->out + first, values, count);
    }
    if (--step->left)
        return;
    c->receives_left--;
    int opened = 0;
    for (uint32_t gate = step->transfer.gate; gate <= step->transfer.last_gate; gate++)
        opened |= !--c->gates[gate];
    if (opened)
        offer(c, now);
}

static void finish(struct ina_collective *c)
{
    if (c->tensor->average && !c->config.bare)
        for (uint64_t i = 0; i < c->tensor->count; i++)
            ((float *)c->tensor->out)[i] /= (float)c->config.ranks;
    c->stats.tensors++;
    c->stats.elements += c->tensor->count;
    c->tensor = NULL;
    c->done++;
}

static int complete(const struct ina_collective *c)
{
    if (c->receives_left)
        return 0;
    for (uint32_t i = 0; i < c->peer_count; i++)
        if (c->peers[i].offered < c->peers[i].send_count || !ina_flow_idle(&c->peers[i].flow))
            return 0;
    return 1;
}

static void take_early(struct ina_collective *c, struct peer *p, uint64_t now)
{
    uint32_t first = p->in_base, end = p->in_base + c->config.window < p->in_end ? p->in_base + c->config.window : p->in_end;
    for (uint32_t number = first; number < end; number++) {
        uint8_t **early = &p->early[number % c->config.window];
        if (!*early)
            continue;
        start_clock(c, now);
        apply(c, p, number, *early, now);
        free(*early);
        *early = NULL;
    }
}

static void begin(struct ina_collective *c, const struct ina_tensor *tensor, uint64_t now)
{
    c->tensor = tensor;
    c->deadline = UINT64_MAX;
    c->begun++;
    if (tensor->in != tensor->out && !c->config.bare)
        memcpy(tensor->out, tensor->in, ELEMENT * tensor->count);
    memset(c->gates, 0, c->config.gates * sizeof *c->gates);
    for (uint32_t i = 0; i < c->peer_count; i++) {
        struct peer *p = &c->peers[i];
        p->offered = p->send_hint = p->receive_hint = 0;
        p->out_base = p->flow.available;
        p->in_base = p->in_end;
        if (lay_out(c, p->sends, p->send_count))
            start_clock(c, now);
        p->in_end += lay_out(c, p->receives, p->receive_count);
        for (uint32_t k = 0; k < p->receive_count; k++) {
            const struct step *step = &c->steps[p->receives[k]];
            c->receives_left += step->packets > 0;
            for (uint32_t gate = step->transfer.gate; gate <= step->transfer.last_gate; gate++)
                c->gates[gate] += step->packets > 0;
        }
    }
    offer(c, now);
    for (uint32_t i = 0; i < c->peer_count; i++) {
        struct peer *p = &c->peers[i];
        int waiting = p->flow.cumulative > p->in_base; /* its sender may have a closed window */
        take_early(c, p, now);
        ina_flow_consume(&p->flow, p->in_end, waiting);
    }
}

/* Ends tensors and begins the next ones as far as possible. */
static void advance(struct ina_collective *c, const struct ina_tensor *tensors, uint64_t now)
{
    for (;;) {
        if (c->tensor && complete(c))
            finish(c);
        if (c->tensor || c->begun == c->submitted)
            return;
        begin(c, &tensors[c->begun % INA_MAX_OPS], now);
    }
}

/* Returns the rank that the tensor under way waits for: of the first receive in the schedule's order, as later ones may wait for
 * that one; else of an acknowledgement. */
static uint32_t awaited(const struct ina_collective *c)
{
    for (uint32_t i = 0; i < c->step_count; i++)
        if (c->steps[i].transfer.kind != INA_SEND && c->steps[i].left)
            return c->steps[i].transfer.peer;
    uint32_t rank = 0;
    while (c->peer_of[rank] == UINT32_MAX || ina_flow_idle(&c->peers[c->peer_of[rank]].flow))
        rank++;
    return rank;
}

/* ---- the machine ----------------------------------------------------------------------------------------------------- */

static int next_handle(const void *state)
{
    const struct ina_collective *c = state;
    return c->submitted - c->reported < INA_MAX_OPS ? (int)(c->submitted % INA_MAX_OPS) : -EAGAIN;
}

static int submit(void *state, const struct ina_tensor *tensors, int handle, uint64_t now)
{
    struct ina_collective *c = state;
    if (c->failed)
        return -EPIPE;
    if (!ina_tensor_valid(&tensors[handle]) || (tensors[handle].dtype != INA_FLOAT32 && tensors[handle].dtype != INA_INT32))
        return -EINVAL;
    c->submitted++;
    advance(c, tensors, now);
    return handle;
}

static int events(void *state, struct ina_event *into, int max)
{
    struct ina_collective *c = state;
    int n = 0;
    for (; n < max && c->reported < c->done; n++)
        into[n] = (struct ina_event){.type = INA_EVENT_DONE, .op = (uint32_t)(c->reported++ % INA_MAX_OPS)};
    for (; n < max && c->failed && c->reported < c->submitted; n++)
        into[n] = (struct ina_event){.type = INA_EVENT_FAILED, .code = INA_ERR_RANK, .op = (uint32_t)(c->reported++ % INA_MAX_OPS),
                                     .tsi = c->config.rank, .slot = c->late, .last_rx = c->peers[c->peer_of[c->late]].last_rx};
    return n;
}

static void write_headers(struct ina_packet *pkt, const struct ina_collective *c, const struct peer *p, uint32_t kind,
                          uint32_t flags, uint32_t payload)
{
    struct data *d = (struct data *)pkt->data;
    *d = (struct data){.head = {.kind = (uint8_t)kind, .flags = (uint8_t)flags, .rank = htons((uint16_t)c->config.rank)}};
    ina_internet_write(&d->head.net, &c->own, &p->address, sizeof *d - INA_INTERNET_SIZE + payload);
    if (kind == KIND_DATA && c->config.congestion == INA_DCTCP)
        ina_internet_set_ecn(&d->head.net, INA_INTERNET_ECN_CAPABLE);
    uint32_t room = pkt->len + pkt->tailroom;
    pkt->len = sizeof *d + payload;
    pkt->wire_len = pkt->len < SHORTEST ? SHORTEST : pkt->len;
    pkt->tailroom = room - pkt->len;
}

static void write_data(struct ina_collective *c, struct peer *p, struct ina_packet *pkt, uint32_t number, int push,
                       uint64_t now)
{
    struct step *step = find(c, p->sends, &p->send_hint, number - p->out_base);
    uint64_t first = element_of(c, step, number - p->out_base);
    uint32_t bytes = ELEMENT * elements_at(c, step, first);
    write_headers(pkt, c, p, KIND_DATA, push ? FLAG_PUSH : 0, c->config.bare ? 0 : bytes);
    struct data *d = (struct data *)pkt->data;
    d->head.number = htonl(number);
    d->sent = htobe64(now);
    if (c->config.bare)
        pkt->wire_len = sizeof *d + bytes < SHORTEST ? SHORTEST : (uint32_t)sizeof *d + bytes;
    else
        memcpy(d->values, (const uint8_t *)c->tensor->out + ELEMENT * first, bytes);
}

static void write_ack(struct ina_collective *c, struct peer *p, struct ina_packet *pkt, const struct ina_ack *ack)
{
    struct ack *a = (struct ack *)pkt->data;
    write_headers(pkt, c, p, KIND_ACK, 0, sizeof *a - sizeof(struct data));
    a->head.number = htonl(ack->cumulative);
    a->limit = htonl(ack->limit);
    a->marked = htonl(ack->marked);
    a->selective = htobe64(ack->selective);
    a->echo = htobe64(ack->echo);
}

/* Fills one frame to a peer: an acknowledgement, else data. 0: there is none. */
static int send_one(struct ina_collective *c, struct peer *p, struct ina_packet *pkt, uint64_t now)
{
    struct ina_ack ack;
    uint32_t number;
    int push;
    if (ina_flow_acknowledge(&p->flow, &ack)) {
        write_ack(c, p, pkt, &ack);
        return 1;
    }
    int kind = ina_flow_send(&p->flow, now, &number, &push);
    if (kind == 1)
        write_data(c, p, pkt, number, push, now);
    else if (kind == 2)
        write_headers(pkt, c, p, KIND_PROBE, 0, 0);
    return kind != 0;
}

/* Returns the peer that sends next in an ordered schedule: one that hurries, else that with the earliest transfer. */
static uint32_t earliest(struct ina_collective *c, uint64_t now)
{
    uint32_t peer = 0, first = UINT32_MAX;
    for (uint32_t i = 0; i < c->peer_count; i++) {
        struct peer *p = &c->peers[i];
        if (ina_flow_hurries(&p->flow, now))
            return i;
        if (!ina_flow_open(&p->flow))
            continue;
        const uint32_t step = (uint32_t)(find(c, p->sends, &p->send_hint, p->flow.next - p->out_base) - c->steps);
        if (step < first) {
            first = step;
            peer = i;
        }
    }
    return peer;
}

static int frames_to_send(void *state, const struct ina_tensor *tensors, struct ina_packet *pkts, int n, uint64_t now)
{
    (void)tensors;
    struct ina_collective *c = state;
    int sent = 0;
    if (!c->failed && c->tensor && now >= c->deadline) {
        c->failed = 1;
        c->late = awaited(c);
    }
    if (c->failed)
        return 0;
    const uint32_t asked = c->config.ordered && c->peer_count ? 1 : c->peer_count; /* peers without a frame: then there is none */
    for (uint32_t quiet = 0; sent < n && quiet < asked; c->turn = (c->turn + 1) % c->peer_count) {
        if (c->config.ordered)
            c->turn = earliest(c, now);
        if (send_one(c, &c->peers[c->turn], &pkts[sent], now)) {
            c->stats.tx_packets++;
            c->stats.tx_bytes += pkts[sent++].wire_len;
            quiet = 0;
        } else {
            quiet++;
        }
    }
    return sent;
}

static void receive_data(struct ina_collective *c, struct peer *p, const struct ina_packet *pkt, uint64_t now)
{
    const struct data *d = (const struct data *)pkt->data;
    uint32_t number = ntohl(d->head.number), payload = pkt->len - (uint32_t)sizeof *d;
    int early = !c->tensor || number - p->in_base >= p->in_end - p->in_base;
    uint8_t *copy = early ? malloc(payload + 1u) : NULL;
    if (early && !copy)
        return; /* as if it were lost */
    const int push = d->head.flags & FLAG_PUSH, marked = (d->head.net.tos & INA_INTERNET_ECN) == INA_INTERNET_ECN_MARKED;
    if (!ina_flow_accept(&p->flow, number, be64toh(d->sent), push, marked)) {
        c->stats.duplicates++;
        free(copy);
        return;
    }
    c->stats.results++;
    if (early) {
        memcpy(copy, d->values, payload);
        p->early[number % c->config.window] = copy;
    } else {
        start_clock(c, now);
        apply(c, p, number, d->values, now);
    }
}

static void take(struct ina_collective *c, const struct ina_tensor *tensors, const struct ina_packet *pkt, uint64_t now)
{
    c->stats.rx_packets++;
    c->stats.rx_bytes += pkt->wire_len;
    const struct ack *a = (const struct ack *)pkt->data;
    const uint32_t rank = pkt->len >= sizeof(struct data) ? ntohs(a->head.rank) : UINT32_MAX;
    if (rank >= c->config.ranks || c->peer_of[rank] == UINT32_MAX) {
        c->stats.drop_foreign++;
        return;
    }
    if (c->failed)
        return; /* the caller has its buffers again */
    struct peer *p = &c->peers[c->peer_of[rank]];
    p->last_rx = now;
    if (a->head.kind == KIND_DATA) {
        receive_data(c, p, pkt, now);
    } else if (a->head.kind == KIND_ACK && pkt->len >= sizeof *a) {
        struct ina_ack ack = {
            .cumulative = ntohl(a->head.number),
            .limit = ntohl(a->limit),
            .marked = ntohl(a->marked),
            .selective = be64toh(a->selective),
            .echo = be64toh(a->echo),
        };
        ina_flow_acknowledged(&p->flow, &ack, now);
    } else {
        p->flow.ack_due = 1; /* a probe */
    }
    advance(c, tensors, now);
}

static int receive(void *state, const struct ina_tensor *tensors, struct ina_packet *pkts, int n, uint64_t now)
{
    for (int i = 0; i < n; i++)
        take(state, tensors, &pkts[i], now);
    return 0;
}

static uint64_t next_timer(const void *state)
{
    const struct ina_collective *c = state;
    uint64_t due = c->tensor ? c->deadline : UINT64_MAX;
    if (c->failed)
        return UINT64_MAX;
    for (uint32_t i = 0; i < c->peer_count; i++) {
        uint64_t timer = ina_flow_next_timer(&c->peers[i].flow);
        due = timer < due ? timer : due;
    }
    return due;
}

const struct ina_protocol ina_collective_machine = {
    .name = "collective",
    .reductions = 1 << INA_SUM,
    .next_handle = next_handle,
    .submit = submit,
    .receive = receive,
    .frames_to_send = frames_to_send,
    .next_timer = next_timer,
    .events = events,
};
