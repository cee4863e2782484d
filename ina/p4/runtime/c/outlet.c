/* Ports whose caller keeps the calendar: frames leave as soon as they are sent, and only those that wait are stored here. */
#include <errno.h>

#include "core.h"

/* A frame that waits: the fields of its descriptor that egress may read. Metadata and the frame follow, packed: both are copied
 * out before the program sees them. */
struct parked {
    uint64_t ingress_time;
    uint32_t len, wire_len;
    uint32_t truncate_len, field_list;
    uint32_t enq_backlog;      /* bytes that waited before it */
    uint16_t ingress_port, mcast_grp, rid;
    uint8_t instance_type, passes;
    uint8_t marked, reserved[3];
};
_Static_assert(sizeof(struct parked) == 40, "packed");

static struct parked *parked_at(const struct ina_switch *sw, uint32_t i)
{
    return ina_pool_at(&sw->parked, i);
}

static uint32_t kept_of(const struct ina_switch *sw, uint32_t len)
{
    return sw->outlet.kept && len > sw->outlet.kept ? sw->outlet.kept : len;
}

int ina_switch_set_outlet(struct ina_switch *sw, const struct ina_outlet *outlet)
{
    if (sw->outlet.put)
        return -EBUSY;
    sw->outlet = *outlet;
    sw->parked.stride = ((uint32_t)(sizeof(struct parked) + sw->carried) + kept_of(sw, sw->config.max_frame) + 15) & ~15u;
    return 0;
}

uint32_t ina_switch_parked_bytes(const struct ina_switch *sw)
{
    return sw->parked.stride + (uint32_t)sizeof(struct ina_link_item);
}

/* Frees a frame that has left its queue. */
static void unpark(struct ina_switch *sw, const struct ina_link_item *item)
{
    sw->waiting_bytes -= item->bytes;
    ina_pool_put(&sw->parked, (uint32_t)item->handle);
}

int ina_switch_set_merge(struct ina_switch *sw, uint32_t number, ina_merge merge, void *context)
{
    if (number >= INA_SWITCH_PORTS || !sw->ports[number].outlet || !sw->ports[number].link)
        return -ENOENT;
    if (sw->outlet.kept)
        return -EINVAL;
    sw->ports[number].merge = merge;
    sw->ports[number].merge_context = context;
    return 0;
}

/* Merges a frame with one that waits, if the port's discipline says so. */
static bool merged(struct ina_switch *sw, const struct ina_switch_port *port, const struct ina_packet *pkt)
{
    for (uint32_t i = ina_link_depth(port->link); i--;) {
        struct parked *p = parked_at(sw, (uint32_t)ina_link_waiting(port->link, i));
        const enum ina_merged result = port->merge(port->merge_context, (uint8_t *)(p + 1) + sw->carried, p->len, pkt->data, pkt->len);
        if (result != INA_MERGE_OTHER)
            return result == INA_MERGE_DONE;
    }
    return false;
}

/* Queues a frame if there is room. */
static void park(struct ina_switch *sw, const struct ina_packet *pkt, struct ina_replica to, uint8_t instance_type,
                 uint8_t passes, uint64_t now)
{
    struct ina_switch_port *port = &sw->ports[to.port];
    const uint32_t bytes = pkt->wire_len + INA_ETHERNET_OVERHEAD;
    if (port->merge && merged(sw, port, pkt))
        return;
    if (pkt->len > sw->config.max_frame || !ina_has_room(sw, bytes)) {
        port->stats.drops[pkt->len > sw->config.max_frame ? INA_DROPPED_TOO_LONG : INA_DROPPED_NO_BUFFER]++;
        return;
    }
    const uint32_t i = ina_pool_get(&sw->parked);
    const uint64_t backlog = ina_link_backlog(port->link);
    const int queued = i == INA_NO_BLOCK ? -ENOMEM : ina_link_enqueue(port->link, i, bytes, now);
    if (queued == INA_TAIL_DROP || queued < 0) {
        if (i != INA_NO_BLOCK)
            ina_pool_put(&sw->parked, i);
        port->stats.drops[queued < 0 ? INA_DROPPED_NO_MEMORY : INA_DROPPED_TAIL]++;
        if (queued < 0)
            sw->outlet.exhausted(sw->outlet.context);
        return;
    }
    sw->waiting_bytes += bytes;
    struct parked *p = parked_at(sw, i);
    *p = (struct parked){
        .ingress_time = pkt->ingress_time, .len = pkt->len, .wire_len = pkt->wire_len, .truncate_len = pkt->truncate_len,
        .field_list = pkt->field_list, .enq_backlog = backlog < UINT32_MAX ? (uint32_t)backlog : UINT32_MAX,
        .ingress_port = pkt->ingress_port, .mcast_grp = pkt->mcast_grp, .rid = to.rid, .instance_type = instance_type,
        .passes = passes, .marked = queued == INA_ENQUEUED_MARKED};
    memcpy(p + 1, pkt->meta, sw->carried);
    memcpy((uint8_t *)(p + 1) + sw->carried, pkt->data, kept_of(sw, pkt->len));
    if (ina_link_depth(port->link) == 1)
        sw->outlet.wake(sw->outlet.context, to.port, ina_link_free_at(port->link));
}

/* Runs egress, and sends to the link; `pkt` is in the caller's memory: lent by `get`, or from ina_switch_input. */
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

/* Gets an empty frame of the caller for `len` bytes. False: there is none, or they do not fit; counted. */
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

INA_KERNEL void ina_outlet_send(struct ina_switch *sw, struct ina_packet *batch, unsigned source, struct ina_replica to,
                                uint8_t instance_type, bool last, uint64_t now)
{
    struct ina_packet *from = &batch[source], copy;
    struct ina_link *link = sw->ports[to.port].link;
    const uint8_t passes = sw->passes[source];
    if (!ina_link_pass(link, from->wire_len + INA_ETHERNET_OVERHEAD, now)) {
        park(sw, from, to, instance_type, passes, now);
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
        if (!last && !sw->shared) {
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
        const struct parked *p = parked_at(sw, (uint32_t)item.handle);
        struct ina_packet pkt = {0};
        if (lend(sw, (uint16_t)number, &pkt, p->len)) {
            const uint8_t *frame = (const uint8_t *)(p + 1) + sw->carried;
            const uint32_t kept = kept_of(sw, p->len);
            pkt.tailroom = pkt.len + pkt.tailroom - p->len;
            pkt.len = p->len;
            pkt.wire_len = p->wire_len;
            memcpy(pkt.data, frame, kept);
            memset(pkt.data + kept, 0, p->len - kept);
            pkt.meta = memcpy(sw->egress_meta, p + 1, sw->carried);
            pkt.ingress_port = p->ingress_port;
            pkt.egress_port = (uint16_t)number;
            pkt.mcast_grp = p->mcast_grp;
            pkt.rid = p->rid;
            pkt.verdict = INA_UNICAST;
            pkt.instance_type = p->instance_type;
            pkt.field_list = p->field_list;
            pkt.truncate_len = p->truncate_len;
            pkt.ingress_time = p->ingress_time;
            pkt.enq_time = item.enq_time;
            pkt.deq_time = now;
            pkt.enq_qdepth = sw->tna ? p->enq_backlog : item.enq_qdepth; /* TNA counts bytes */
            pkt.deq_qdepth = sw->tna ? (uint32_t)ina_link_backlog(link) : ina_link_depth(link);
            depart(sw, (uint16_t)number, &pkt, p->passes, p->marked, now);
        }
        unpark(sw, &item);
    }
    if (link && ina_link_depth(link))
        sw->outlet.wake(sw->outlet.context, (uint16_t)number, ina_link_free_at(link));
}

void ina_outlet_drop_all(struct ina_switch *sw, uint16_t number)
{
    struct ina_link_item item;
    while (ina_link_dequeue(sw->ports[number].link, UINT64_MAX, &item))
        unpark(sw, &item);
}
