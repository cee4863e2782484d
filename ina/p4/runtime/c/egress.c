/* Makes the copies that ingress requests, as frames in the ports' memory, and runs egress on them. */
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

/* Sends frames to the port or the output callback; `packets` of them have a len other than 0. */
static void hand_over(struct ina_switch *sw, uint16_t number, struct ina_packet *pkts, unsigned n, uint64_t packets, uint64_t bytes,
                      uint64_t now)
{
    struct ina_switch_port *port = &sw->ports[number];
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

static uint32_t longest(const struct ina_switch_port *port)
{
    return port->port ? port->port->max_frame : UINT32_MAX;
}

void ina_send(struct ina_switch *sw, uint16_t number, struct ina_packet *pkts, unsigned n, uint64_t now)
{
    struct ina_switch_port *port = &sw->ports[number];
    const uint32_t most = longest(port);
    uint64_t packets = 0, bytes = 0;
    for (unsigned i = 0; i < n; i++) {
        if (!pkts[i].len)
            continue;
        if (pkts[i].wire_len > most) {
            port->stats.drops[INA_DROPPED_TOO_LONG]++;
            pkts[i].len = pkts[i].wire_len = 0;
            continue;
        }
        packets++;
        bytes += pkts[i].wire_len;
    }
    hand_over(sw, number, pkts, n, packets, bytes, now);
}

/* Carries out the verdicts of egress. */
static void apply_verdicts(struct ina_switch *sw, uint16_t number, struct ina_packet *pkts, unsigned n, const uint8_t *passes,
                           uint64_t now)
{
    for (unsigned i = 0; i < n; i++) {
        struct ina_packet *pkt = &pkts[i];
        if (pkt->clone) /* whole: only this packet is cut */
            ina_loop_push(sw, pkt, INA_EGRESS_CLONE, passes[i]);
        if (pkt->truncate_len && pkt->wire_len > pkt->truncate_len) {
            pkt->len = pkt->len < pkt->truncate_len ? pkt->len : pkt->truncate_len;
            pkt->wire_len = pkt->truncate_len;
        }
        if (pkt->digest)
            ina_digest_add(sw, pkt, pkt->digest, now);
        if (pkt->verdict == INA_UNICAST)
            continue;
        if (pkt->verdict == INA_RECIRCULATE)
            ina_loop_push(sw, pkt, INA_RECIRCULATED, passes[i]);
        else
            ina_count_drop(sw, number, ina_end_of(pkt->verdict, INA_DROPPED_EGRESS));
        pkt->len = pkt->wire_len = 0;
    }
}

void ina_run_egress(struct ina_switch *sw, uint16_t number, struct ina_packet *pkts, unsigned n, const uint8_t *passes,
                    uint64_t now)
{
    if (sw->tna) {
        ina_tna_run_egress(sw, number, pkts, n, passes, now);
        return;
    }
    sw->program->egress(sw->state, sw->tables, pkts, n, now);
    apply_verdicts(sw, number, pkts, n, passes, now);
}

/* Runs egress and sends; mostly all packets are sent, with no other request. */
static void leave(struct ina_switch *sw, uint16_t number, struct ina_packet *pkts, unsigned n, const uint8_t *passes, uint64_t now)
{
    if (sw->tna) {
        ina_tna_run_egress(sw, number, pkts, n, passes, now);
        ina_send(sw, number, pkts, n, now);
        return;
    }
    sw->program->egress(sw->state, sw->tables, pkts, n, now);
    const uint32_t most = longest(&sw->ports[number]);
    uint32_t more = 0;
    uint64_t bytes = 0;
    for (const struct ina_packet *pkt = pkts; pkt != pkts + n; pkt++) {
        more |= (pkt->verdict != INA_UNICAST) | (pkt->wire_len > most) | !pkt->len | pkt->clone | pkt->digest | pkt->truncate_len;
        bytes += pkt->wire_len;
    }
    if (__builtin_expect(!more, 1)) {
        hand_over(sw, number, pkts, n, n, bytes, now);
        return;
    }
    apply_verdicts(sw, number, pkts, n, passes, now);
    ina_send(sw, number, pkts, n, now);
}

enum { WORTH_TAKING = 512 }; /* bytes: shorter frames are copied in less time than ports take to agree */

/* True if the last copy of a packet needs no copying: its own frame becomes one of those that the port lent, if both ports can do
 * that. */
static inline bool may_take(const struct ina_switch *sw, uint16_t number, const struct ina_packet *from)
{
    const struct ina_port *port = sw->ports[number].port, *in = sw->ports[from->ingress_port].port;
    return port && port->ops->take && in && in->ops == port->ops && !sw->tna;
}

/* Makes a packet's own frame number `n` of those that the port lent. */
static inline bool take(struct ina_switch *sw, struct ina_packet *to, unsigned n, const struct ina_packet *from, unsigned source,
                        struct ina_replica replica, uint8_t instance_type, uint64_t now)
{
    struct ina_port *port = sw->ports[replica.port].port;
    if (from->len < WORTH_TAKING || !port->ops->take(port, n, sw->ports[from->ingress_port].port, source, from->data))
        return false;
    to->data = from->data;
    to->len = from->len;
    to->headroom = from->headroom;
    to->tailroom = from->tailroom;
    ina_describe(to, from, replica, instance_type, true);
    to->enq_time = to->deq_time = now;
    return true;
}

/* Copies `from` to `to`, with metadata at `own_meta`, or the packet's if that is NULL. False: it does not fit. */
INA_KERNEL_PART bool copy(struct ina_switch *sw, struct ina_packet *to, const struct ina_packet *from, struct ina_replica replica,
                          uint8_t instance_type, bool keep_tag, uint8_t *own_meta, uint64_t now)
{
    if (__builtin_expect(from->len > to->len + to->tailroom, 0)
        && !(sw->tna && ina_into_headroom(to, from->len - to->len - to->tailroom))) {
        sw->ports[replica.port].stats.drops[INA_DROPPED_TOO_LONG]++;
        return false;
    }
    ina_describe(to, from, replica, instance_type, keep_tag);
    to->enq_time = to->deq_time = now;
    if (own_meta) {
        to->meta = own_meta;
        ina_copy_lines(own_meta, from->meta, sw->carried);
    }
    ina_copy_frame(to->data, from->data, from->len);
    return true;
}

/* Makes the copies of one chunk in the port's frames; returns the emission after the chunk. The last copy of a packet takes its
 * metadata (others too, where they are shared) and the frame itself if the ports can do that. */
INA_KERNEL static int32_t emit_chunk(struct ina_switch *sw, uint16_t number, const struct ina_packet *batch, int32_t at,
                                     uint64_t now)
{
    struct ina_switch_port *port = &sw->ports[number];
    struct ina_packet *out = sw->out;
    uint8_t passes[INA_BATCH];
    unsigned want = port->copies < INA_BATCH ? port->copies : INA_BATCH, n = 0;
    port->copies -= want;
    unsigned lent = ina_lend(sw, number, out, want);
    for (unsigned k = 0; k < want; k++) {
        const struct ina_emission *e = &sw->emissions[at];
        const struct ina_packet *from = &batch[e->source];
        const struct ina_replica replica = {number, e->rid};
        at = e->next;
        const bool last = --sw->uses[e->source] == 0;
        uint8_t *const own_meta = last || sw->shared ? NULL : sw->egress_meta + (size_t)n * sw->meta_stride;
        if (n == lent)
            port->stats.drops[INA_DROPPED_BACK_PRESSURE]++;
        else if ((last && may_take(sw, number, from) && take(sw, &out[n], n, from, e->source, replica, e->instance_type, now))
                 || copy(sw, &out[n], from, replica, e->instance_type, port->port != NULL, own_meta, now))
            passes[n++] = sw->passes[e->source];
    }
    if (lent)
        leave(sw, number, out, n, passes, now);
    return at;
}

INA_KERNEL void ina_emit_group(struct ina_switch *sw, const struct ina_members *group, const struct ina_packet *batch,
                               const struct ina_packet *const *sources, unsigned count, uint64_t now)
{
    for (uint32_t m = 0; m < group->count; m++) {
        const struct ina_replica replica = group->member[m];
        const bool last = m + 1 == group->count, takes = last && may_take(sw, replica.port, batch);
        const bool keep_tag = sw->ports[replica.port].port != NULL;
        struct ina_packet *const out = sw->out;
        uint8_t *const meta = last || sw->shared ? NULL : sw->egress_meta;
        const size_t stride = meta ? sw->meta_stride : 0;
        unsigned lent = ina_lend(sw, replica.port, out, count), n = 0, k = 0;
        for (; k < count && n < lent; k++) {
            const struct ina_packet *from = sources[k];
            if (takes && take(sw, &out[n], n, from, (unsigned)(from - batch), replica, INA_REPLICATED, now))
                n++;
            else
                n += copy(sw, &out[n], from, replica, INA_REPLICATED, keep_tag, meta + n * stride, now);
        }
        sw->ports[replica.port].stats.drops[INA_DROPPED_BACK_PRESSURE] += count - k;
        if (lent)
            leave(sw, replica.port, out, n, sw->passes, now); /* a batch from ports: all have the same */
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
