/* The event loop: what happens at a host, at a switch, and on the wires between them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"

enum { NIC_QUEUE = 16384 /* packets */, SEND_BATCH = 32 };

struct wire {                 /* one direction */
    struct ina_wire_end to;
    struct ina_fault fault;
    int connected, faulty;
};

struct submission {
    uint64_t at, ticket;
    struct ina_tensor tensor;
    struct submission *next;
};

struct host {
    const struct ina_protocol *protocol;
    void *state;
    struct ina_link *nic;
    struct wire wire;
    struct ina_worker_config config;
    struct ina_tensor tensors[INA_MAX_OPS];
    uint64_t tickets[INA_MAX_OPS];
    struct submission *first, *last;
    size_t stats_offset;
    uint32_t nic_timer, timer;
    int failed;
};

struct node {                 /* a switch */
    struct ina_emulator *em;
    struct ina_switch *sw;
    struct wire *wires;       /* by port */
    uint64_t latency;
    uint32_t timer;
};

struct timer_owner {
    uint32_t kind, node;
    int is_nic;
};

struct ina_emulator {
    uint64_t now;
    uint32_t max_frame, hosts, switches, completion_count, completion_capacity, completion_read;
    struct host **host;
    struct node **node;
    struct timer_owner *owners;
    struct ina_frames frames;
    struct ina_arrivals arrivals;
    struct ina_timers timers;
    struct ina_completion *completions;
    struct ina_emulator_stats stats;
    uint64_t next_ticket;
    int error;                /* -ENOMEM: sticky, ends every run */
};

struct ina_emulator *ina_emulator_create(uint32_t max_frame)
{
    if (max_frame < 64 || max_frame > 65535) {
        errno = EINVAL;
        return NULL;
    }
    struct ina_emulator *em = calloc(1, sizeof *em);
    if (!em)
        return NULL;
    em->max_frame = max_frame;
    em->stats.digest = 0xcbf29ce484222325u;
    ina_frames_init(&em->frames, max_frame);
    return em;
}

void ina_emulator_destroy(struct ina_emulator *em)
{
    if (!em)
        return;
    for (uint32_t i = 0; i < em->hosts; i++) {
        struct host *h = em->host[i];
        while (h->first) {
            struct submission *s = h->first;
            h->first = s->next;
            free(s);
        }
        free(h->state);
        free(h->nic);
        free(h);
    }
    for (uint32_t i = 0; i < em->switches; i++) {
        free(em->node[i]->wires);
        free(em->node[i]);
    }
    ina_frames_destroy(&em->frames);
    free(em->arrivals.heap);
    free(em->timers.due);
    free(em->timers.heap);
    free(em->timers.place);
    free(em->owners);
    free(em->host);
    free(em->node);
    free(em->completions);
    free(em);
}

/* ---- wires ----------------------------------------------------------------------------------------------------------- */

static void arrive_later(struct ina_emulator *em, struct wire *wire, uint32_t frame, uint64_t time)
{
    if (wire->to.kind == INA_NODE_SWITCH)
        time += em->node[wire->to.node]->latency;
    if (ina_arrivals_push(&em->arrivals, time, frame, wire->to)) {
        ina_frames_put(&em->frames, frame);
        em->error = -ENOMEM;
    }
}

/* A frame has crossed the wire at `time`, but for what the faults say. Takes the frame. */
static void cross(struct ina_emulator *em, struct wire *wire, uint32_t frame, uint64_t time)
{
    if (!wire->faulty) {
        arrive_later(em, wire, frame, time);
        return;
    }
    uint64_t late[2];
    int copies = ina_fault_decide(&wire->fault, late);
    if (copies == 2) {
        struct ina_packet pkt;
        ina_frames_lend(&em->frames, frame, &pkt);
        uint32_t twin = ina_frames_copy(&em->frames, pkt.data, pkt.len, pkt.wire_len);
        if (twin == UINT32_MAX)
            em->error = -ENOMEM;
        else
            arrive_later(em, wire, twin, time + late[1]);
    }
    if (copies > 0)
        arrive_later(em, wire, frame, time + late[0]);
    else
        ina_frames_put(&em->frames, frame);
}

static void add_digest(struct ina_emulator *em, const void *data, size_t size)
{
    const uint8_t *bytes = data;
    uint64_t h = em->stats.digest;
    for (; size >= 8; size -= 8, bytes += 8) { /* FNV-1a, a word at a time */
        uint64_t word;
        memcpy(&word, bytes, 8);
        h = (h ^ word) * 0x100000001b3u;
        h ^= h >> 29;
    }
    for (; size; size--)
        h = (h ^ *bytes++) * 0x100000001b3u;
    em->stats.digest = h;
}

/* ---- hosts ----------------------------------------------------------------------------------------------------------- */

static void complete(struct ina_emulator *em, uint32_t index, const struct ina_event *event)
{
    struct host *h = em->host[index];
    if (em->completion_read && em->completion_read == em->completion_count)
        em->completion_read = em->completion_count = 0;
    if (em->completion_count == em->completion_capacity) {
        uint32_t capacity = em->completion_capacity ? 2 * em->completion_capacity : 256;
        struct ina_completion *list = realloc(em->completions, capacity * sizeof *list);
        if (!list) {
            em->error = -ENOMEM;
            return;
        }
        em->completions = list;
        em->completion_capacity = capacity;
    }
    em->completions[em->completion_count++] = (struct ina_completion){
        .time = em->now, .ticket = h->tickets[event->op % INA_MAX_OPS], .host = index, .event = *event};
}

static void nic_enqueue(struct ina_emulator *em, struct host *h, uint32_t frame, uint32_t wire_len)
{
    if (ina_link_enqueue(h->nic, frame, wire_len + INA_ETHERNET_OVERHEAD, em->now) == INA_TAIL_DROP) {
        em->stats.nic_drops++;
        ina_frames_put(&em->frames, frame);
    }
}

static void nic_poll(struct ina_emulator *em, struct host *h)
{
    struct ina_link_item item;
    for (;;) { /* an infinitely fast link delivers at once what it just took */
        int more = 0;
        while (ina_link_dequeue(h->nic, em->now, &item)) {
            ina_link_transmit(h->nic, &item, em->now);
            more = 1;
        }
        while (ina_link_deliver(h->nic, em->now, &item)) {
            cross(em, &h->wire, (uint32_t)item.handle, em->now);
            more = 1;
        }
        if (!more)
            break;
    }
    ina_timers_set(&em->timers, h->nic_timer, ina_link_next_due(h->nic));
}

static void start_submissions(struct ina_emulator *em, struct host *h, uint32_t index)
{
    while (h->first && h->first->at <= em->now) {
        struct submission *s = h->first;
        int handle = h->protocol->next_handle(h->state);
        if (handle == -EAGAIN && !h->failed)
            return;
        if (handle >= 0) {
            h->tensors[handle] = s->tensor;
            h->tickets[handle] = s->ticket;
            handle = h->protocol->submit(h->state, h->tensors, handle, em->now);
        }
        h->first = s->next;
        if (handle < 0) { /* the job is over: this tensor fails, too */
            struct ina_event event = {.type = INA_EVENT_FAILED, .code = INA_ERR_ABORTED};
            uint64_t kept = h->tickets[0];
            h->tickets[0] = s->ticket;
            complete(em, index, &event);
            h->tickets[0] = kept;
        }
        free(s);
    }
}

/* Everything a host does at one instant after something happened to it. */
static void host_run(struct ina_emulator *em, uint32_t index)
{
    struct host *h = em->host[index];
    struct ina_event events[INA_MAX_OPS];
    int count;
    do {
        start_submissions(em, h, index);
        uint32_t frame[SEND_BATCH];
        struct ina_packet pkts[SEND_BATCH];
        int sent, lent;
        do {
            lent = 0;
            for (; lent < SEND_BATCH && (frame[lent] = ina_frames_get(&em->frames)) != UINT32_MAX; lent++)
                ina_frames_blank(&em->frames, frame[lent], &pkts[lent]);
            if (!lent) {
                em->error = -ENOMEM;
                return;
            }
            sent = h->protocol->frames_to_send(h->state, h->tensors, pkts, lent, em->now);
            for (int i = 0; i < sent; i++) {
                ina_frames_store(&em->frames, frame[i], &pkts[i]);
                nic_enqueue(em, h, frame[i], pkts[i].wire_len < pkts[i].len ? pkts[i].len : pkts[i].wire_len);
            }
            for (int i = sent; i < lent; i++)
                ina_frames_put(&em->frames, frame[i]);
        } while (sent == lent);
        count = h->protocol->events(h->state, events, INA_MAX_OPS);
        for (int i = 0; i < count; i++) {
            h->failed |= events[i].type == INA_EVENT_FAILED;
            complete(em, index, &events[i]);
        }
    } while (count > 0); /* a completed tensor may have let the next one in */
    nic_poll(em, h);
    uint64_t due = h->protocol->next_timer(h->state);
    if (h->first && h->first->at > em->now && h->first->at < due)
        due = h->first->at;
    ina_timers_set(&em->timers, h->timer, due);
}

static void host_receive(struct ina_emulator *em, uint32_t index, uint32_t frame)
{
    struct host *h = em->host[index];
    struct ina_packet pkt;
    ina_frames_lend(&em->frames, frame, &pkt);
    if (h->protocol->receive(h->state, h->tensors, &pkt, em->now)) {
        ina_frames_store(&em->frames, frame, &pkt);
        nic_enqueue(em, h, frame, pkt.wire_len < pkt.len ? pkt.len : pkt.wire_len);
    } else {
        ina_frames_put(&em->frames, frame);
    }
    host_run(em, index);
}

/* ---- switches -------------------------------------------------------------------------------------------------------- */

/* A frame is at the far end of a switch port's link. */
static void switch_output(void *context, uint16_t port, const struct ina_packet *pkt, uint64_t now)
{
    struct node *node = context;
    struct ina_emulator *em = node->em;
    struct wire *wire = &node->wires[port];
    if (!wire->connected || pkt->len > em->max_frame) {
        em->stats.unwired++;
        return;
    }
    uint32_t frame = ina_frames_copy(&em->frames, pkt->data, pkt->len, pkt->wire_len);
    if (frame == UINT32_MAX)
        em->error = -ENOMEM;
    else
        cross(em, wire, frame, now);
}

static void switch_receive(struct ina_emulator *em, uint32_t index, uint32_t port, uint32_t frame)
{
    struct node *node = em->node[index];
    struct ina_packet pkt;
    ina_frames_lend(&em->frames, frame, &pkt);
    pkt.ingress_port = (uint16_t)port;
    ina_switch_input(node->sw, &pkt, 1, em->now);
    ina_frames_put(&em->frames, frame);
    ina_timers_set(&em->timers, node->timer, ina_switch_next_due(node->sw));
}

/* ---- building -------------------------------------------------------------------------------------------------------- */

static int add_timer(struct ina_emulator *em, uint32_t kind, uint32_t node, int is_nic)
{
    int timer = ina_timers_add(&em->timers);
    if (timer < 0)
        return timer;
    struct timer_owner *owners = realloc(em->owners, ((size_t)timer + 1) * sizeof *owners);
    if (!owners)
        return -ENOMEM;
    em->owners = owners;
    owners[timer] = (struct timer_owner){kind, node, is_nic};
    return timer;
}

int ina_emulator_add_switch(struct ina_emulator *em, struct ina_switch *sw, uint64_t latency_ps)
{
    struct node **list = realloc(em->node, (em->switches + 1) * sizeof *list);
    if (!list)
        return -ENOMEM;
    em->node = list;
    struct node *node = calloc(1, sizeof *node);
    struct wire *wires = calloc(INA_SWITCH_PORTS, sizeof *wires);
    int timer = node && wires ? add_timer(em, INA_NODE_SWITCH, em->switches, 0) : -ENOMEM;
    if (timer < 0) {
        free(node);
        free(wires);
        return timer;
    }
    *node = (struct node){.em = em, .sw = sw, .wires = wires, .latency = latency_ps, .timer = (uint32_t)timer};
    ina_switch_set_output(sw, switch_output, node);
    em->node[em->switches] = node;
    return (int)em->switches++;
}

int ina_emulator_add_host(struct ina_emulator *em, const struct ina_protocol *protocol,
                          const struct ina_worker_config *config)
{
    size_t size = protocol->state_size(config);
    if (!size || protocol->frame_size(config) > em->max_frame)
        return -EINVAL;
    struct host **list = realloc(em->host, (em->hosts + 1) * sizeof *list);
    if (!list)
        return -ENOMEM;
    em->host = list;
    struct host *h = calloc(1, sizeof *h);
    if (!h)
        return -ENOMEM;
    h->protocol = protocol;
    h->config = *config;
    h->state = aligned_alloc(64, (size + 63) & ~(size_t)63);
    h->nic = aligned_alloc(64, (ina_link_size(NIC_QUEUE) + 63) & ~(size_t)63);
    int nic_timer = add_timer(em, INA_NODE_HOST, em->hosts, 1);
    int timer = add_timer(em, INA_NODE_HOST, em->hosts, 0);
    int bad = !h->state || !h->nic || nic_timer < 0 || timer < 0 ? -ENOMEM : protocol->init(h->state, config, em->now);
    if (bad) {
        free(h->state);
        free(h->nic);
        free(h);
        return bad;
    }
    struct ina_link_config idle = {0};
    ina_link_init(h->nic, &idle, NIC_QUEUE);
    h->nic_timer = (uint32_t)nic_timer;
    h->timer = (uint32_t)timer;
    h->stats_offset = protocol->stats_offset(config);
    em->host[em->hosts] = h;
    return (int)em->hosts++;
}

static struct wire *end_wire(struct ina_emulator *em, struct ina_wire_end end)
{
    if (end.kind == INA_NODE_HOST)
        return end.node < em->hosts && end.port == 0 ? &em->host[end.node]->wire : NULL;
    if (end.kind != INA_NODE_SWITCH || end.node >= em->switches || end.port >= INA_DROP_PORT)
        return NULL;
    return &em->node[end.node]->wires[end.port];
}

static int open_direction(struct ina_emulator *em, struct ina_wire_end from, struct ina_wire_end to,
                          const struct ina_wire_direction *direction)
{
    struct wire *wire = end_wire(em, from);
    if (from.kind == INA_NODE_HOST) {
        ina_link_init(em->host[from.node]->nic, &direction->link, NIC_QUEUE);
    } else {
        struct ina_command add = {.op = INA_ADD_PORT, .id = from.port, .link = &direction->link};
        if (ina_switch_execute(em->node[from.node]->sw, &add))
            return add.result;
    }
    const struct ina_fault_config *f = &direction->faults;
    wire->to = to;
    wire->connected = 1;
    wire->faulty = f->loss > 0 || f->duplicate > 0 || f->reorder > 0 || f->corrupt > 0;
    ina_fault_init(&wire->fault, f);
    return 0;
}

int ina_emulator_connect(struct ina_emulator *em, struct ina_wire_end a, struct ina_wire_end b,
                         const struct ina_wire_direction *a_to_b, const struct ina_wire_direction *b_to_a)
{
    struct wire *wa = end_wire(em, a), *wb = end_wire(em, b);
    if (!wa || !wb || wa == wb)
        return -EINVAL;
    if (wa->connected || wb->connected)
        return -EEXIST;
    int bad = open_direction(em, a, b, a_to_b);
    return bad ? bad : open_direction(em, b, a, b_to_a);
}

/* ---- running --------------------------------------------------------------------------------------------------------- */

int64_t ina_emulator_submit(struct ina_emulator *em, uint32_t host, const struct ina_tensor *tensor, uint64_t at)
{
    if (host >= em->hosts || at < em->now || (em->host[host]->last && em->host[host]->first && em->host[host]->last->at > at))
        return -EINVAL;
    struct submission *s = malloc(sizeof *s);
    if (!s)
        return -ENOMEM;
    struct host *h = em->host[host];
    *s = (struct submission){.at = at, .ticket = ++em->next_ticket, .tensor = *tensor};
    if (h->first)
        h->last->next = s;
    else
        h->first = s;
    h->last = s;
    if (em->timers.due[h->timer] > h->first->at)
        ina_timers_set(&em->timers, h->timer, h->first->at);
    return (int64_t)s->ticket;
}

static void arrive(struct ina_emulator *em, const struct ina_arrival *arrival)
{
    struct ina_packet pkt;
    ina_frames_lend(&em->frames, arrival->frame, &pkt);
    uint64_t place[2] = {em->now, (uint64_t)arrival->at.kind << 48 | (uint64_t)arrival->at.node << 16 | arrival->at.port};
    add_digest(em, place, sizeof place);
    add_digest(em, pkt.data, pkt.len);
    em->stats.frames++;
    if (arrival->at.kind == INA_NODE_HOST)
        host_receive(em, arrival->at.node, arrival->frame);
    else
        switch_receive(em, arrival->at.node, arrival->at.port, arrival->frame);
}

static void timer_fires(struct ina_emulator *em, uint32_t timer)
{
    struct timer_owner owner = em->owners[timer];
    if (owner.kind == INA_NODE_SWITCH) {
        struct node *node = em->node[owner.node];
        ina_switch_poll(node->sw, em->now);
        ina_timers_set(&em->timers, timer, ina_switch_next_due(node->sw));
    } else if (owner.is_nic) {
        nic_poll(em, em->host[owner.node]);
    } else {
        host_run(em, owner.node);
    }
}

int ina_emulator_run(struct ina_emulator *em, uint64_t until, uint64_t max_events)
{
    for (uint64_t done = 0; done < max_events && !em->error; done++) {
        uint32_t timer = 0;
        uint64_t due = ina_timers_first(&em->timers, &timer);
        uint64_t next = em->arrivals.count ? em->arrivals.heap[0].time : UINT64_MAX;
        if (due == UINT64_MAX && next == UINT64_MAX)
            return 1;
        if ((next <= due ? next : due) > until) {
            em->now = until > em->now ? until : em->now;
            return 0;
        }
        em->stats.events++;
        struct ina_arrival arrival;
        if (next <= due && ina_arrivals_pop(&em->arrivals, &arrival)) {
            em->now = arrival.time > em->now ? arrival.time : em->now;
            arrive(em, &arrival);
        } else {
            em->now = due > em->now ? due : em->now;
            timer_fires(em, timer);
        }
    }
    return em->error;
}

uint64_t ina_emulator_now(const struct ina_emulator *em)
{
    return em->now;
}

int ina_emulator_completions(struct ina_emulator *em, struct ina_completion *out, int max)
{
    int n = 0;
    while (n < max && em->completion_read < em->completion_count)
        out[n++] = em->completions[em->completion_read++];
    return n;
}

static void add_faults(struct ina_emulator_stats *stats, const struct wire *wire)
{
    stats->lost += wire->fault.lost;
    stats->duplicated += wire->fault.duplicated;
    stats->reordered += wire->fault.reordered;
    stats->corrupted += wire->fault.corrupted;
}

void ina_emulator_get_stats(const struct ina_emulator *em, struct ina_emulator_stats *stats)
{
    *stats = em->stats;
    for (uint32_t i = 0; i < em->hosts; i++)
        add_faults(stats, &em->host[i]->wire);
    for (uint32_t i = 0; i < em->switches; i++)
        for (uint32_t port = 0; port < INA_SWITCH_PORTS; port++)
            add_faults(stats, &em->node[i]->wires[port]);
}

int ina_emulator_host_stats(const struct ina_emulator *em, uint32_t host, struct ina_worker_stats *worker,
                            struct ina_link_stats *nic)
{
    if (host >= em->hosts)
        return -EINVAL;
    memcpy(worker, (const uint8_t *)em->host[host]->state + em->host[host]->stats_offset, sizeof *worker);
    *nic = *ina_link_get_stats(em->host[host]->nic);
    return 0;
}

void *ina_emulator_host_state(struct ina_emulator *em, uint32_t host)
{
    return host < em->hosts ? em->host[host]->state : NULL;
}
