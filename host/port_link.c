/* A link in front of a port's receiver. Frames stay where the inner port lent them while they are on the link: both are
 * first in, first out. */
#include "port_link.h"

#include <errno.h>
#include <stdlib.h>

#include "lend.h"

enum { BATCH = 64, MAX_HELD = 4096 };

struct link_port {
    struct ina_port port;
    struct ina_port *inner;
    struct ina_link *link;
    struct ina_packet *frames; /* as the inner port lent them; frame i is at i & lend.mask */
    struct ina_lend lend;      /* next: the first that has not arrived; done: the oldest that is not given back */
    uint32_t taken;            /* frames ever taken from the inner port */
};

/* Puts what the inner port has on the link. A frame that the queue refuses keeps its place until its turn comes. */
static void take(struct link_port *p, uint64_t now)
{
    struct ina_packet pkts[BATCH];
    int n;
    do {
        uint32_t room = p->lend.mask + 1 - (p->taken - p->lend.done);
        n = room ? p->inner->ops->rx(p->inner, pkts, room < BATCH ? (int)room : BATCH, now) : 0;
        for (int i = 0; i < n; i++) {
            uint32_t bytes = (pkts[i].wire_len > pkts[i].len ? pkts[i].wire_len : pkts[i].len) + INA_ETHERNET_OVERHEAD;
            p->frames[p->taken & p->lend.mask] = pkts[i];
            ina_link_enqueue(p->link, p->taken++, bytes, now);
        }
    } while (n == BATCH);
}

/* Gives the inner port back what is over at the old end: `n` frames of the user's, and those that the queue refused. */
static void give_back(struct link_port *p, uint32_t n)
{
    uint32_t before = p->lend.done;
    ina_lend_return(&p->lend, n);
    if (p->lend.done != before)
        p->inner->ops->rx_done(p->inner, (int)(p->lend.done - before));
}

static void share_stats(struct link_port *p)
{
    struct ina_port_stats mine = p->port.stats;
    p->port.stats = p->inner->stats;
    p->port.stats.rx_packets = mine.rx_packets;
    p->port.stats.rx_bytes = mine.rx_bytes;
}

static int link_rx(struct ina_port *port, struct ina_packet *pkts, int max, uint64_t now)
{
    struct link_port *p = (struct link_port *)port;
    struct ina_link_item item;
    uint64_t due;
    int n = 0;

    take(p, now);
    while (n < max && (due = ina_link_next_due(p->link)) <= now) { /* what a late look missed happens when it was due */
        while (ina_link_dequeue(p->link, due, &item))
            ina_link_transmit(p->link, &item, due);
        while (n < max && ina_link_deliver(p->link, due, &item)) {
            while (p->lend.next != (uint32_t)item.handle)
                ina_lend_skip(&p->lend); /* the queue refused it */
            const struct ina_packet *frame = &p->frames[p->lend.next++ & p->lend.mask];
            pkts[n].data = frame->data;
            pkts[n].len = frame->len;
            pkts[n].wire_len = frame->wire_len;
            pkts[n].headroom = frame->headroom;
            pkts[n].tailroom = frame->tailroom;
            port->stats.rx_bytes += frame->len;
            n++;
        }
    }
    if (ina_link_next_due(p->link) == UINT64_MAX)
        while (p->lend.next != p->taken)
            ina_lend_skip(&p->lend);
    give_back(p, 0);
    port->stats.rx_packets += (uint64_t)n;
    share_stats(p);
    return n;
}

static void link_rx_done(struct ina_port *port, int n)
{
    if (n > 0)
        give_back((struct link_port *)port, (uint32_t)n);
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
    return inner->ops->arm(inner);
}

static uint64_t link_next_due(const struct ina_port *port)
{
    const struct link_port *p = (const struct link_port *)port;
    uint64_t inner = p->inner->ops->next_due(p->inner), due = ina_link_next_due(p->link);
    return inner < due ? inner : due;
}

static void link_close(struct ina_port *port)
{
    struct link_port *p = (struct link_port *)port;
    if (p->inner)
        p->inner->ops->close(p->inner);
    free(p->lend.skip);
    free(p->frames);
    free(p->link);
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

struct ina_port *ina_port_link_wrap(struct ina_port *inner, const struct ina_link_config *config, uint32_t held)
{
    if (!held || held & (held - 1) || held > MAX_HELD) {
        errno = EINVAL;
        return NULL;
    }
    struct link_port *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->port = (struct ina_port){
        .ops = &LINK_OPS, .fd = inner->fd, .bell = inner->bell, .max_frame = inner->max_frame};
    p->lend.mask = held - 1;
    p->lend.skip = calloc(held, 1);
    p->frames = calloc(held, sizeof *p->frames);
    p->link = malloc(ina_link_size(held));
    if (!p->lend.skip || !p->frames || !p->link) {
        link_close(&p->port);
        errno = ENOMEM;
        return NULL;
    }
    ina_link_init(p->link, config, held);
    p->inner = inner;
    return &p->port;
}

void ina_port_link_report(const struct ina_port *port, struct ina_link_stats *stats)
{
    *stats = *ina_link_get_stats(((const struct link_port *)port)->link);
}
