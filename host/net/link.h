/* One direction of a link: FIFO queue in bytes, serialisation at `rate`, propagation `delay`. Sans-IO.
 *
 *     enqueue ──> [ queue: tail drop, ECN mark ] ──dequeue──> (egress runs) ──transmit──> in flight ──deliver──>
 *
 * The only queue: the real-time switch and virtual time both use it. Items are opaque 64-bit handles
 * of the caller. `rate_bps` 0 means infinitely fast. The caller decides what sizes on the
 * wire include (ETHERNET_OVERHEAD below is 24 bytes: preamble 8, FCS 4, inter-frame gap 12).
 * Waiting and flying items are in rings that grow: only memory limits a queue without a limit.
 *
 * Times never run backwards. A caller that polls (real time) keeps the exact rate by handing in the due times it missed
 * rather than the time of the poll: while ((t = next_due(link)) <= now) { dequeue, transmit and deliver at t }
 */
#ifndef INA_LINK_H
#define INA_LINK_H

#include <stddef.h>
#include <stdint.h>

enum { INA_ETHERNET_OVERHEAD = 24 };
enum ina_enqueue { INA_ENQUEUED = 0, INA_ENQUEUED_MARKED = 1, INA_TAIL_DROP = 2 };

struct ina_link_config {
    uint64_t rate_bps;    /* bits per second, 0: infinite */
    uint64_t delay_ps;    /* propagation */
    uint64_t queue_bytes; /* tail-drop limit of the waiting bytes, 0: no limit */
    uint64_t ecn_bytes;   /* mark when more than this waits on arrival (DCTCP, SIGCOMM'10 §3.1), 0: never */
};

struct ina_link_item {
    uint64_t handle;
    uint64_t enq_time;   /* ps */
    uint64_t due;        /* in flight: arrival at the far end, ps */
    uint32_t bytes;
    uint32_t enq_qdepth; /* packets waiting when it was enqueued */
};

struct ina_link_stats {
    uint64_t packets, bytes;         /* transmitted */
    uint64_t tail_drops, ecn_marks;  /* packets that a full queue refused; packets marked, as the queue was over its threshold */
    uint64_t busy_ps;                /* time spent serialising */
    uint64_t max_queue_bytes;        /* the longest the queue has been */
    uint64_t waited_ps;              /* by all packets that left the queue, together */
    uint64_t queue_ps;               /* packets waiting, integrated over time: once the queue is empty, the same (Little's law) */
};

struct ina_link;

struct ina_link *ina_link_create(const struct ina_link_config *config); /* NULL: out of memory */
void ina_link_destroy(struct ina_link *link);
/* enum ina_enqueue, or -ENOMEM: nothing has changed. */
int ina_link_enqueue(struct ina_link *link, uint64_t handle, uint32_t bytes, uint64_t now);
/* Changes the rate for items whose transmission begins from now on, and for `forward`, those that enter from now on. */
void ina_link_set_rate(struct ina_link *link, uint64_t rate_bps);
/* Changes the delay likewise. Packets keep their order: one that a shorter delay would bring first waits for those before it. */
void ina_link_set_delay(struct ina_link *link, uint64_t delay_ps);
/* Head of the queue once the transmitter is free at `now`: 1 and *item, or 0. */
int ina_link_dequeue(struct ina_link *link, uint64_t now, struct ina_link_item *item);
/* Serialise a dequeued item (its length may have changed in egress) from `now`, or after what is being sent; returns
 * its arrival time. An item that egress drops is just not transmitted. UINT64_MAX: out of memory, and it is not sent. */
uint64_t ina_link_transmit(struct ina_link *link, const struct ina_link_item *item, uint64_t now);
/* Oldest item that has arrived by `now`: 1 and *item, or 0. */
int ina_link_deliver(struct ina_link *link, uint64_t now, struct ina_link_item *item);
/* Earliest time at which dequeue or deliver has something; UINT64_MAX: nothing waits. */
uint64_t ina_link_next_due(const struct ina_link *link);

/* ---- for a caller that has a calendar of its own (virtual time) and remembers arrivals there: nothing is kept in flight,
 * and a packet whose transmission can begin at once never waits in the queue. Not to be mixed with `deliver`. */
/* 1: nothing waits and the transmitter is free, so a packet of `bytes` passes the queue, as by enqueue and dequeue at
 * `now`; the caller calls `send` next. 0: the caller must enqueue it. */
int ina_link_pass(struct ina_link *link, uint32_t bytes, uint64_t now);
uint64_t ina_link_send(struct ina_link *link, uint32_t bytes, uint64_t now); /* as transmit; the arrival time */
uint64_t ina_link_free_at(const struct ina_link *link); /* when `dequeue` has the head of the queue, if there is one */
/* A packet's whole transmission at once, for links where nothing reads it between the queue and the far end (a NIC): as
 * enqueue, and unless it is dropped the arrival time. Waiting packets count as sent when their transmission begins;
 * `settle` updates that. */
int ina_link_forward(struct ina_link *link, uint32_t bytes, uint64_t now, uint64_t *arrival);
void ina_link_settle(struct ina_link *link, uint64_t now);
uint64_t ina_link_head_due(const struct ina_link *link); /* of such packets: when the oldest that waits is sent; UINT64_MAX: none */

uint32_t ina_link_depth(const struct ina_link *link);       /* packets waiting */
uint64_t ina_link_waiting(const struct ina_link *link, uint32_t place); /* handle of one that waits: place 0 is the head, below the depth */
uint64_t ina_link_backlog(const struct ina_link *link);     /* bytes waiting */
const struct ina_link_stats *ina_link_get_stats(const struct ina_link *link);
/* ps that `bytes` last at `rate_bps`, rounded up: 332 B at 100 Gb/s is 26560. Rate 0: 0. Saturates below UINT64_MAX. */
uint64_t ina_link_serialisation(uint64_t rate_bps, uint32_t bytes);

#endif
