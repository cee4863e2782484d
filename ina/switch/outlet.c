/* Ports whose caller keeps the calendar: frames leave as soon as they are sent, and only those that wait are kept here. */
#include "core.h"

/* Egress, and on to the link; `pkt` lies where the caller wants it, but for a frame that he cannot take further. */
static void depart(struct ina_switch *sw, uint16_t number, struct ina_packet *pkt, uint8_t passes, bool marked, uint64_t now)
{
    struct ina_switch_port *port = &sw->ports[number];
    uint64_t arrival = now;
    ina_run_egress(sw, number, pkt, 1, &passes, now);
    if (pkt->len) {
        if (marked)
            ina_mark(sw, number, pkt);
        port->stats.tx_packets++;
        port->stats.tx_bytes += pkt->wire_len;
        arrival = ina_link_send(port->link, pkt->wire_len + INA_ETHERNET_OVERHEAD, now);
    }
    sw->outlet.put(sw->outlet.context, number, pkt, arrival);
}

/* An empty frame of the caller's for `len` bytes. False: there is none, or they do not fit; counted. */
static bool lend(struct ina_switch *sw, uint16_t number, struct ina_packet *pkt, uint32_t len)
{
    struct ina_switch_port_stats *stats = &sw->ports[number].stats;
    if (!sw->outlet.get(sw->outlet.context, pkt)) {
        stats->drops[INA_DROPPED_BACK_PRESSURE]++;
        return false;
    }
    if (len <= pkt->len + pkt->tailroom || (sw->tna && ina_into_headroom(pkt, len - pkt->len - pkt->tailroom)))
        return true;
    stats->drops[INA_DROPPED_TOO_LONG]++;
    pkt->len = 0;
    sw->outlet.put(sw->outlet.context, number, pkt, 0);
    return false;
}

void ina_outlet_send(struct ina_switch *sw, struct ina_packet *batch, unsigned source, struct ina_replica to,
                     uint8_t instance_type, bool last, uint64_t now)
{
    struct ina_packet *from = &batch[source], copy;
    struct ina_link *link = sw->ports[to.port].link;
    const uint8_t passes = sw->passes[source];
    if (!ina_link_pass(link, from->wire_len + INA_ETHERNET_OVERHEAD, now)) {
        const bool first = ina_link_depth(link) == 0;
        copy = *from;
        ina_describe(&copy, from, to, instance_type, false);
        ina_link_push(sw, to.port, &copy, passes, now);
        if (first && ina_link_depth(link))
            sw->outlet.wake(sw->outlet.context, to.port, ina_link_free_at(link));
        return;
    }
    if (last && sw->lent) {
        copy = *from;
        ina_describe(&copy, from, to, instance_type, false);
    } else {
        if (!lend(sw, to.port, &copy, from->len))
            return;
        ina_describe(&copy, from, to, instance_type, true);
        ina_copy_frame(copy.data, from->data, from->len);
        if (!last) {
            copy.meta = sw->egress_meta;
            ina_copy_lines(copy.meta, from->meta, sw->carried);
        }
    }
    copy.enq_time = copy.deq_time = now;
    depart(sw, to.port, &copy, passes, false, now);
}

void ina_switch_poll_port(struct ina_switch *sw, uint32_t number, uint64_t now)
{
    struct ina_link *link = number < INA_SWITCH_PORTS && sw->ports[number].outlet ? sw->ports[number].link : NULL;
    struct ina_link_item item;
    while (link && ina_link_dequeue(link, now, &item)) {
        const struct ina_buffer *b = ina_buffer_at(sw, (uint32_t)item.handle);
        struct ina_packet pkt;
        if (lend(sw, (uint16_t)number, &pkt, b->pkt.len)) {
            const struct ina_packet *from = &b->pkt;
            ina_describe(&pkt, from, (struct ina_replica){(uint16_t)number, from->rid}, from->instance_type, true);
            memcpy(pkt.data, from->data, from->len);
            pkt.enq_time = item.enq_time;
            pkt.enq_qdepth = item.enq_qdepth;
            pkt.deq_time = now;
            pkt.deq_qdepth = ina_link_depth(link);
            if (sw->tna) { /* there in bytes */
                pkt.enq_qdepth = b->enq_backlog;
                pkt.deq_qdepth = (uint32_t)ina_link_backlog(link);
            }
            depart(sw, (uint16_t)number, &pkt, b->passes, b->marked, now);
        }
        ina_buffer_give(sw, (uint32_t)item.handle);
    }
    if (link && ina_link_depth(link))
        sw->outlet.wake(sw->outlet.context, (uint16_t)number, ina_link_free_at(link));
}
