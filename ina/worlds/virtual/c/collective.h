/* Collective: an all-reduce between hosts, the baselines' machine. One rank executes a schedule of transfers (collectives.py
 * makes them: ring, halving-doubling, tree, parameter server) over flows (flow.h), one to each peer; sans-IO.
 *
 * A schedule is the same for every tensor: the tensor is cut into `parts` equal parts, and a transfer is a run of these. A
 * send waits until its gate is open, that is, until all receives that count for it are complete; gate 0 is open from the
 * start. The n-th send to a peer is the peer's n-th receive from here. Peers take turns, packet by packet; in an `ordered`
 * schedule the earliest transfer goes first that its flow's window lets go. Tensors are reduced one after the other, as a
 * communicator of NCCL does; packets of one that has not begun here wait in the flow's window. A tensor is done when
 * all packets have arrived and all sent ones are acknowledged: then the caller owns its buffers again. One that is not done
 * `timeout_ps` after it began (at a rank that only receives: after its first packet) has failed, and the rank with it.
 *
 * On the wire, after Ethernet, IPv4 and UDP (42 bytes), big endian:
 *
 *     0        1        2        4            8            12           16 (data: values, in the host's byte order)
 *     +--------+--------+--------+------------+------------+------------+-------------------+-------------------+
 *     | kind   | flags  | rank   | number     | limit      | marked     | selective         | echo              |   acks
 *     | kind   | flags  | rank   | number     | sent                    | values ...                                data
 *     +--------+--------+--------+------------+-------------------------+---------------------------------------+
 */
#ifndef INA_EMULATOR_COLLECTIVE_H
#define INA_EMULATOR_COLLECTIVE_H

#include <stdint.h>

#include "flow.h"
#include "protocol.h"

enum ina_transfer_kind { INA_SEND = 0, INA_ADD = 1, INA_COPY = 2 }; /* ADD and COPY: what a receive does with the values */

struct ina_transfer {
    uint32_t kind, peer;     /* enum ina_transfer_kind; rank */
    uint32_t gate, last_gate; /* a send waits for `gate`; a receive counts for gate .. last_gate */
    uint32_t first, last;    /* parts first .. last - 1 */
};

struct ina_collective_config {
    uint32_t rank, ranks;
    uint32_t values;         /* elements in a packet */
    uint32_t parts, gates;   /* of the schedule; gates 0 .. gates - 1 */
    uint32_t window;         /* packets of each flow */
    uint32_t congestion;     /* enum ina_congestion */
    uint32_t ordered;        /* 1: transfers go in the order of the schedule */
    uint32_t bare;           /* 1: packets have their length on the wire, but no values (scale; sums are not made) */
    uint64_t rto_ps;
    uint64_t timeout_ps;     /* deadline of a tensor */
};

struct ina_collective;
/* Creates one rank. `addresses`: of all ranks. NULL + errno (EINVAL: a transfer that does not fit the configuration). */
struct ina_collective *ina_collective_create(const struct ina_collective_config *config, const struct ina_address *addresses,
                                             const struct ina_transfer *transfers, uint32_t count);
void ina_collective_destroy(struct ina_collective *collective);
void ina_collective_get_stats(const struct ina_collective *collective, struct ina_worker_stats *stats);

extern const struct ina_protocol ina_collective_machine;

#endif
