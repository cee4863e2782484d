/* From the copies that ingress asked for to frames in the ports' memory. */
#include <string.h>

#include "core.h"

unsigned ina_lend(struct ina_switch *sw, uint16_t number, struct ina_packet *pkts, unsigned want)
{
    struct ina_port *port = sw->ports[number].port;
    if (port) {
        int n = port->ops->tx_get(port, pkts, (int)want);
        return n < 0 ? 0 : (unsigned)n;
    }
    for (unsigned i = 0; i < want; i++) {
        pkts[i].data = sw->frames + (size_t)i * sw->frame_stride + INA_HEADROOM;
        pkts[i].len = 0;
        pkts[i].headroom = INA_HEADROOM;
        pkts[i].tailroom = sw->config.max_frame;
    }
    return want;
}

void ina_send(struct ina_switch *sw, uint16_t number, struct ina_packet *pkts, unsigned n, uint64_t now)
{
    struct ina_switch_port *port = &sw->ports[number];
    uint32_t longest = port->port ? port->port->max_frame : UINT32_MAX;
    uint64_t packets = 0, bytes = 0;
    for (unsigned i = 0; i < n; i++) {
        if (!pkts[i].len)
            continue;
        if (pkts[i].wire_len > longest) {
            port->stats.drops[INA_DROPPED_TOO_LONG]++;
            pkts[i].len = pkts[i].wire_len = 0;
            continue;
        }
        packets++;
        bytes += pkts[i].wire_len;
    }
    port->stats.tx_packets += packets;
    port->stats.tx_bytes += bytes;
    if (port->port) {
        port->port->ops->tx_put(port->port, pkts, (int)n, now);
        return;
    }
    for (unsigned i = 0; i < n && sw->output; i++)
        if (pkts[i].len)
            sw->output(sw->output_context, number, &pkts[i], now);
}

void ina_run_egress(struct ina_switch *sw, uint16_t number, struct ina_packet *pkts, unsigned n, const uint8_t *passes,
                    uint64_t now)
{
    if (sw->tna) {
        ina_tna_run_egress(sw, number, pkts, n, passes, now);
        return;
    }
    sw->program->egress(sw->state, sw->tables, pkts, n, now);
    const bool traced = sw->trace != NULL;
    for (unsigned i = 0; i < n; i++) {
        struct ina_packet *pkt = &pkts[i];
        if (__builtin_expect((pkt->verdict == INA_UNICAST) & !(pkt->clone | pkt->digest | pkt->truncate_len | traced), 1))
            continue;
        if (pkt->clone) /* whole: only this packet is cut */
            ina_loop_push(sw, pkt, INA_EGRESS_CLONE, passes[i]);
        if (pkt->truncate_len && pkt->wire_len > pkt->truncate_len) {
            pkt->len = pkt->len < pkt->truncate_len ? pkt->len : pkt->truncate_len;
            pkt->wire_len = pkt->truncate_len;
        }
        if (sw->trace)
            ina_trace_add(sw, pkt, number, 1, now);
        if (pkt->digest)
            ina_digest_add(sw, pkt, pkt->digest, now);
        if (pkt->verdict == INA_UNICAST)
            continue;
        if (pkt->verdict == INA_RECIRCULATE)
            ina_loop_push(sw, pkt, INA_RECIRCULATED, passes[i]);
        else
            ina_count_drop(sw, number, pkt->verdict == INA_FAILED ? INA_DROPPED_ASSERTION : INA_DROPPED_EGRESS);
        pkt->len = pkt->wire_len = 0;
    }
}

enum { WORTH_TAKING = 512 }; /* bytes: shorter frames are copied in less time than ports take to agree */

/* The last copy of packet `source` of the batch need not be one: the frame itself as frame `n` of what the port lent, where both
 * ports can do that. */
static inline bool take(struct ina_switch *sw, struct ina_packet *to, unsigned n, const struct ina_packet *from, unsigned source,
                        struct ina_replica replica, uint8_t instance_type, uint64_t now)
{
    if (from->len < WORTH_TAKING)
        return false;
    struct ina_port *port = sw->ports[replica.port].port, *in = sw->ports[from->ingress_port].port;
    if (!port || !port->ops->take || !in || in->ops != port->ops || sw->tna || !port->ops->take(port, n, in, source, from->data))
        return false;
    to->data = from->data;
    to->len = from->len;
    to->headroom = from->headroom;
    to->tailroom = from->tailroom;
    ina_describe(to, from, replica, instance_type, true);
    to->enq_time = to->deq_time = now;
    return true;
}

/* A copy of `from` into `to`, which is frame `n` of what the port lent; with metadata of its own unless it may have the
 * packet's. False: it does not fit. */
static inline bool copy(struct ina_switch *sw, struct ina_packet *to, unsigned n, const struct ina_packet *from,
                        struct ina_replica replica, uint8_t instance_type, bool own_meta, uint64_t now)
{
    struct ina_switch_port *port = &sw->ports[replica.port];
    if (from->len > to->len + to->tailroom && !(sw->tna && ina_into_headroom(to, from->len - to->len - to->tailroom))) {
        port->stats.drops[INA_DROPPED_TOO_LONG]++;
        return false;
    }
    ina_describe(to, from, replica, instance_type, port->port != NULL);
    ina_copy_frame(to->data, from->data, from->len);
    if (own_meta) {
        to->meta = sw->egress_meta + (size_t)n * sw->meta_stride;
        ina_copy_lines(to->meta, from->meta, sw->carried);
    }
    to->enq_time = to->deq_time = now;
    return true;
}

/* One copy of packet `source` of the batch; the last one has its metadata, and the frame itself if the ports can do that. */
static inline bool put(struct ina_switch *sw, struct ina_packet *to, unsigned n, const struct ina_packet *batch, unsigned source,
                       struct ina_replica replica, uint8_t instance_type, bool last, uint64_t now)
{
    const struct ina_packet *from = &batch[source];
    return (last && take(sw, to, n, from, source, replica, instance_type, now))
           || copy(sw, to, n, from, replica, instance_type, !last, now);
}

/* Copies of one chunk straight into the port's frames; the emission after the chunk. */
static int32_t emit_chunk(struct ina_switch *sw, uint16_t number, const struct ina_packet *batch, int32_t at, uint64_t now)
{
    struct ina_switch_port *port = &sw->ports[number];
    struct ina_packet *out = sw->out;
    uint8_t passes[INA_BATCH];
    unsigned want = port->copies < INA_BATCH ? port->copies : INA_BATCH, n = 0;
    port->copies -= want;
    unsigned lent = ina_lend(sw, number, out, want);
    for (unsigned k = 0; k < want; k++) {
        const struct ina_emission *e = &sw->emissions[at];
        at = e->next;
        uint32_t uses = --sw->uses[e->source]; /* the last copy may have the metadata itself */
        if (n == lent)
            port->stats.drops[INA_DROPPED_BACK_PRESSURE]++;
        else if (put(sw, &out[n], n, batch, e->source, (struct ina_replica){number, e->rid}, e->instance_type, uses == 0, now))
            passes[n++] = sw->passes[e->source];
    }
    if (n)
        ina_run_egress(sw, number, out, n, passes, now);
    if (lent)
        ina_send(sw, number, out, n, now);
    return at;
}

void ina_emit_group(struct ina_switch *sw, const struct ina_members *group, const struct ina_packet *batch,
                    const uint8_t *sources, unsigned count, uint64_t now)
{
    for (uint32_t m = 0; m < group->count; m++) {
        const struct ina_replica replica = group->member[m];
        const bool last = m + 1 == group->count;
        struct ina_packet *out = sw->out;
        unsigned lent = ina_lend(sw, replica.port, out, count), n = 0, k = 0;
        for (; k < count && n < lent; k++)
            n += put(sw, &out[n], n, batch, sources[k], replica, INA_REPLICATED, last, now);
        sw->ports[replica.port].stats.drops[INA_DROPPED_BACK_PRESSURE] += count - k;
        if (n)
            ina_run_egress(sw, replica.port, out, n, sw->passes, now); /* those of a batch from ports: all the same */
        if (lent)
            ina_send(sw, replica.port, out, n, now);
    }
}

void ina_emit(struct ina_switch *sw, struct ina_packet *batch, uint64_t now)
{
    for (uint32_t a = 0; a < sw->active_count; a++) {
        uint16_t number = sw->active[a];
        struct ina_switch_port *port = &sw->ports[number];
        int32_t at = port->first;
        port->active = false;
        port->first = port->last = INA_NONE;
        while (at != INA_NONE) {
            if (!port->link) {
                at = emit_chunk(sw, number, batch, at, now);
                continue;
            }
            const struct ina_emission *e = &sw->emissions[at];
            if (port->outlet) {
                const struct ina_replica to = {number, e->rid};
                at = e->next;
                ina_outlet_send(sw, batch, e->source, to, e->instance_type, --sw->uses[e->source] == 0, now);
                continue;
            }
            struct ina_packet copy = batch[e->source];
            ina_describe(&copy, &batch[e->source], (struct ina_replica){number, e->rid}, e->instance_type, false);
            sw->uses[e->source]--;
            ina_link_push(sw, number, &copy, sw->passes[e->source], now);
            at = e->next;
        }
        port->copies = 0;
    }
    sw->active_count = 0;
    sw->emission_count = 0;
}
