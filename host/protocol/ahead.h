/* Look-ahead: blocks that are zero at all workers are not sent (after OmniReduce, SIGCOMM'21).
 *
 * The blocks of a tensor that go through one slot are a stream: block b, b + window, b + 2 window, ... Every worker answers each
 * phase of a stream, with the block's values or, where all of them are zero, without (INA_WIRE_ZEROS), and says how far ahead its next
 * block with other values is: `steps` blocks of the stream, at most INA_AHEAD_MOST, and not beyond its last block. The field is the
 * exponent's, of which a switch answers with the largest:
 *
 *     e0 = INA_AHEAD_MOST - steps - 127          so the largest e0 is the fewest steps
 *
 * All workers go on to the block that is so many steps ahead; those between are zero at all of them, and so are their sums. A
 * worker whose own block would be passed over drops the result as spoilt; one that is led past another's block waits at a later
 * one, at the last at the latest, for that other's packet, which never comes. Each phase takes the other set of its slot, and every worker
 * takes part in it, so the proof that no row is taken too early is that of SwitchML (docs/design/protocol.md).
 */
#ifndef INA_AHEAD_H
#define INA_AHEAD_H

#include "tensors.h"

enum { INA_AHEAD_MOST = 255 };

struct ina_ahead {      /* of a slot */
    uint64_t after;     /* number of a packet of its stream: those between have no values */
    uint8_t found;      /* that packet has */
    uint8_t has, steps; /* the packet in flight has values; steps from the slot's packet before, 0: there was none */
};

static inline int ina_ahead_e0(uint32_t steps)
{
    return INA_AHEAD_MOST - (int)steps - 127;
}

static inline uint32_t ina_ahead_steps(int e0)
{
    return (uint32_t)(INA_AHEAD_MOST - 127 - e0);
}

/* Number of the last packet of the stream of packet seq. */
static inline uint64_t ina_ahead_last(const struct ina_tensors *ts, const struct ina_op *op, uint64_t seq)
{
    return seq + (op->first + ina_tensors_packets(op) - 1 - seq) / ts->window * ts->window;
}

/* Looks at the block of packet seq and for the next one with values; at each block once. */
void ina_ahead_look(struct ina_ahead *ahead, const struct ina_tensors *ts, const struct ina_op *op, const struct ina_tensor *t,
                    uint64_t seq);
/* Clears what the steps behind packet seq pass over; returns the number of the slot's next packet. */
uint64_t ina_ahead_skip(struct ina_tensors *ts, const struct ina_tensor *tensors, uint32_t handle, uint64_t seq, uint64_t steps,
                        struct ina_worker_stats *stats);

#endif
