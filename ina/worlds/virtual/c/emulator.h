/* Emulator: virtual time. Discrete events drive the same compiled switch programs and the same protocol state machines
 * as every other world, in one thread; time is a number of picoseconds. Same inputs and seeds, same bytes out.
 *
 *     host (machines) ── NIC link ──> [faults] ──> switch ── its port's link ──> [faults] ──> host or switch
 *
 * A machine is anything with the interface of struct ina_protocol: a worker, a parameter server, one rank of a ring. A host
 * has one NIC and any number of machines behind it; a frame is for the machine with its UDP destination port.
 *
 * Queues are host/net/link.c, in the NIC of a host and at the ports of a switch; faults are decided once per frame and wire
 * direction, so each replica of a multicast has its own. Events of one instant: arrivals (and queues of switches) first, in
 * the order in which they were added, then timers by node. Frames that arrive at one switch one after the other
 * at one instant enter it as one batch.
 */
#ifndef INA_EMULATOR_H
#define INA_EMULATOR_H

#include <stdint.h>

#include "fault.h"
#include "link.h"
#include "protocol.h"
#include "switch.h"

enum ina_node_kind { INA_NODE_HOST = 0, INA_NODE_SWITCH = 1 };

struct ina_cpu_config {      /* processing time of each frame that a host receives or sends; all zero: none */
    uint64_t packet_ps, byte_fs; /* per frame; per byte of it, femtoseconds */
    uint32_t cores;          /* frames that are processed at once; 0: 1 */
};

struct ina_wire_end {
    uint32_t kind;           /* enum ina_node_kind */
    uint32_t node;           /* index among the hosts, or among the switches */
    uint32_t port;           /* of a switch; a host has one */
};

struct ina_wire_direction {
    struct ina_link_config link;
    struct ina_fault_config faults; /* all zero: none */
};

/* One direction of a wire, from the queue before it to its far end. Bytes include INA_ETHERNET_OVERHEAD. When no event
 * is left, link.packets + duplicated = arrived + lost + corrupted + down, and likewise in bytes. */
struct ina_wire_stats {
    struct ina_link_stats link;
    uint64_t arrived, arrived_bytes;
    uint64_t lost, duplicated, reordered, corrupted; /* by faults */
    uint64_t lost_bytes, duplicated_bytes;           /* lost: or corrupted */
    uint64_t down, down_bytes;                       /* lost because the wire was down */
};

struct ina_completion {
    uint64_t time;           /* ps */
    uint64_t ticket;         /* of ina_emulator_submit */
    uint32_t machine;
    uint32_t reserved;
    struct ina_event event;
};

struct ina_emulator_stats {
    uint64_t events;         /* arrivals and timers handled */
    uint64_t frames;         /* frames that arrived somewhere */
    uint64_t lost, duplicated, reordered, corrupted; /* by faults */
    uint64_t down;           /* frames lost because their wire was down */
    uint64_t nic_held;       /* times that a machine had to wait for room at its host's NIC */
    uint64_t unwired;        /* frames that left by a switch port with no wire, or found none that takes them */
    uint64_t unclaimed;      /* frames for a UDP port that no machine of the host has, or of no UDP where none has port 0 */
    uint64_t digest;         /* over time, place and bytes of every arrival, to compare two runs */
    uint64_t timing;         /* the same over time, place and length on the wire: with and without payload alike */
    uint64_t most_frames;    /* largest number at once: on wires, in NICs, between processors */
    uint64_t memory;         /* bytes of those frames, and of the calendar; queues of switches are not among them */
};

struct ina_emulator;

enum { INA_KEPT_BYTES = 96 }; /* of a frame without payload: all headers, and the first values */
/* Creates an emulator for frames up to max_frame bytes. `bare`: only the first INA_KEPT_BYTES of a frame travel, and zeros arrive
 * in the place of the rest; lengths, times and all actions of programs and machines are the same, except for results of those
 * values: sums. NULL + errno. */
struct ina_emulator *ina_emulator_create(uint32_t max_frame, int bare);
void ina_emulator_destroy(struct ina_emulator *em);  /* the caller keeps the switches */
/* Index, or -errno (-EBUSY: frames are under way already). The switch must have no ports yet and is driven by the emulator from here on. `latency_ps`: time from
 * a frame's arrival to its ingress. */
int ina_emulator_add_switch(struct ina_emulator *em, struct ina_switch *sw, uint64_t latency_ps);
/* Adds a host. Its NIC drops nothing: where the link of its wire has a limit for its queue, machines may send only when less
 * waits, in turns. Index, or -errno. */
int ina_emulator_add_host(struct ina_emulator *em);
/* Makes frames wait for a core of the host, in the order of arrival. 0 or -errno. */
int ina_emulator_set_cpu(struct ina_emulator *em, uint32_t host, const struct ina_cpu_config *config);
uint64_t ina_emulator_cpu_busy(const struct ina_emulator *em, uint32_t host); /* ps, of all its cores */
/* Connects a to b and, unless b_to_a is NULL, b to a. 0 or -errno (-EINVAL: no such node, -EEXIST: that end has a wire). */
int ina_emulator_connect(struct ina_emulator *em, struct ina_wire_end a, struct ina_wire_end b,
                         const struct ina_wire_direction *a_to_b, const struct ina_wire_direction *b_to_a);
/* Takes the direction that begins at `from` down, or up again. A frame is lost if the wire is down at any time between its last
 * bit's leaving and its arrival; what waits before the wire goes on to leave at the link's rate, and is lost meanwhile. 0, -EINVAL. */
int ina_emulator_set_up(struct ina_emulator *em, struct ina_wire_end from, int up);
/* Changes the rate of that direction, for frames whose transmission begins from now on, and at a NIC, those that enter it. 0,
 * -EINVAL. */
int ina_emulator_set_rate(struct ina_emulator *em, struct ina_wire_end from, uint64_t rate_bps);
/* Adds a worker of `protocol` at a host; its UDP port is that of config->self. Index among the machines, or -errno (-EINVAL: bad
 * configuration or frames too long, -EEXIST: the host has a machine with this port). */
int ina_emulator_add_worker(struct ina_emulator *em, uint32_t host, const struct ina_protocol *protocol,
                            const struct ina_worker_config *config);
/* Adds any other machine: the caller makes and owns `state`; only receive, frames_to_send, next_timer,
 * next_handle, submit and events of `protocol` are called. `udp_port` 0: it gets the frames that are no UDP. */
int ina_emulator_add_machine(struct ina_emulator *em, uint32_t host, const struct ina_protocol *protocol, void *state,
                             uint16_t udp_port);
/* Ends a machine like a process that is killed: its frames stay under way, arrivals for it are unclaimed, and its tensors never
 * complete. Its UDP port is free again. 0, -EINVAL: there is none, or it has ended. */
int ina_emulator_stop_machine(struct ina_emulator *em, uint32_t machine);
/* Queues a tensor at a machine at time `at` (not before now). Ticket > 0 or -errno. Submissions of a machine keep their
 * order; one waits while INA_MAX_OPS are in flight. Buffers stay valid until its completion is read. */
int64_t ina_emulator_submit(struct ina_emulator *em, uint32_t machine, const struct ina_tensor *tensor, uint64_t at);
/* Says more of the offer of a chosen tensor that has not completed (struct ina_tensor), now: `in` has its values from now on, if the offer says
 * GIVE. 0, -ENOENT: there is no such tensor, or it has completed, or fails with its job; -ESRCH: the machine has ended; -EINVAL: no such machine
 * or change. */
int ina_emulator_amend(struct ina_emulator *em, uint32_t machine, uint64_t ticket, const struct ina_offer *offer, const void *in);
/* Ends of a run: the next event is later than `until` or max_events have been handled; no event is left; a completion waits to be read, and
 * runs stop there. */
enum ina_run_end { INA_RUN_MORE = 0, INA_RUN_IDLE = 1, INA_RUN_COMPLETION = 2 };
/* Runs on. enum ina_run_end, or -errno. */
int ina_emulator_run(struct ina_emulator *em, uint64_t until, uint64_t max_events);
/* Lets time pass to `time` while nothing happens. 0, -EBUSY: an event is left. */
int ina_emulator_idle(struct ina_emulator *em, uint64_t time);
/* Makes runs also end when a completion waits to be read. */
void ina_emulator_stop_at_completions(struct ina_emulator *em, int stop);
uint64_t ina_emulator_now(const struct ina_emulator *em);
int ina_emulator_completions(struct ina_emulator *em, struct ina_completion *out, int max); /* oldest first, once */
void ina_emulator_get_stats(const struct ina_emulator *em, struct ina_emulator_stats *stats);
uint64_t ina_emulator_frames_held(const struct ina_emulator *em); /* on wires and in NICs: 0 when no event is left */
int ina_emulator_wire_stats(const struct ina_emulator *em, struct ina_wire_end from, struct ina_wire_stats *stats);
int ina_emulator_worker_stats(const struct ina_emulator *em, uint32_t machine, struct ina_worker_stats *stats);

#endif
