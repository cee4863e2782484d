/* Hosts: one NIC each, and the machines behind it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"
#include "internet.h"

/* ---- the NIC */

/* Gives a frame to the processor as soon as a core is free; the next step follows then. 0: processing takes no time. */
static int process(struct ina_emulator *em, struct ina_host *h, uint32_t frame, uint32_t bytes, uint32_t next)
{
    if (!h->core_free)
        return 0;
    uint32_t core = 0;
    for (uint32_t i = 1; i < h->cpu.cores; i++)
        core = h->core_free[i] < h->core_free[core] ? i : core;
    uint64_t work = h->cpu.packet_ps + h->cpu.byte_fs * bytes / 1000;
    h->core_free[core] = (h->core_free[core] > em->now ? h->core_free[core] : em->now) + work;
    h->cpu_busy += work;
    ina_emulator_later(em, h->core_free[core], ina_place(next, h->index, 0), frame);
    return 1;
}

/* Adds the arrival of a frame: between the queue of a NIC and the far end of its wire it is not touched, so its time is known. */
static void nic_send(struct ina_emulator *em, struct ina_host *h, uint32_t frame)
{
    uint64_t arrival;
    const uint32_t bytes = ina_frames_at(&em->frames, frame)->wire_len + INA_ETHERNET_OVERHEAD;
    if (ina_link_forward(h->nic, bytes, em->now, &arrival) < 0) {
        em->error = -ENOMEM;
        ina_frames_put(&em->frames, frame);
    } else {
        ina_wire_cross(em, &h->wire, frame, arrival);
    }
}

static int has_room(const struct ina_emulator *em, struct ina_host *h)
{
    if (!h->room)
        return 1;
    ina_link_settle(h->nic, em->now);
    return ina_link_backlog(h->nic) + h->working < h->room;
}

/* Sets the time at which a machine that is held back may send again: now, when the oldest frame that waits has left, or, if all
 * are still with a processor, as soon as that is done with one. */
static void expect_room(struct ina_emulator *em, struct ina_host *h)
{
    if (h->room)
        ina_timers_set(&em->timers, h->timer,
                       !h->held_count ? UINT64_MAX : has_room(em, h) ? em->now : ina_link_head_due(h->nic));
}

/* Machines take turns. */
static void hold(struct ina_emulator *em, struct ina_host *h, uint32_t index)
{
    if (em->machine[index]->held)
        return;
    em->machine[index]->held = 1;
    if (h->held_count++)
        em->machine[h->held_last]->held_next = index;
    else
        h->held_first = index;
    h->held_last = index;
    em->stats.nic_held++;
    expect_room(em, h);
}

void ina_host_has_room(struct ina_emulator *em, uint32_t host)
{
    struct ina_host *h = em->host[host];
    if (h->held_count) {
        const uint32_t index = h->held_first;
        h->held_first = em->machine[index]->held_next;
        h->held_count--;
        em->machine[index]->held = 0;
        ina_machine_run(em, index);
    }
    expect_room(em, h);
}

/* Sends frames of a machine. */
static void hand_over(struct ina_emulator *em, struct ina_host *h, uint32_t frame, const struct ina_packet *pkt)
{
    ina_frames_store(&em->frames, frame, pkt);
    const uint32_t bytes = ina_frames_at(&em->frames, frame)->wire_len;
    if (process(em, h, frame, bytes, INA_AT_NIC))
        h->working += bytes + INA_ETHERNET_OVERHEAD;
    else
        nic_send(em, h, frame);
}

/* ---- machines */

static void complete(struct ina_emulator *em, uint32_t index, const struct ina_event *event)
{
    struct ina_machine *m = em->machine[index];
    if (!m->tickets[event->op % INA_MAX_OPS])
        return; /* an offer: the tensor after it says all */
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
        .time = em->now, .ticket = m->tickets[event->op % INA_MAX_OPS], .machine = index, .event = *event};
}

static void start_submissions(struct ina_emulator *em, struct ina_machine *m, uint32_t index)
{
    while (m->first && m->first->at <= em->now) {
        struct ina_submission *s = m->first;
        const int handle = ina_protocol_submit(m->protocol, m->state, m->tensors, &s->tensor, em->now);
        if (handle == -EAGAIN && !m->failed)
            return;
        if (handle >= 0)
            m->tickets[handle] = s->ticket;
        m->first = s->next;
        if (handle < 0) { /* the job is over: this tensor fails, too */
            struct ina_event event = {.type = INA_EVENT_FAILED, .code = INA_ERR_ABORTED};
            uint64_t kept = m->tickets[0];
            m->tickets[0] = s->ticket;
            complete(em, index, &event);
            m->tickets[0] = kept;
        }
        free(s);
    }
}

static void send_all(struct ina_emulator *em, struct ina_host *h, struct ina_machine *m, uint32_t index)
{
    struct ina_packet pkts[INA_SEND_BATCH];
    int sent, limit = 1; /* usually one frame answers one, in its buffer */
    do {
        if (!has_room(em, h)) {
            hold(em, h, index);
            return;
        }
        for (int i = 0; i < limit; i++) {
            if ((uint32_t)i == em->spare_count && (em->spare[em->spare_count++] = ina_frames_get(&em->frames)) == UINT32_MAX) {
                em->spare_count--;
                em->error = -ENOMEM;
                return;
            }
            ina_frames_blank(&em->frames, em->spare[i], (uint32_t)i, &pkts[i]);
        }
        sent = m->protocol->frames_to_send(m->state, m->tensors, pkts, limit, em->now);
        for (int i = 0; i < sent; i++)
            hand_over(em, h, em->spare[i], &pkts[i]);
        for (uint32_t i = (uint32_t)sent; sent && i < em->spare_count; i++)
            em->spare[i - (uint32_t)sent] = em->spare[i];
        em->spare_count -= (uint32_t)sent;
        if (sent < limit)
            return;
        limit = h->room ? 1 : INA_SEND_BATCH;
    } while (1);
}

void ina_machine_run(struct ina_emulator *em, uint32_t index)
{
    struct ina_machine *m = em->machine[index];
    struct ina_host *h = em->host[m->host];
    struct ina_event events[INA_MAX_OPS];
    int count;
    if (m->stopped)
        return;
    do {
        start_submissions(em, m, index);
        send_all(em, h, m, index);
        count = m->protocol->events(m->state, events, INA_MAX_OPS);
        for (int i = 0; i < count; i++) {
            m->failed |= events[i].type == INA_EVENT_FAILED;
            complete(em, index, &events[i]);
            m->tickets[events[i].op % INA_MAX_OPS] = 0;
        }
    } while (count > 0 && !em->error); /* a completed tensor may have let the next one in */
    uint64_t due = m->protocol->next_timer(m->state);
    if (m->first && m->first->at > em->now && m->first->at < due)
        due = m->first->at;
    ina_timers_set(&em->timers, m->timer, m->held ? UINT64_MAX : due); /* held: it runs when there is room */
}

/* Returns the machine that a frame is for, UINT32_MAX: none. One with port 0 takes the frames that are no UDP. */
static uint32_t addressee(const struct ina_emulator *em, const struct ina_host *h, const struct ina_packet *pkt)
{
    const int port = ina_internet_port_of(pkt->data, pkt->len);
    for (uint32_t i = 0; i < h->machine_count; i++)
        if (em->machine[h->machines[i]]->udp_port == (port < 0 ? 0 : port))
            return h->machines[i];
    return UINT32_MAX;
}

static void claim(struct ina_emulator *em, struct ina_host *h, uint32_t frame)
{
    struct ina_packet pkt;
    ina_frames_open(&em->frames, frame, INA_SCRATCH_OUT, &pkt);
    uint32_t index = addressee(em, h, &pkt);
    if (index == UINT32_MAX) {
        em->stats.unclaimed++;
        ina_frames_put(&em->frames, frame);
        return;
    }
    struct ina_machine *m = em->machine[index];
    if (m->protocol->receive(m->state, m->tensors, &pkt, 1, em->now))
        hand_over(em, h, frame, &pkt);
    else
        ina_frames_put(&em->frames, frame);
    ina_machine_run(em, index);
}

void ina_host_receive(struct ina_emulator *em, uint32_t host, uint32_t frame)
{
    struct ina_host *h = em->host[host];
    if (!process(em, h, frame, ina_frames_at(&em->frames, frame)->wire_len, INA_AT_MACHINE))
        claim(em, h, frame);
}

void ina_host_processed(struct ina_emulator *em, uint32_t kind, uint32_t host, uint32_t frame)
{
    struct ina_host *h = em->host[host];
    if (kind == INA_AT_MACHINE) {
        claim(em, h, frame);
        return;
    }
    h->working -= ina_frames_at(&em->frames, frame)->wire_len + INA_ETHERNET_OVERHEAD;
    nic_send(em, h, frame);
    expect_room(em, h);
}

/* ---- building */

int ina_emulator_add_host(struct ina_emulator *em)
{
    struct ina_host **list = realloc(em->host, (em->hosts + 1) * sizeof(struct ina_host *));
    if (!list)
        return -ENOMEM;
    em->host = list;
    if (em->hosts == INA_MOST_NODES)
        return -ENOSPC;
    struct ina_host *h = calloc(1, sizeof *h);
    if (!h)
        return -ENOMEM;
    h->nic = ina_link_create(&(struct ina_link_config){0});
    if (!h->nic) {
        ina_host_destroy(h);
        return -ENOMEM;
    }
    h->index = em->hosts;
    em->host[em->hosts] = h;
    return (int)em->hosts++;
}

int ina_host_connect(struct ina_emulator *em, struct ina_host *h, const struct ina_link_config *link)
{
    struct ina_link_config endless = *link;
    endless.queue_bytes = 0;
    struct ina_link *nic = ina_link_create(&endless);
    const int timer = nic && link->queue_bytes ? ina_emulator_add_timer(em, INA_TIMER_NIC, h->index) : 0;
    if (!nic || timer < 0) {
        ina_link_destroy(nic);
        return -ENOMEM;
    }
    ina_link_destroy(h->nic);
    h->nic = nic;
    h->room = link->queue_bytes;
    h->timer = (uint32_t)timer;
    return 0;
}

void ina_host_destroy(struct ina_host *h)
{
    free(h->core_free);
    free(h->machines);
    ina_link_destroy(h->nic);
    free(h);
}

static void forget(struct ina_machine *m)
{
    while (m->first) {
        struct ina_submission *s = m->first;
        m->first = s->next;
        free(s);
    }
    if (m->owned)
        free(m->state);
    m->state = NULL;
    m->owned = 0;
}

void ina_machine_destroy(struct ina_machine *m)
{
    forget(m);
    free(m);
}

int ina_emulator_stop_machine(struct ina_emulator *em, uint32_t index)
{
    if (index >= em->machines || em->machine[index]->stopped)
        return -EINVAL;
    struct ina_machine *m = em->machine[index];
    struct ina_host *h = em->host[m->host];
    uint32_t i = 0;
    while (h->machines[i] != index)
        i++;
    h->machines[i] = h->machines[--h->machine_count];
    m->stopped = 1;
    ina_timers_set(&em->timers, m->timer, UINT64_MAX);
    forget(m);
    return 0;
}

int ina_emulator_set_cpu(struct ina_emulator *em, uint32_t host, const struct ina_cpu_config *config)
{
    if (host >= em->hosts || config->cores > 1024)
        return -EINVAL;
    struct ina_host *h = em->host[host];
    free(h->core_free);
    h->core_free = NULL;
    h->cpu = *config;
    h->cpu.cores = config->cores ? config->cores : 1;
    if (!config->packet_ps && !config->byte_fs)
        return 0;
    h->core_free = calloc(h->cpu.cores, sizeof *h->core_free);
    return h->core_free ? 0 : -ENOMEM;
}

uint64_t ina_emulator_cpu_busy(const struct ina_emulator *em, uint32_t host)
{
    return host < em->hosts ? em->host[host]->cpu_busy : 0;
}

int ina_emulator_add_machine(struct ina_emulator *em, uint32_t host, const struct ina_protocol *protocol, void *state,
                             uint16_t udp_port)
{
    if (host >= em->hosts)
        return -EINVAL;
    struct ina_host *h = em->host[host];
    for (uint32_t i = 0; i < h->machine_count; i++)
        if (em->machine[h->machines[i]]->udp_port == udp_port)
            return -EEXIST;
    struct ina_machine **list = realloc(em->machine, (em->machines + 1) * sizeof(struct ina_machine *));
    if (list)
        em->machine = list;
    uint32_t *mine = realloc(h->machines, (h->machine_count + 1) * sizeof *mine);
    if (mine)
        h->machines = mine;
    struct ina_machine *m = calloc(1, sizeof *m);
    int timer = list && mine && m ? ina_emulator_add_timer(em, INA_TIMER_MACHINE, em->machines) : -ENOMEM;
    if (timer < 0) {
        free(m);
        return timer;
    }
    m->protocol = protocol;
    m->state = state;
    m->host = host;
    m->udp_port = udp_port;
    m->timer = (uint32_t)timer;
    h->machines[h->machine_count++] = em->machines;
    em->machine[em->machines] = m;
    return (int)em->machines++;
}

int ina_emulator_add_worker(struct ina_emulator *em, uint32_t host, const struct ina_protocol *protocol,
                            const struct ina_worker_config *config)
{
    size_t size = protocol->state_size(config);
    if (!size || protocol->frame_size(config) > em->max_frame)
        return -EINVAL;
    void *state = aligned_alloc(64, (size + 63) & ~(size_t)63);
    int index = state ? protocol->init(state, config, em->now) : -ENOMEM;
    if (!index)
        index = ina_emulator_add_machine(em, host, protocol, state, config->self.port);
    if (index < 0) {
        free(state);
        return index;
    }
    em->machine[index]->owned = 1;
    em->machine[index]->stats_offset = protocol->stats_offset(config);
    return index;
}

/* ---- figures */

int64_t ina_emulator_submit(struct ina_emulator *em, uint32_t machine, const struct ina_tensor *tensor, uint64_t at)
{
    if (machine >= em->machines || em->machine[machine]->stopped || at < em->now)
        return -EINVAL;
    struct ina_machine *m = em->machine[machine];
    if ((m->first && m->last->at > at) || !ina_protocol_takes(m->protocol, tensor))
        return -EINVAL;
    struct ina_submission *s = malloc(sizeof *s);
    if (!s)
        return -ENOMEM;
    *s = (struct ina_submission){.at = at, .ticket = ++em->next_ticket, .tensor = *tensor};
    if (m->first)
        m->last->next = s;
    else
        m->first = s;
    m->last = s;
    if (em->timers.due[m->timer] > m->first->at)
        ina_timers_set(&em->timers, m->timer, m->first->at);
    return (int64_t)s->ticket;
}

int ina_emulator_amend(struct ina_emulator *em, uint32_t machine, uint64_t ticket, const struct ina_offer *offer, const void *in)
{
    if (machine >= em->machines || !em->machine[machine]->protocol->offers || !ticket)
        return -EINVAL;
    struct ina_machine *m = em->machine[machine];
    if (m->stopped)
        return -ESRCH;
    if (m->failed)
        return -ENOENT;
    for (struct ina_submission *s = m->first; s; s = s->next) {
        if (s->ticket == ticket && s->tensor.part == INA_PART_CHOSEN) {
            s->tensor.offer = *offer;
            s->tensor.in = in;
            return 0;
        }
    }
    for (int handle = 0; handle < INA_MAX_OPS; handle++) {
        if (m->tickets[handle] != ticket || m->tensors[handle].part != INA_PART_CHOSEN)
            continue;
        const int result = ina_protocol_amend(m->protocol, m->state, m->tensors, handle, offer, in, em->now);
        if (!result && em->timers.due[m->timer] > em->now)
            ina_timers_set(&em->timers, m->timer, em->now);
        return result;
    }
    return -ENOENT;
}

int ina_emulator_completions(struct ina_emulator *em, struct ina_completion *out, int max)
{
    int n = 0;
    while (n < max && em->completion_read < em->completion_count)
        out[n++] = em->completions[em->completion_read++];
    return n;
}

int ina_emulator_worker_stats(const struct ina_emulator *em, uint32_t machine, struct ina_worker_stats *stats)
{
    if (machine >= em->machines || !em->machine[machine]->owned)
        return -EINVAL;
    memcpy(stats, (const uint8_t *)em->machine[machine]->state + em->machine[machine]->stats_offset, sizeof *stats);
    return 0;
}
