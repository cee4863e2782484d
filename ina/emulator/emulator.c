/* The event loop, and what happens on the wires and at the switches. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"

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
    for (uint32_t i = 0; i < em->machines; i++)
        ina_machine_destroy(em->machine[i]);
    for (uint32_t i = 0; i < em->hosts; i++)
        ina_host_destroy(em->host[i]);
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

static void arrive_later(struct ina_emulator *em, struct ina_wire *wire, uint32_t frame, uint64_t time)
{
    if (wire->to.kind == INA_NODE_SWITCH)
        time += em->node[wire->to.node]->latency;
    if (ina_arrivals_push(&em->arrivals, time, frame, wire->to)) {
        ina_frames_put(&em->frames, frame);
        em->error = -ENOMEM;
    }
}

void ina_wire_cross(struct ina_emulator *em, struct ina_wire *wire, uint32_t frame, uint64_t time)
{
    if (!wire->connected) {
        em->stats.unwired++;
        ina_frames_put(&em->frames, frame);
        return;
    }
    if (!wire->faulty) {
        arrive_later(em, wire, frame, time);
        return;
    }
    uint64_t late[2];
    int copies = ina_fault_decide(&wire->fault, late);
    struct ina_packet pkt;
    ina_frames_lend(&em->frames, frame, &pkt);
    if (copies == 2) {
        uint32_t twin = ina_frames_copy(&em->frames, pkt.data, pkt.len, pkt.wire_len);
        if (twin == UINT32_MAX) {
            em->error = -ENOMEM;
        } else {
            wire->duplicated_bytes += pkt.wire_len + INA_ETHERNET_OVERHEAD;
            arrive_later(em, wire, twin, time + late[1]);
        }
    }
    if (copies > 0) {
        arrive_later(em, wire, frame, time + late[0]);
    } else {
        wire->lost_bytes += pkt.wire_len + INA_ETHERNET_OVERHEAD;
        ina_frames_put(&em->frames, frame);
    }
}

/* FNV-1a with words in the place of bytes, and four of them side by side, which do not wait for each other. */
static void add_digest(struct ina_emulator *em, const void *data, size_t size)
{
    enum { LANES = 4 };
    static const uint64_t prime = 0x100000001b3u;
    const uint8_t *bytes = data;
    uint64_t lane[LANES];
    for (unsigned i = 0; i < LANES; i++)
        lane[i] = em->stats.digest + i;
    for (; size >= 8 * LANES; size -= 8 * LANES, bytes += 8 * LANES)
        for (unsigned i = 0; i < LANES; i++) {
            uint64_t word;
            memcpy(&word, bytes + 8 * i, 8);
            lane[i] = (lane[i] ^ word) * prime;
            lane[i] ^= lane[i] >> 29;
        }
    uint64_t h = lane[0];
    for (unsigned i = 1; i < LANES; i++)
        h = (h ^ lane[i]) * prime;
    for (; size; size--)
        h = (h ^ *bytes++) * prime;
    em->stats.digest = h;
}

/* ---- switches -------------------------------------------------------------------------------------------------------- */

/* A frame is at the far end of a switch port's link. */
static void switch_output(void *context, uint16_t port, const struct ina_packet *pkt, uint64_t now)
{
    struct ina_node *node = context;
    struct ina_emulator *em = node->em;
    if (pkt->len > em->max_frame) {
        em->stats.unwired++;
        return;
    }
    uint32_t frame = ina_frames_copy(&em->frames, pkt->data, pkt->len, pkt->wire_len);
    if (frame == UINT32_MAX)
        em->error = -ENOMEM;
    else
        ina_wire_cross(em, &node->wires[port], frame, now);
}

static void switch_receive(struct ina_emulator *em, uint32_t index, uint32_t port, uint32_t frame)
{
    struct ina_node *node = em->node[index];
    struct ina_packet pkt;
    ina_frames_lend(&em->frames, frame, &pkt);
    pkt.ingress_port = (uint16_t)port;
    ina_switch_input(node->sw, &pkt, 1, em->now);
    ina_frames_put(&em->frames, frame);
    ina_timers_set(&em->timers, node->timer, ina_switch_next_due(node->sw));
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
    struct ina_node **list = realloc(em->node, (em->switches + 1) * sizeof *list);
    if (!list)
        return -ENOMEM;
    em->node = list;
    struct ina_node *node = calloc(1, sizeof *node);
    struct ina_wire *wires = calloc(INA_SWITCH_PORTS, sizeof *wires);
    int timer = node && wires ? ina_emulator_add_timer(em, INA_TIMER_SWITCH, em->switches) : -ENOMEM;
    if (timer < 0) {
        free(node);
        free(wires);
        return timer;
    }
    *node = (struct ina_node){.em = em, .sw = sw, .wires = wires, .latency = latency_ps, .timer = (uint32_t)timer};
    ina_switch_set_output(sw, switch_output, node);
    em->node[em->switches] = node;
    return (int)em->switches++;
}

/* What leaves by `from`; direction NULL: nothing does, but a switch has a port there for what arrives. */
static int open_direction(struct ina_emulator *em, struct ina_wire_end from, struct ina_wire_end to,
                          const struct ina_wire_direction *direction)
{
    if (from.kind == INA_NODE_SWITCH) {
        struct ina_command add = {.op = INA_ADD_PORT, .id = from.port, .link = direction ? &direction->link : NULL};
        if (ina_switch_execute(em->node[from.node]->sw, &add))
            return add.result;
    } else if (direction) {
        ina_link_start(em->host[from.node]->nic, &direction->link, em->host[from.node]->nic_packets);
    }
    if (!direction)
        return 0;
    struct ina_wire *wire = end_wire(em, from);
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
    struct ina_wire *wa = end_wire(em, a), *wb = end_wire(em, b);
    if (!wa || !wb || wa == wb)
        return -EINVAL;
    if (wa->connected || wb->connected)
        return -EEXIST;
    int bad = open_direction(em, a, b, a_to_b);
    return bad ? bad : open_direction(em, b, a, b_to_a);
}

/* ---- running --------------------------------------------------------------------------------------------------------- */

static void arrive(struct ina_emulator *em, const struct ina_arrival *arrival)
{
    struct ina_packet pkt;
    if (arrival->at.kind >= INA_AT_MACHINE) {
        ina_host_processed(em, arrival->at.kind, arrival->at.node, arrival->frame);
        return;
    }
    ina_frames_lend(&em->frames, arrival->frame, &pkt);
    uint64_t place[2] = {em->now, (uint64_t)arrival->at.kind << 48 | (uint64_t)arrival->at.node << 16 | arrival->at.port};
    add_digest(em, place, sizeof place);
    add_digest(em, pkt.data, pkt.len);
    em->stats.frames++;
    struct ina_wire *wire = end_wire(em, arrival->at);
    wire->rx_packets++;
    wire->rx_bytes += pkt.wire_len + INA_ETHERNET_OVERHEAD;
    if (arrival->at.kind == INA_NODE_HOST)
        ina_host_receive(em, arrival->at.node, arrival->frame);
    else
        switch_receive(em, arrival->at.node, arrival->at.port, arrival->frame);
}

static void timer_fires(struct ina_emulator *em, uint32_t timer)
{
    struct ina_timer_owner owner = em->owners[timer];
    if (owner.kind == INA_TIMER_SWITCH) {
        struct ina_node *node = em->node[owner.index];
        ina_switch_poll(node->sw, em->now);
        ina_timers_set(&em->timers, timer, ina_switch_next_due(node->sw));
    } else if (owner.kind == INA_TIMER_NIC) {
        ina_host_poll(em, em->host[owner.index]);
    } else {
        ina_machine_run(em, owner.index);
    }
}

int ina_emulator_run(struct ina_emulator *em, uint64_t until, uint64_t max_events)
{
    for (uint64_t done = 0; done < max_events && !em->error; done++) {
        if (em->stop_at_completions && em->completion_read < em->completion_count)
            return 0;
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
    for (uint32_t i = 0; i < em->hosts; i++)
        add_faults(stats, &em->host[i]->wire);
    for (uint32_t i = 0; i < em->switches; i++)
        for (uint32_t port = 0; port < INA_SWITCH_PORTS; port++)
            add_faults(stats, &em->node[i]->wires[port]);
}

uint64_t ina_emulator_frames_held(const struct ina_emulator *em)
{
    return ina_frames_used(&em->frames);
}

int ina_emulator_wire_stats(const struct ina_emulator *em, struct ina_wire_end from, struct ina_wire_stats *stats)
{
    const struct ina_wire *wire = end_wire(em, from);
    if (!wire || !wire->connected)
        return -EINVAL;
    const struct ina_wire *far = end_wire(em, wire->to);
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
    };
    return 0;
}
