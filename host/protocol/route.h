/* Routes: sums whose values come from some workers, their sources, and go to some, their receivers (p4/receivers.p4). A tensor with a route
 * is a list of pieces, each with its own two sets:
 *
 *     all-gather       n pieces, each from its owner to all others            broadcast   one piece, from one to all others
 *     reduce-scatter   n pieces, each from all to its owner                   reduce      one piece, from all to one
 *     gather, scatter  n pieces, from each to one, from one to each           all-to-all  a piece from each to each
 *
 * A block's members are its sources and receivers: each sends a packet, sources with values, and gets the result, receivers with
 * values. Nobody else has anything to do with it. A receiver that is a source, too, and the only receiver, keeps its values and adds
 * them to what it gets. Blocks that nobody else needs are not sent.
 *
 * *Partial* tensors have blocks of which not all workers are members. Packet q may be sent when q - 2W, whose row it takes, is of no
 * use to anybody, and members of q know nothing of those of q - 2W. So, from the first packet f of such a tensor to 2W behind its last,
 * the last packet of every window (q mod W = W - 1) has all workers as members, as f has, and both are *gates*: a worker
 * sends a gate when all of its packets before are answered, and a packet behind f when f is answered and, from f + 2W on, the gate that ends the
 * window of q - 2W. An answered gate says that all workers have sent it, so nobody waits for anything before it. Partial tensors that
 * begin before the gates of the last one end go on with these, and f is the first one's; no gate comes before the job's first 2W
 * packets, whose rows are fresh.
 */
#ifndef INA_ROUTE_H
#define INA_ROUTE_H

#include "tensors.h"

struct ina_route {           /* of a block: bitmaps of workers */
    uint32_t sources, receivers, members;
};

/* 1: sets and pieces are those of a job of so many workers; or it has no route. */
int ina_route_valid(const struct ina_tensor *t, uint32_t workers);
uint64_t ina_route_hash(const struct ina_tensor *t); /* of the pieces' sizes and sets */
/* Writes the tensor's ends; returns the number of blocks. *partial: 1 if not all workers are members of all. */
uint64_t ina_route_blocks(const struct ina_tensor *t, uint32_t workers, uint32_t values, uint8_t *partial);
/* Sets of packet seq: of one before the tensor's first block all are members, and nobody is source or receiver. */
struct ina_route ina_route_of(const struct ina_tensors *ts, const struct ina_tensor *tensors, uint32_t handle, uint64_t seq);

static inline int ina_route_sends(const struct ina_route *route, uint32_t worker) /* values */
{
    return (route->sources >> worker & 1) && route->receivers != 1u << worker;
}

static inline int ina_route_adds(const struct ina_route *route, uint32_t worker) /* its own values to what comes */
{
    return (route->sources >> worker & 1) && route->receivers == 1u << worker;
}

/* 1: packet seq of a tensor may be sent, and answered, before lower ones: it is one of a partial tensor, or comes soon behind it. */
static inline int ina_route_is_gated(const struct ina_tensors *ts, uint32_t handle, uint64_t seq)
{
    const struct ina_gates *gates = &ts->gates[handle];
    return seq >= gates->from && seq < gates->until;
}

/* Packet seq of a tensor is a gate, or comes behind one: the packet that has to be answered first; UINT64_MAX: none. */
static inline int ina_route_is_gate(const struct ina_tensors *ts, uint32_t handle, uint64_t seq)
{
    const struct ina_gates *gates = &ts->gates[handle];
    return ina_route_is_gated(ts, handle, seq) && (seq == gates->from || (seq & (ts->window - 1)) == ts->window - 1);
}

static inline uint64_t ina_route_gate_before(const struct ina_tensors *ts, uint32_t handle, uint64_t seq)
{
    const struct ina_gates *gates = &ts->gates[handle];
    const uint64_t reuse = 2ull * ts->window;
    if (!ina_route_is_gated(ts, handle, seq) || seq == gates->from || seq < reuse)
        return UINT64_MAX;
    return seq - gates->from < reuse ? gates->from : (seq - reuse) | (ts->window - 1);
}

#endif
