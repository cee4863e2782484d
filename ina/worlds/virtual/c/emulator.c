/* The event loop, the wires and the switches. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"

__extension__ typedef unsigned __int128 u128;

enum { PREFETCH = 3 }; /* events to prefetch ahead: about one DRAM access */

struct ina_emulator *ina_emulator_create(uint32_t max_frame, int bare)
{
    if (max_frame < 64 || max_frame > 65535) {
        errno = EINVAL;
        return NULL;
    }
    struct ina_emulator *em = calloc(1, sizeof *em);
    if (!em)
        return NULL;
    em->max_frame = max_frame;
    if (ina_frames_init(&em->frames, max_frame, INA_LEAST_HEADROOM, bare)) {
        free(em);
        errno = ENOMEM;
        return NULL;
    }
    return em;
}

void ina_emulator_destroy(struct ina_emulator *em)
{
    if (!em)
        return;
    for (uint32_t i = 0; i < em->machines; i++)
        ina_machine_destroy(em->machine[i]);
    for (uint32_t i = 0; i < em->hosts; i++)
        ina_host_destroy(em->host[i]);
    for (uint32_t i = 0; i < em->switches; i++) {
        ina_release(em->node[i]->wires, INA_SWITCH_PORTS * sizeof *em->node[i]->wires);
        free(em->node[i]);
    }
    ina_frames_destroy(&em->frames);
    ina_calendar_destroy(&em->calendar);
    free(em->timers.due);
    free(em->timers.heap);
    free(em->timers.place);
    free(em->owners);
    free(em->machine);
    free(em->host);
    free(em->node);
    free(em->completions);
    free(em);
}

/* ---- wires ----------------------------------------------------------------------------------------------------------- */

static struct ina_wire *end_wire(const struct ina_emulator *em, struct ina_wire_end end)
{
    if (end.kind == INA_NODE_HOST)
        return end.node < em->hosts && end.port == 0 ? &em->host[end.node]->wire : NULL;
    if (end.kind != INA_NODE_SWITCH || end.node >= em->switches || end.port >= INA_DROP_PORT)
        return NULL;
    return &em->node[end.node]->wires[end.port];
}

void ina_emulator_later(struct ina_emulator *em, uint64_t time, uint32_t place, uint32_t frame)
{
    const struct ina_timed_event event = {time, frame, place};
    if (ina_calendar_push(&em->calendar, &event, em->now)) {
        if (frame != UINT32_MAX)
            ina_frames_put(&em->frames, frame);
        em->error = -ENOMEM;
    }
}

static void arrive_later(struct ina_emulator *em, const struct ina_wire *wire, uint32_t frame, uint64_t time)
{
    ina_emulator_later(em, time + wire->latency, wire->place, frame);
}

void ina_wire_cross(struct ina_emulator *em, struct ina_wire *wire, uint32_t frame, uint64_t time)
{
    if (!wire->connected) {
        em->stats.unwired++;
        ina_frames_put(&em->frames, frame);
        return;
    }
    ina_frames_at(&em->frames, frame)->left = time - (wire->delay < time ? wire->delay : time);
    if (!wire->faulty) {
        arrive_later(em, wire, frame, time);
        return;
    }
    uint64_t late[2];
    int copies = ina_fault_decide(&wire->fault, late);
    const uint32_t bytes = ina_frames_at(&em->frames, frame)->wire_len + INA_ETHERNET_OVERHEAD;
    if (copies == 2) {
        uint32_t twin = ina_frames_twin(&em->frames, frame);
        if (twin == UINT32_MAX) {
            em->error = -ENOMEM;
        } else {
            wire->duplicated_bytes += bytes;
            arrive_later(em, wire, twin, time + late[1]);
        }
    }
    if (copies > 0) {
        arrive_later(em, wire, frame, time + late[0]);
    } else {
        wire->lost_bytes += bytes;
        ina_frames_put(&em->frames, frame);
    }
}

/* Mixes two words: the halves of their product, in which every bit of the result depends on every bit of both. */
static uint64_t fold(uint64_t a, uint64_t b)
{
    const u128 product = (u128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Sixteen polynomials in parallel, modulo 2^32, which C compilers vectorise. All bytes have equal weight in them. */
static uint64_t digest(uint64_t seed, const uint8_t *bytes, size_t size)
{
    enum { LANES = 16, BLOCK = 4 * LANES };
    uint32_t lane[LANES] = {0}, word[LANES];
    uint8_t short_one[BLOCK] = {0};
    const uint8_t *last = size < BLOCK ? memcpy(short_one, bytes, size) : bytes + size - BLOCK; /* the last block may overlap the one before */
    for (size_t left = size; left > BLOCK; left -= BLOCK, bytes += BLOCK) {
        memcpy(word, bytes, BLOCK);
        for (unsigned i = 0; i < LANES; i++)
            lane[i] = lane[i] * 0x9e3779b1u + word[i];
    }
    memcpy(word, last, BLOCK);
    for (unsigned i = 0; i < LANES; i++)
        lane[i] = lane[i] * 0x9e3779b1u + word[i];
    uint64_t pair[LANES / 2], h = seed ^ size;
    memcpy(pair, lane, sizeof pair);
    for (unsigned i = 0; i < LANES / 2; i += 2)
        h ^= fold(pair[i] ^ 0x243f6a8885a308d3 ^ i, pair[i + 1] ^ seed);
    return h;
}

/* ---- switches -------------------------------------------------------------------------------------------------------- */

static int outlet_get(void *context, struct ina_packet *pkt)
{
    struct ina_emulator *em = ((struct ina_node *)context)->em;
    const uint32_t frame = ina_frames_get(&em->frames);
    if (frame == UINT32_MAX) {
        em->error = -ENOMEM;
        return 0;
    }
    ina_frames_blank(&em->frames, frame, INA_SCRATCH_OUT, pkt);
    pkt->tag = frame;
    return 1;
}

static void outlet_put(void *context, uint16_t port, struct ina_packet *pkt, uint64_t arrival)
{
    struct ina_node *node = context;
    struct ina_emulator *em = node->em;
    if (pkt->len) {
        ina_frames_store(&em->frames, pkt->tag, pkt);
        ina_wire_cross(em, &node->wires[port], pkt->tag, arrival);
    } else {
        ina_frames_at(&em->frames, pkt->tag)->entered = 0;
        ina_frames_put(&em->frames, pkt->tag);
    }
}

static void outlet_wake(void *context, uint16_t port, uint64_t due)
{
    const struct ina_node *node = context;
    ina_emulator_later(node->em, due, ina_place(INA_AT_QUEUE, node->index, port), UINT32_MAX);
}

/* Sends a frame that leaves by a port without a link. */
static void switch_output(void *context, uint16_t port, const struct ina_packet *pkt, uint64_t now)
{
    struct ina_node *node = context;
    struct ina_emulator *em = node->em;
    struct ina_packet copy;
    if (pkt->len > em->max_frame) {
        em->stats.unwired++;
    } else if (outlet_get(node, &copy)) {
        memcpy(copy.data, pkt->data, pkt->len);
        copy.len = pkt->len;
        copy.wire_len = pkt->wire_len;
        outlet_put(node, port, &copy, now);
    }
}

static void outlet_exhausted(void *context)
{
    ((struct ina_node *)context)->em->error = -ENOMEM;
}

static void set_switch_timer(struct ina_emulator *em, const struct ina_node *node)
{
    ina_timers_set(&em->timers, node->timer, ina_switch_next_due(node->sw));
}

/* Passes frames that arrive at one instant to a switch, in their order. */
static void switch_receive(struct ina_emulator *em, uint32_t index, const struct ina_timed_event *event, unsigned n)
{
    struct ina_node *node = em->node[index];
    struct ina_packet pkts[INA_BATCH];
    for (unsigned i = 0; i < n; i++) {
        ina_frames_open(&em->frames, event[i].frame, i, &pkts[i]);
        ina_frames_at(&em->frames, event[i].frame)->entered = 1;
        pkts[i].ingress_port = event[i].place & (INA_SWITCH_PORTS - 1);
        pkts[i].tag = event[i].frame;
        pkts[i].clone_list = 0;
    }
    ina_switch_input(node->sw, pkts, n, em->now);
    for (unsigned i = 0; i < n; i++)
        if (ina_frames_at(&em->frames, event[i].frame)->entered) /* it was not sent on unchanged */
            ina_frames_put(&em->frames, event[i].frame);
    set_switch_timer(em, node);
}

/* ---- building -------------------------------------------------------------------------------------------------------- */

int ina_emulator_add_timer(struct ina_emulator *em, enum ina_timer_kind kind, uint32_t index)
{
    int timer = ina_timers_add(&em->timers);
    if (timer < 0)
        return timer;
    struct ina_timer_owner *owners = realloc(em->owners, ((size_t)timer + 1) * sizeof *owners);
    if (!owners)
        return -ENOMEM;
    em->owners = owners;
    owners[timer] = (struct ina_timer_owner){kind, index};
    return timer;
}

int ina_emulator_add_switch(struct ina_emulator *em, struct ina_switch *sw, uint64_t latency_ps)
{
    if (em->switches == INA_MOST_NODES)
        return -ENOSPC;
    if (ina_switch_headroom(sw) > em->frames.headroom) {
        if (ina_pool_size(&em->frames.pool))
            return -EBUSY;
        const int bare = em->frames.bare;
        ina_frames_destroy(&em->frames);
        if (ina_frames_init(&em->frames, em->max_frame, ina_switch_headroom(sw), bare))
            return -ENOMEM;
    }
    struct ina_node **list = realloc(em->node, (em->switches + 1) * sizeof(struct ina_node *));
    if (!list)
        return -ENOMEM;
    em->node = list;
    struct ina_node *node = calloc(1, sizeof *node);
    struct ina_wire *wires = ina_zeroed(INA_SWITCH_PORTS * sizeof *wires);
    int timer = node && wires ? ina_emulator_add_timer(em, INA_TIMER_SWITCH, em->switches) : -ENOMEM;
    if (timer < 0) {
        free(node);
        ina_release(wires, INA_SWITCH_PORTS * sizeof *wires);
        return timer;
    }
    *node = (struct ina_node){.em = em, .sw = sw, .wires = wires, .latency = latency_ps, .timer = (uint32_t)timer,
                              .index = em->switches};
    const struct ina_outlet outlet = {node, outlet_get, outlet_put, outlet_wake, outlet_exhausted, em->frames.bare ? INA_KEPT_BYTES : 0};
    const int bad = ina_switch_set_outlet(sw, &outlet);
    if (bad) {
        ina_release(wires, INA_SWITCH_PORTS * sizeof *wires);
        free(node);
        return bad;
    }
    ina_switch_set_output(sw, switch_output, node);
    em->node[em->switches] = node;
    return (int)em->switches++;
}

/* Connects the direction that begins at `from`; direction NULL: there is none, but a switch gets a port for arrivals. */
static int open_direction(struct ina_emulator *em, struct ina_wire_end from, struct ina_wire_end to,
                          const struct ina_wire_direction *direction)
{
    if (from.kind == INA_NODE_SWITCH) {
        struct ina_command add = {.op = INA_ADD_PORT, .id = from.port, .link = direction ? &direction->link : NULL};
        if (ina_switch_execute(em->node[from.node]->sw, &add))
            return add.result;
    } else if (direction) {
        const int bad = ina_host_connect(em, em->host[from.node], &direction->link);
        if (bad)
            return bad;
    }
    if (!direction)
        return 0;
    struct ina_wire *wire = end_wire(em, from);
    const struct ina_fault_config *f = &direction->faults;
    wire->to = to;
    wire->place = ina_place(to.kind == INA_NODE_SWITCH ? INA_AT_SWITCH : INA_AT_HOST, to.node, to.port);
    wire->latency = to.kind == INA_NODE_SWITCH ? em->node[to.node]->latency : 0;
    wire->delay = direction->link.delay_ps;
    wire->connected = 1;
    wire->faulty = f->loss > 0 || f->duplicate > 0 || f->reorder > 0 || f->corrupt > 0;
    ina_fault_init(&wire->fault, f);
    return 0;
}

int ina_emulator_connect(struct ina_emulator *em, struct ina_wire_end a, struct ina_wire_end b,
                         const struct ina_wire_direction *a_to_b, const struct ina_wire_direction *b_to_a)
{
    struct ina_wire *wa = end_wire(em, a), *wb = end_wire(em, b);
    if (!wa || !wb || wa == wb)
        return -EINVAL;
    if (wa->connected || wb->connected)
        return -EEXIST;
    wa->failed_at = wa->healed_at = wb->failed_at = wb->healed_at = UINT64_MAX;
    int bad = open_direction(em, a, b, a_to_b);
    return bad ? bad : open_direction(em, b, a, b_to_a);
}

int ina_emulator_set_up(struct ina_emulator *em, struct ina_wire_end from, int up)
{
    const struct ina_wire *wire = end_wire(em, from);
    if (!wire || !wire->connected)
        return -EINVAL;
    struct ina_wire *far = end_wire(em, wire->to);
    const int is_up = far->failed_at == UINT64_MAX || far->healed_at != UINT64_MAX;
    if (up && !is_up) {
        far->healed_at = em->now;
    } else if (!up && is_up) {
        far->failed_at = em->now;
        far->healed_at = UINT64_MAX;
    }
    return 0;
}

int ina_emulator_set_rate(struct ina_emulator *em, struct ina_wire_end from, uint64_t rate_bps)
{
    const struct ina_wire *wire = end_wire(em, from);
    if (!wire || !wire->connected)
        return -EINVAL;
    const struct ina_link_config link = {.rate_bps = rate_bps, .delay_ps = wire->delay};
    if (from.kind == INA_NODE_SWITCH)
        return ina_switch_execute(em->node[from.node]->sw, &(struct ina_command){.op = INA_SET_LINK, .id = from.port, .link = &link});
    ina_link_set_rate(em->host[from.node]->nic, rate_bps);
    return 0;
}

/* ---- running --------------------------------------------------------------------------------------------------------- */

/* Counts a frame that has crossed the wire to this end, `latency` ps ago. 0: it is lost, since the wire was down meanwhile. */
static int count_arrival(struct ina_emulator *em, struct ina_wire *wire, const struct ina_timed_event *event, uint64_t latency)
{
    const struct ina_stored_frame *frame = ina_frames_at(&em->frames, event->frame);
    if (wire->failed_at != UINT64_MAX && wire->failed_at <= event->time - latency && wire->healed_at > frame->left) {
        wire->down++;
        wire->down_bytes += frame->wire_len + INA_ETHERNET_OVERHEAD;
        em->stats.down++;
        ina_frames_put(&em->frames, event->frame);
        return 0;
    }
    const uint8_t *data = (const uint8_t *)(frame + 1) + (em->frames.bare ? 0 : frame->offset);
    const uint32_t bytes = em->frames.bare && frame->len > INA_KEPT_BYTES ? INA_KEPT_BYTES : frame->len;
    em->stats.timing = fold(em->stats.timing ^ event->time,
                            ((uint64_t)event->place << 32 | frame->wire_len) ^ 0x452821e638d01377);
    em->stats.digest = digest(em->stats.digest ^ em->stats.timing, data, bytes);
    em->stats.frames++;
    wire->rx_packets++;
    wire->rx_bytes += frame->wire_len + INA_ETHERNET_OVERHEAD;
    return 1;
}

/* Handles `event[0]`, and up to `most` in all that enter the same switch at the same instant. Returns their number. */
static unsigned handle(struct ina_emulator *em, struct ina_timed_event *event, unsigned most)
{
    const uint32_t kind = event->place >> 29, index = event->place >> 10 & (INA_MOST_NODES - 1), port = event->place & 1023;
    unsigned n = 1, kept = 0;
    switch (kind) {
    case INA_AT_HOST:
        if (count_arrival(em, &em->host[index]->wire, event, 0))
            ina_host_receive(em, index, event->frame);
        break;
    case INA_AT_SWITCH:
        kept = (unsigned)count_arrival(em, &em->node[index]->wires[port], event, em->node[index]->latency);
        for (; n < most && ina_calendar_next_is(&em->calendar, em->now, event->place & ~1023u, 1023u); n++) {
            if ((em->error = ina_calendar_pop(&em->calendar, &event[kept])))
                break;
            kept += (unsigned)count_arrival(em, &em->node[index]->wires[event[kept].place & 1023], &event[kept],
                                            em->node[index]->latency);
        }
        if (kept)
            switch_receive(em, index, event, kept);
        break;
    case INA_AT_QUEUE:
        ina_switch_poll_port(em->node[index]->sw, port, em->now);
        set_switch_timer(em, em->node[index]);
        break;
    default:
        ina_host_processed(em, kind, index, event->frame);
    }
    return n;
}

static void timer_fires(struct ina_emulator *em, uint32_t timer)
{
    struct ina_timer_owner owner = em->owners[timer];
    switch (owner.kind) {
    case INA_TIMER_MACHINE:
        ina_machine_run(em, owner.index);
        break;
    case INA_TIMER_NIC:
        ina_host_has_room(em, owner.index);
        break;
    default:
        ina_switch_poll(em->node[owner.index]->sw, em->now);
        set_switch_timer(em, em->node[owner.index]);
    }
}

int ina_emulator_run(struct ina_emulator *em, uint64_t until, uint64_t max_events)
{
    for (uint64_t done = 0; done < max_events && !em->error;) {
        if (em->stop_at_completions && em->completion_read < em->completion_count)
            return INA_RUN_COMPLETION;
        uint32_t timer = 0;
        uint64_t due = ina_timers_first(&em->timers, &timer);
        uint64_t next = ina_calendar_first(&em->calendar);
        if (due == UINT64_MAX && next == UINT64_MAX)
            return INA_RUN_IDLE;
        if ((next <= due ? next : due) > until) {
            em->now = until > em->now ? until : em->now;
            return INA_RUN_MORE;
        }
        unsigned n = 1;
        if (next <= due) {
            struct ina_timed_event event[INA_BATCH];
            if ((em->error = ina_calendar_pop(&em->calendar, event)))
                break;
            em->now = event->time > em->now ? event->time : em->now;
            const uint32_t soon = ina_calendar_ahead(&em->calendar, PREFETCH);
            if (soon != UINT32_MAX)
                ina_frames_prefetch(&em->frames, soon);
            n = handle(em, event, max_events - done < INA_BATCH ? (unsigned)(max_events - done) : INA_BATCH);
        } else {
            em->now = due > em->now ? due : em->now;
            timer_fires(em, timer);
        }
        em->stats.events += n;
        done += n;
    }
    return em->error;
}

int ina_emulator_idle(struct ina_emulator *em, uint64_t time)
{
    uint32_t timer = 0;
    if (ina_timers_first(&em->timers, &timer) != UINT64_MAX || ina_calendar_first(&em->calendar) != UINT64_MAX)
        return -EBUSY;
    em->now = time > em->now ? time : em->now;
    return 0;
}

void ina_emulator_stop_at_completions(struct ina_emulator *em, int stop)
{
    em->stop_at_completions = stop;
}

uint64_t ina_emulator_now(const struct ina_emulator *em)
{
    return em->now;
}

/* ---- figures --------------------------------------------------------------------------------------------------------- */

static void add_faults(struct ina_emulator_stats *stats, const struct ina_wire *wire)
{
    stats->lost += wire->fault.lost;
    stats->duplicated += wire->fault.duplicated;
    stats->reordered += wire->fault.reordered;
    stats->corrupted += wire->fault.corrupted;
}

void ina_emulator_get_stats(const struct ina_emulator *em, struct ina_emulator_stats *stats)
{
    *stats = em->stats;
    stats->most_frames = ina_pool_size(&em->frames.pool);
    stats->memory = stats->most_frames * (em->frames.pool.stride + sizeof(uint32_t)) + ina_calendar_memory(&em->calendar);
    for (uint32_t i = 0; i < em->hosts; i++)
        add_faults(stats, &em->host[i]->wire);
    for (uint32_t i = 0; i < em->switches; i++)
        for (uint32_t port = 0; port < INA_SWITCH_PORTS; port++)
            add_faults(stats, &em->node[i]->wires[port]);
}

uint64_t ina_emulator_frames_held(const struct ina_emulator *em)
{
    return ina_pool_used(&em->frames.pool) - em->spare_count;
}

int ina_emulator_wire_stats(const struct ina_emulator *em, struct ina_wire_end from, struct ina_wire_stats *stats)
{
    const struct ina_wire *wire = end_wire(em, from);
    if (!wire || !wire->connected)
        return -EINVAL;
    const struct ina_wire *far = end_wire(em, wire->to);
    if (from.kind == INA_NODE_HOST)
        ina_link_settle(em->host[from.node]->nic, em->now);
    *stats = (struct ina_wire_stats){
        .link = *(from.kind == INA_NODE_HOST ? ina_link_get_stats(em->host[from.node]->nic)
                                             : ina_switch_link_stats(em->node[from.node]->sw, from.port)),
        .arrived = far->rx_packets,
        .arrived_bytes = far->rx_bytes,
        .lost = wire->fault.lost,
        .duplicated = wire->fault.duplicated,
        .reordered = wire->fault.reordered,
        .corrupted = wire->fault.corrupted,
        .lost_bytes = wire->lost_bytes,
        .duplicated_bytes = wire->duplicated_bytes,
        .down = far->down,
        .down_bytes = far->down_bytes,
    };
    return 0;
}
