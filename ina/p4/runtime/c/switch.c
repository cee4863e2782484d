/* Creation and end of a switch, and the path of a batch: ingress, then its verdicts. Egress is in egress.c. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"
#include "table.h"

enum { LOOP_ROUNDS = 1024 /* in a call; the rest waits for the next poll */ };

static uint32_t align64(uint64_t n)
{
    return (uint32_t)((n + 63) & ~63ull);
}

/* Blocks side by side whose distance is a multiple of 1 KiB would share few cache sets. */
static uint32_t spread(uint32_t stride)
{
    return stride % 1024 ? stride : stride + 64;
}

struct ina_switch *ina_switch_create(const struct ina_program *program, const struct ina_tables *tables,
                                     const struct ina_switch_config *config)
{
    static const struct ina_tables no_tables;
    if (!tables)
        tables = &no_tables;
    const bool tna = program && program->abi == INA_PROGRAM_ABI && program->architecture == INA_TNA;
    if (!program || program->abi != INA_PROGRAM_ABI || (!tna && tables->count != program->table_count)) {
        errno = EINVAL;
        return NULL;
    }
    struct ina_switch *sw = ina_zeroed(sizeof *sw);
    if (!sw)
        return NULL;
    sw->program = program;
    sw->tables = tables;
    if (config)
        sw->config = *config;
    if (!sw->config.reentries)
        sw->config.reentries = 1024;
    if (!sw->config.max_frame)
        sw->config.max_frame = 9216;
    if (!sw->config.max_passes || sw->config.max_passes > UINT8_MAX)
        sw->config.max_passes = tna ? UINT8_MAX : 64; /* TNA programs recirculate for each part of a packet */
    if (!sw->config.digests)
        sw->config.digests = 256;
    sw->meta_size = sw->carried = program->meta_size;
    sw->shared = program->flags & INA_PROGRAM_READS_META;
    sw->state_size = sw->state_stride = program->state_size;
    if (tna) {
        sw->config.max_frame += INA_HEADROOM; /* for headers that ingress puts before a frame for egress, or its next pass */
        int error = ina_tna_create(sw);
        if (error) {
            ina_release(sw, sizeof *sw);
            errno = error;
            return NULL;
        }
    }
    sw->meta_stride = spread(align64(sw->meta_size));
    sw->frame_stride = spread(align64(INA_HEADROOM + (uint64_t)sw->config.max_frame));
    sw->buffers.stride = align64(sizeof(struct ina_buffer)) + sw->meta_stride + sw->frame_stride;
    sw->digest_stride = align64(sizeof(struct ina_digest) + sw->meta_size);

    sw->state = ina_zeroed(sw->state_size);
    sw->ingress_meta = ina_zeroed((size_t)sw->meta_stride * INA_BATCH);
    sw->egress_meta = ina_zeroed((size_t)sw->meta_stride * INA_BATCH);
    sw->frames = ina_zeroed((size_t)sw->frame_stride * INA_BATCH);
    sw->digests = ina_zeroed((size_t)sw->digest_stride * sw->config.digests);
    sw->out = calloc(INA_BATCH, sizeof *sw->out);
    sw->emissions = calloc(INA_EMISSIONS, sizeof *sw->emissions);
    sw->groups = ina_zeroed(INA_SWITCH_GROUPS * sizeof(void *));
    sw->sessions = ina_zeroed(INA_SWITCH_GROUPS * sizeof(void *));
    if (!sw->state || !sw->ingress_meta || !sw->egress_meta || !sw->frames || !sw->digests || !sw->out
        || !sw->emissions || !sw->groups || !sw->sessions) {
        ina_switch_destroy(sw);
        errno = ENOMEM;
        return NULL;
    }
    if (tna) {
        int error = ina_tna_boot(sw);
        if (error) {
            ina_switch_destroy(sw);
            errno = error;
            return NULL;
        }
    } else if (program->init) {
        program->init(sw->state, sw->config.seed);
    }
    return sw;
}

void ina_switch_destroy(struct ina_switch *sw)
{
    if (!sw)
        return;
    for (unsigned i = 0; i < INA_SWITCH_GROUPS; i++) {
        if (sw->groups)
            free(sw->groups[i]);
        if (sw->sessions)
            free(sw->sessions[i]);
    }
    for (unsigned i = 0; i < INA_SWITCH_PORTS; i++)
        ina_link_destroy(sw->ports[i].link);
    ina_release(sw->groups, INA_SWITCH_GROUPS * sizeof(void *));
    ina_release(sw->sessions, INA_SWITCH_GROUPS * sizeof(void *));
    free(sw->emissions);
    free(sw->out);
    if (!sw->borrowed)
        ina_release(sw->state, sw->state_size);
    ina_release(sw->ingress_meta, (size_t)sw->meta_stride * INA_BATCH);
    ina_release(sw->egress_meta, (size_t)sw->meta_stride * INA_BATCH);
    ina_release(sw->frames, (size_t)sw->frame_stride * INA_BATCH);
    ina_pool_destroy(&sw->buffers);
    ina_release(sw->digests, (size_t)sw->digest_stride * sw->config.digests);
    ina_pool_destroy(&sw->parked);
    ina_tna_destroy(sw->tna);
    ina_release(sw, sizeof *sw);
}

void ina_switch_set_output(struct ina_switch *sw,
                           void (*output)(void *context, uint16_t port, const struct ina_packet *pkt, uint64_t now),
                           void *context)
{
    sw->output = output;
    sw->output_context = context;
}

uint32_t ina_switch_headroom(const struct ina_switch *sw)
{
    return sw->program->architecture == INA_TNA ? INA_HEADROOM : INA_LEAST_HEADROOM;
}

void *ina_switch_state(struct ina_switch *sw)
{
    return sw->state;
}

void ina_switch_use_state(struct ina_switch *sw, void *state)
{
    if (!sw->borrowed)
        ina_release(sw->state, sw->state_size);
    sw->state = state;
    sw->borrowed = true;
}

uint64_t ina_switch_state_size(const struct ina_switch *sw)
{
    return sw->state_size;
}

uint64_t ina_switch_state_stride(const struct ina_switch *sw)
{
    return sw->state_stride;
}

void ina_copy_to(struct ina_switch *sw, struct ina_packet *batch, unsigned source, struct ina_replica to,
                 uint8_t instance_type, uint64_t now)
{
    if (to.port >= INA_SWITCH_PORTS || !sw->ports[to.port].present) {
        ina_count_drop(sw, batch[source].ingress_port, INA_DROPPED_NO_PORT);
        return;
    }
    if (sw->emission_count == INA_EMISSIONS)
        ina_emit(sw, batch, now);
    struct ina_switch_port *port = &sw->ports[to.port];
    int32_t index = (int32_t)sw->emission_count++;
    sw->emissions[index] = (struct ina_emission){(uint16_t)source, to.rid, instance_type, INA_NONE};
    if (!port->active) {
        port->active = true;
        port->first = index;
        sw->active[sw->active_count++] = to.port;
    } else {
        sw->emissions[port->last].next = index;
    }
    port->last = index;
    port->copies++;
    sw->uses[source]++;
}

static void emit_all(struct ina_switch *sw, struct ina_packet *batch, unsigned source, const struct ina_members *members,
                     uint8_t instance_type, uint64_t now)
{
    for (uint32_t m = 0; m < members->count; m++)
        ina_copy_to(sw, batch, source, members->member[m], instance_type, now);
}

/* Carries out the verdict of ingress. */
static void route(struct ina_switch *sw, struct ina_packet *batch, unsigned i, uint64_t now)
{
    struct ina_packet *pkt = &batch[i];
    if (pkt->clone)
        ina_loop_push(sw, pkt, INA_INGRESS_CLONE, sw->passes[i]);
    if (pkt->digest)
        ina_digest_add(sw, pkt, pkt->digest, now);
    switch (pkt->verdict) {
    case INA_UNICAST:
        ina_copy_to(sw, batch, i, (struct ina_replica){pkt->egress_port, 0}, INA_NORMAL, now);
        break;
    case INA_MULTICAST: {
        const struct ina_members *group = sw->groups[pkt->mcast_grp];
        if (group)
            emit_all(sw, batch, i, group, INA_REPLICATED, now);
        else
            ina_count_drop(sw, pkt->ingress_port, INA_DROPPED_NO_GROUP);
        break;
    }
    case INA_RESUBMIT:
        ina_loop_push(sw, pkt, INA_RESUBMITTED, sw->passes[i]);
        break;
    default:
        ina_count_drop(sw, pkt->ingress_port, ina_end_of(pkt->verdict, INA_DROPPED_INGRESS));
    }
}

/* Sends a clone, which was only parsed, to its session's replicas. */
static void route_clone(struct ina_switch *sw, struct ina_packet *batch, unsigned i, uint32_t session, uint64_t now)
{
    const struct ina_members *members = session < INA_SWITCH_GROUPS ? sw->sessions[session] : NULL;
    if (!members) {
        ina_count_drop(sw, batch[i].ingress_port, INA_DROPPED_NO_SESSION);
        return;
    }
    batch[i].truncate_len = members->truncate;
    emit_all(sw, batch, i, members, batch[i].instance_type, now);
}

/* The common case of aggregation: packets of one port, all of which end here or go to one group with a copy for each of
 * its ports. False: the batch is another case, and nothing has been done. */
static bool to_one_group(struct ina_switch *sw, const struct ina_packet *batch, unsigned n, uint64_t now)
{
    const struct ina_members *group = NULL;
    const struct ina_packet *sources[INA_BATCH];
    unsigned count = 0;
    for (unsigned i = 0; i < n; i++) {
        const struct ina_packet *pkt = &batch[i];
        if (pkt->clone || pkt->digest || pkt->ingress_port != batch[0].ingress_port)
            return false;
        if (pkt->verdict == INA_DROP)
            continue;
        if (pkt->verdict != INA_MULTICAST || (count && pkt->mcast_grp != sources[0]->mcast_grp))
            return false;
        sources[count++] = pkt;
    }
    if (count) {
        group = sw->groups[sources[0]->mcast_grp];
        if (!group || !group->one_each)
            return false;
        for (uint32_t m = 0; m < group->count; m++)
            if (!sw->ports[group->member[m].port].present || sw->ports[group->member[m].port].link)
                return false;
    }
    sw->ports[batch[0].ingress_port].stats.drops[INA_DROPPED_INGRESS] += n - count;
    if (count)
        ina_emit_group(sw, group, batch, sources, count, now);
    return true;
}

/* Runs ingress and all that follows. Metadata, instance types and sw->passes are set; `again` holds the buffers of packets
 * that enter again, NULL for packets from ports. */
static void process(struct ina_switch *sw, struct ina_packet *batch, unsigned n, const uint32_t *again, uint64_t now)
{
    if (sw->tna) {
        ina_tna_process(sw, batch, n, again, now);
        return;
    }
    sw->program->ingress(sw->state, sw->tables, batch, n, now);
    if (!again && to_one_group(sw, batch, n, now))
        return;
    for (unsigned i = 0; i < n; i++) {
        sw->uses[i] = 1; /* held while copies are being added */
        const struct ina_packet *before = again ? &ina_buffer_at(sw, again[i])->pkt : NULL;
        if (before && batch[i].verdict < INA_FAILED
            && (before->instance_type == INA_INGRESS_CLONE || before->instance_type == INA_EGRESS_CLONE))
            route_clone(sw, batch, i, before->clone_session, now);
        else
            route(sw, batch, i, now);
        sw->uses[i]--;
    }
    ina_emit(sw, batch, now);
}

static void reset(struct ina_packet *pkt)
{
    pkt->egress_port = 0;
    pkt->mcast_grp = 0;
    pkt->rid = 0;
    pkt->verdict = INA_DROP;
    pkt->clone = 0;
    pkt->digest = 0;
    pkt->clone_session = 0;
    pkt->truncate_len = 0;
    pkt->enq_qdepth = pkt->deq_qdepth = 0;
    pkt->enq_time = pkt->deq_time = INA_NO_TIME;
}

/* Runs frames that enter again, and queues, until nothing is left to do at `now`. */
static void settle(struct ina_switch *sw, uint64_t now)
{
    if (sw->linked_count)
        ina_links_poll(sw, now);
    for (unsigned round = 0; sw->loop_count && round < LOOP_ROUNDS; round++) {
        struct ina_packet batch[INA_BATCH];
        uint32_t index[INA_BATCH];
        unsigned n = 0;
        for (; n < INA_BATCH && sw->loop_count; n++, sw->loop_count--) {
            struct ina_buffer *b = ina_buffer_at(sw, sw->loop_head);
            index[n] = sw->loop_head;
            sw->loop_head = b->next;
            batch[n] = b->pkt;
            reset(&batch[n]);
            sw->passes[n] = b->passes;
        }
        process(sw, batch, n, index, now);
        for (unsigned i = 0; i < n; i++)
            ina_buffer_give(sw, index[i]);
        if (sw->linked_count)
            ina_links_poll(sw, now);
    }
}

/* Resets the descriptor of a packet that enters, which its port or caller has used. */
static inline void enter(struct ina_packet *pkt, uint8_t *meta, uint16_t number, uint64_t now)
{
    _Static_assert(INA_NORMAL == 0 && INA_DROP == 0 && INA_NO_TIME == 0, "a fresh descriptor is zero");
    memset(&pkt->ingress_port, 0, offsetof(struct ina_packet, meta) - offsetof(struct ina_packet, ingress_port));
    pkt->ingress_port = number;
    pkt->ingress_time = now;
    pkt->meta = meta;
}

/* Counts packets that cannot enter, and removes them from the batch; returns the number of the others, moved to the front. */
static unsigned admit(struct ina_switch *sw, struct ina_packet *pkts, unsigned n, uint64_t now)
{
    const uint32_t headroom = ina_switch_headroom(sw);
    const size_t stride = sw->meta_stride;
    struct ina_packet *to = pkts;
    uint8_t *meta = sw->ingress_meta;
    for (unsigned i = 0; i < n;) {
        const uint16_t number = pkts[i].ingress_port;
        if (number >= INA_SWITCH_PORTS) { /* no such number: nothing to count on */
            i++;
            continue;
        }
        struct ina_switch_port_stats *stats = &sw->ports[number].stats;
        const bool present = sw->ports[number].present;
        const unsigned first = i;
        uint64_t bytes = 0;
        for (; i < n && pkts[i].ingress_port == number; i++) { /* mostly all of them */
            struct ina_packet *pkt = &pkts[i];
            bytes += pkt->wire_len;
            if (__builtin_expect(!present | !pkt->len | (pkt->headroom < headroom) | (pkt->wire_len < pkt->len), 0)) {
                stats->drops[present ? INA_DROPPED_MALFORMED : INA_DROPPED_NO_PORT]++;
                continue;
            }
            if (to != pkt)
                *to = *pkt;
            enter(to++, meta, number, now);
            meta += stride;
        }
        stats->rx_packets += i - first;
        stats->rx_bytes += bytes;
    }
    return (unsigned)(to - pkts);
}

void ina_switch_input(struct ina_switch *sw, struct ina_packet *pkts, unsigned n, uint64_t now)
{
    /* In virtual time passes take none: a packet leaves after its last one before the next packet enters. */
    const unsigned most = sw->tna && sw->outlet.put ? 1 : INA_BATCH;
    while (n) {
        unsigned taken = n < most ? n : most;
        unsigned kept = admit(sw, pkts, taken, now);
        if (kept) {
            memset(sw->passes, 1, kept);
            sw->lent = sw->outlet.put != NULL;
            process(sw, pkts, kept, NULL, now);
            sw->lent = false;
        }
        pkts += taken;
        n -= taken;
        if (sw->loop_count || sw->linked_count)
            settle(sw, now);
    }
}

int ina_switch_input_frame(struct ina_switch *sw, const uint8_t *frame, uint32_t len, uint16_t port, uint64_t now)
{
    if (len > sw->config.max_frame)
        return -EMSGSIZE;
    uint32_t index = ina_buffer_take(sw, &(struct ina_packet){.data = (uint8_t *)(uintptr_t)frame, .len = len});
    if (index == INA_NO_BLOCK)
        return -ENOMEM;
    struct ina_packet pkt = ina_buffer_at(sw, index)->pkt;
    pkt.wire_len = len;
    pkt.ingress_port = port;
    ina_switch_input(sw, &pkt, 1, now);
    ina_buffer_give(sw, index);
    return 0;
}

void ina_switch_poll(struct ina_switch *sw, uint64_t now)
{
    if (sw->tna)
        ina_tna_poll(sw, now);
    settle(sw, now);
}

uint64_t ina_switch_next_due(const struct ina_switch *sw)
{
    uint64_t due = sw->loop_count ? 0 : sw->tna ? ina_tna_next_due(sw) : UINT64_MAX;
    for (uint32_t i = 0; i < sw->linked_count; i++) {
        uint64_t next = ina_link_next_due(sw->ports[sw->linked[i]].link);
        due = next < due ? next : due;
    }
    return due;
}

const struct ina_link_stats *ina_switch_link_stats(const struct ina_switch *sw, uint32_t port)
{
    return port < INA_SWITCH_PORTS && sw->ports[port].link ? ina_link_get_stats(sw->ports[port].link) : NULL;
}
