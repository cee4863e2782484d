/* A link in front of a port's receiver. Frames are copied as they come and the inner port gets its own back at once: only the
 * link's limits bound its queue. Both are first in, first out. */
#include "port_link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pool.h"

enum { BATCH = 64, LINE = 64 };

struct held { /* in a cache line of its own, in front of the headroom of its frame, which begins a cache line, too */
    uint32_t len, wire_len;
    uint32_t next; /* of those that the user has */
};

struct link_port {
    struct ina_port port;
    struct ina_port *inner;
    struct ina_link *link;
    uint64_t rate_bps, delay_ps; /* as another thread may have set them */
    struct ina_pool frames;
    uint32_t lent_first, lent_last, lent; /* frames that the user has, the oldest first */
};

_Static_assert(sizeof(struct held) <= LINE, "struct held");

static struct held *held_at(const struct link_port *p, uint32_t handle)
{
    return ina_pool_at(&p->frames, handle);
}

static uint8_t *frame_of(struct held *h)
{
    return (uint8_t *)h + LINE + INA_PORT_HEADROOM;
}

/* A copy of a frame, on the link. Where there is no memory for it the frame is dropped, and an error of the port. */
static void put_on_link(struct link_port *p, const struct ina_packet *pkt, uint64_t now)
{
    const uint32_t wire_len = pkt->wire_len > pkt->len ? pkt->wire_len : pkt->len;
    if (pkt->len > p->port.max_frame) {
        p->inner->stats.rx_malformed++;
        return;
    }
    const uint32_t handle = ina_pool_get(&p->frames);
    const int queued = handle == INA_NO_BLOCK ? -ENOMEM : ina_link_enqueue(p->link, handle, wire_len + INA_ETHERNET_OVERHEAD, now);
    if (queued < 0)
        p->inner->stats.errors++;
    if (queued < 0 || queued == INA_TAIL_DROP) {
        if (handle != INA_NO_BLOCK)
            ina_pool_put(&p->frames, handle);
        return;
    }
    struct held *h = held_at(p, handle);
    h->len = pkt->len;
    h->wire_len = pkt->wire_len;
    memcpy(frame_of(h), pkt->data, pkt->len);
}

static void take(struct link_port *p, uint64_t now)
{
    struct ina_packet pkts[BATCH];
    int n;
    do {
        n = p->inner->ops->rx(p->inner, pkts, BATCH, now);
        for (int i = 0; i < n; i++)
            put_on_link(p, &pkts[i], now);
        if (n > 0)
            p->inner->ops->rx_done(p->inner, n);
    } while (n == BATCH);
}

static void share_stats(struct link_port *p)
{
    struct ina_port_stats mine = p->port.stats;
    p->port.stats = p->inner->stats;
    p->port.stats.rx_packets = mine.rx_packets;
    p->port.stats.rx_bytes = mine.rx_bytes;
}

/* Lends the user the frame. */
static void lend(struct link_port *p, uint32_t handle, struct ina_packet *pkt)
{
    struct held *h = held_at(p, handle);
    if (p->lent++)
        held_at(p, p->lent_last)->next = handle;
    else
        p->lent_first = handle;
    p->lent_last = handle;
    pkt->data = frame_of(h);
    pkt->len = h->len;
    pkt->wire_len = h->wire_len;
    pkt->headroom = INA_PORT_HEADROOM;
    pkt->tailroom = p->port.max_frame - h->len;
    p->port.stats.rx_bytes += h->len;
}

static int link_rx(struct ina_port *port, struct ina_packet *pkts, int max, uint64_t now)
{
    struct link_port *p = (struct link_port *)port;
    struct ina_link_item item;
    uint64_t due;
    int n = 0;

    ina_link_set_rate(p->link, __atomic_load_n(&p->rate_bps, __ATOMIC_RELAXED));
    ina_link_set_delay(p->link, __atomic_load_n(&p->delay_ps, __ATOMIC_RELAXED));
    take(p, now);
    while (n < max && (due = ina_link_next_due(p->link)) <= now) { /* events that a late poll missed get their due times */
        while (ina_link_dequeue(p->link, due, &item))
            if (ina_link_transmit(p->link, &item, due) == UINT64_MAX) {
                p->inner->stats.errors++;
                ina_pool_put(&p->frames, (uint32_t)item.handle);
            }
        while (n < max && ina_link_deliver(p->link, due, &item))
            lend(p, (uint32_t)item.handle, &pkts[n++]);
    }
    port->stats.rx_packets += (uint64_t)n;
    share_stats(p);
    return n;
}

static void link_rx_done(struct ina_port *port, int n)
{
    struct link_port *p = (struct link_port *)port;
    for (; n > 0 && p->lent; n--, p->lent--) {
        const uint32_t handle = p->lent_first;
        p->lent_first = held_at(p, handle)->next;
        ina_pool_put(&p->frames, handle);
    }
}

static int link_tx_get(struct ina_port *port, struct ina_packet *pkts, int want)
{
    struct ina_port *inner = ((struct link_port *)port)->inner;
    return inner->ops->tx_get(inner, pkts, want);
}

static void link_tx_put(struct ina_port *port, struct ina_packet *pkts, int n, uint64_t now)
{
    struct link_port *p = (struct link_port *)port;
    p->inner->ops->tx_put(p->inner, pkts, n, now);
    share_stats(p);
}

static int link_arm(struct ina_port *port)
{
    struct ina_port *inner = ((struct link_port *)port)->inner;
    return ina_port_arm(inner);
}

static uint64_t link_next_due(const struct ina_port *port)
{
    const struct link_port *p = (const struct link_port *)port;
    uint64_t inner = ina_port_next_due(p->inner), due = ina_link_next_due(p->link);
    return inner < due ? inner : due;
}

static void link_close(struct ina_port *port)
{
    struct link_port *p = (struct link_port *)port;
    if (p->inner)
        p->inner->ops->close(p->inner);
    ina_pool_destroy(&p->frames);
    ina_link_destroy(p->link);
    free(p);
}

static const struct ina_port_ops LINK_OPS = {
    .rx = link_rx,
    .rx_done = link_rx_done,
    .tx_get = link_tx_get,
    .tx_put = link_tx_put,
    .arm = link_arm,
    .next_due = link_next_due,
    .close = link_close,
};

struct ina_port *ina_port_link_wrap(struct ina_port *inner, const struct ina_link_config *config)
{
    struct link_port *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->port = (struct ina_port){
        .ops = &LINK_OPS, .fd = inner->fd, .bell = inner->bell, .max_frame = inner->max_frame};
    p->frames.stride = (LINE + INA_PORT_HEADROOM + inner->max_frame + LINE - 1) & ~(LINE - 1u);
    p->rate_bps = config->rate_bps;
    p->delay_ps = config->delay_ps;
    p->link = ina_link_create(config);
    if (!p->link) {
        link_close(&p->port);
        errno = ENOMEM;
        return NULL;
    }
    p->inner = inner;
    return &p->port;
}

void ina_port_link_set(struct ina_port *port, uint64_t rate_bps, uint64_t delay_ps)
{
    struct link_port *p = (struct link_port *)port;
    __atomic_store_n(&p->rate_bps, rate_bps, __ATOMIC_RELAXED);
    __atomic_store_n(&p->delay_ps, delay_ps, __ATOMIC_RELAXED);
}

void ina_port_link_report(const struct ina_port *port, struct ina_link_stats *stats)
{
    *stats = *ina_link_get_stats(((const struct link_port *)port)->link);
}
