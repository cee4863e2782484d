/* Frames that wait: buffers, the path back to ingress, and links. */
#include <errno.h>
#include <string.h>

#include "core.h"
#include "internet.h"

/* Copies descriptor, metadata and frame; the frame fits. */
static void fill(struct ina_switch *sw, struct ina_buffer *b, const struct ina_packet *pkt)
{
    uint8_t *meta = (uint8_t *)b + ((sizeof *b + 63) & ~(size_t)63);
    b->pkt = *pkt;
    b->pkt.meta = meta;
    if (pkt->meta)
        memcpy(meta, pkt->meta, sw->carried);
    b->pkt.data = meta + sw->meta_stride + INA_HEADROOM;
    b->pkt.headroom = INA_HEADROOM;
    b->pkt.tailroom = sw->config.max_frame - pkt->len;
    memcpy(b->pkt.data, pkt->data, pkt->len);
}

uint32_t ina_buffer_take(struct ina_switch *sw, const struct ina_packet *pkt)
{
    const uint32_t i = ina_pool_get(&sw->buffers);
    if (i != INA_NO_BLOCK)
        fill(sw, ina_buffer_at(sw, i), pkt);
    return i;
}

void ina_buffer_give(struct ina_switch *sw, uint32_t i)
{
    ina_pool_put(&sw->buffers, i);
}

struct ina_buffer *ina_loop_push(struct ina_switch *sw, const struct ina_packet *pkt, uint8_t instance_type,
                                 unsigned passes)
{
    if (passes >= sw->config.max_passes) {
        ina_count_drop(sw, pkt->ingress_port, INA_DROPPED_PASSES);
        return NULL;
    }
    if (pkt->len > sw->config.max_frame || sw->loop_count == sw->config.reentries) {
        ina_count_drop(sw, pkt->ingress_port, pkt->len > sw->config.max_frame ? INA_DROPPED_TOO_LONG : INA_DROPPED_REENTRIES);
        return NULL;
    }
    uint32_t i = ina_buffer_take(sw, pkt);
    if (i == INA_NO_BLOCK) {
        ina_count_drop(sw, pkt->ingress_port, INA_DROPPED_NO_MEMORY);
        return NULL;
    }
    struct ina_buffer *b = ina_buffer_at(sw, i);
    b->pkt.instance_type = instance_type;
    if (instance_type == INA_INGRESS_CLONE || instance_type == INA_EGRESS_CLONE)
        b->pkt.field_list = pkt->clone_list;
    b->passes = (uint8_t)(passes + 1);
    sw->ports[pkt->ingress_port].stats.recirculated++;
    if (sw->loop_count++)
        ina_buffer_at(sw, sw->loop_tail)->next = i;
    else
        sw->loop_head = i;
    sw->loop_tail = i;
    return b;
}

void ina_loop_back(struct ina_switch *sw, uint16_t number, const struct ina_packet *pkt, unsigned passes)
{
    struct ina_switch_port_stats *stats = &sw->ports[number].stats;
    struct ina_packet entering = *pkt;
    entering.ingress_port = number;
    stats->tx_packets++;
    stats->tx_bytes += pkt->wire_len;
    if (!ina_loop_push(sw, &entering, INA_RECIRCULATED, passes))
        return;
    stats->rx_packets++;
    stats->rx_bytes += pkt->wire_len;
}

void ina_link_push(struct ina_switch *sw, uint16_t number, const struct ina_packet *pkt, uint8_t passes, uint64_t now)
{
    struct ina_switch_port *port = &sw->ports[number];
    if (pkt->len > sw->config.max_frame) {
        port->stats.drops[INA_DROPPED_TOO_LONG]++;
        return;
    }
    const uint32_t bytes = pkt->wire_len + INA_ETHERNET_OVERHEAD;
    if (!ina_has_room(sw, bytes)) {
        port->stats.drops[INA_DROPPED_NO_BUFFER]++;
        return;
    }
    const uint32_t i = ina_pool_get(&sw->buffers);
    const uint64_t backlog = ina_link_backlog(port->link);
    const int queued = i == INA_NO_BLOCK ? -ENOMEM : ina_link_enqueue(port->link, i, bytes, now);
    if (queued == INA_TAIL_DROP || queued < 0) {
        port->stats.drops[queued < 0 ? INA_DROPPED_NO_MEMORY : INA_DROPPED_TAIL]++;
        if (i != INA_NO_BLOCK)
            ina_buffer_give(sw, i);
        return;
    }
    sw->waiting_bytes += bytes;
    struct ina_buffer *b = ina_buffer_at(sw, i);
    fill(sw, b, pkt);
    b->passes = passes;
    b->marked = queued == INA_ENQUEUED_MARKED;
    b->enq_backlog = backlog < UINT32_MAX ? (uint32_t)backlog : UINT32_MAX;
}

void ina_mark(struct ina_switch *sw, uint16_t number, const struct ina_packet *pkt)
{
    sw->ports[number].stats.ecn_marks += (uint64_t)ina_internet_mark(pkt->data, pkt->len);
}

static void transmit(struct ina_switch *sw, uint16_t number, uint64_t now)
{
    struct ina_link *link = sw->ports[number].link;
    struct ina_link_item item;
    while (ina_link_dequeue(link, now, &item)) {
        struct ina_buffer *b = ina_buffer_at(sw, (uint32_t)item.handle);
        sw->waiting_bytes -= item.bytes;
        b->pkt.enq_time = item.enq_time;
        b->pkt.enq_qdepth = item.enq_qdepth;
        b->pkt.deq_time = now;
        b->pkt.deq_qdepth = ina_link_depth(link);
        if (sw->tna) { /* TNA counts bytes */
            b->pkt.enq_qdepth = b->enq_backlog;
            b->pkt.deq_qdepth = (uint32_t)ina_link_backlog(link);
        }
        ina_run_egress(sw, number, &b->pkt, 1, &b->passes, now);
        if (!b->pkt.len) {
            ina_buffer_give(sw, (uint32_t)item.handle);
            continue;
        }
        if (b->marked)
            ina_mark(sw, number, &b->pkt);
        item.bytes = b->pkt.wire_len + INA_ETHERNET_OVERHEAD;
        if (ina_link_transmit(link, &item, now) == UINT64_MAX) {
            ina_count_drop(sw, number, INA_DROPPED_NO_MEMORY);
            ina_buffer_give(sw, (uint32_t)item.handle);
        }
    }
}

/* Moves frames that have arrived, up to a batch at a time, into the port's memory. */
static void deliver(struct ina_switch *sw, uint16_t number, uint64_t now)
{
    struct ina_switch_port *port = &sw->ports[number];
    for (;;) {
        struct ina_link_item item;
        uint32_t arrived[INA_BATCH];
        unsigned n = 0;
        while (n < INA_BATCH && ina_link_deliver(port->link, now, &item))
            arrived[n++] = (uint32_t)item.handle;
        if (!n)
            return;
        if (port->loopback) {
            for (unsigned i = 0; i < n; i++) {
                struct ina_buffer *b = ina_buffer_at(sw, arrived[i]);
                ina_loop_back(sw, number, &b->pkt, b->passes);
            }
        } else if (!port->port) {
            for (unsigned i = 0; i < n; i++)
                ina_send(sw, number, &ina_buffer_at(sw, arrived[i])->pkt, 1, now);
        } else {
            unsigned lent = ina_lend(sw, number, sw->out, n), used = 0;
            for (unsigned i = 0; i < n; i++) {
                const struct ina_packet *from = &ina_buffer_at(sw, arrived[i])->pkt;
                struct ina_packet *to = &sw->out[used];
                if (used == lent) {
                    port->stats.drops[INA_DROPPED_BACK_PRESSURE]++;
                } else if (from->len > to->len + to->tailroom) {
                    port->stats.drops[INA_DROPPED_TOO_LONG]++;
                } else {
                    to->tailroom = to->len + to->tailroom - from->len;
                    to->len = from->len;
                    to->wire_len = from->wire_len;
                    memcpy(to->data, from->data, from->len);
                    used++;
                }
            }
            if (lent)
                ina_send(sw, number, sw->out, used, now);
        }
        for (unsigned i = 0; i < n; i++)
            ina_buffer_give(sw, arrived[i]);
    }
}

void ina_links_poll(struct ina_switch *sw, uint64_t now)
{
    for (uint32_t i = 0; i < sw->linked_count; i++) {
        uint16_t number = sw->linked[i];
        uint64_t due; /* a late poll handles events at their due time, so that the rate is exact */
        while ((due = ina_link_next_due(sw->ports[number].link)) <= now) {
            transmit(sw, number, due);
            deliver(sw, number, due);
        }
    }
}

void ina_link_drop_all(struct ina_switch *sw, uint16_t number)
{
    struct ina_link_item item;
    while (ina_link_dequeue(sw->ports[number].link, UINT64_MAX, &item)) {
        sw->waiting_bytes -= item.bytes;
        ina_buffer_give(sw, (uint32_t)item.handle);
    }
    while (ina_link_deliver(sw->ports[number].link, UINT64_MAX, &item))
        ina_buffer_give(sw, (uint32_t)item.handle);
}
