/* Switch: runs a compiled program. Sans-IO: no clock, no socket, no allocation per packet.
 *
 *     input ─> ingress ─> [ replicate, clone, queue (link.h) ] ─> egress ─> port (lent frames) or output callback
 *                ^                                                  │
 *                └── resubmitted, recirculated, cloned (bounded) <──┘
 *
 * One thread drives a switch. The same code serves real time (dataplane.c) and virtual time. The program's state is one
 * pointer-free block (`ina_switch_state`): with empty queues it is all that a snapshot needs.
 *
 * This is the path of a v1model program; with one of TNA (tna_switch.h) the switch has pipes of 128 ports, each with a
 * pipeline and state of its own, a traffic manager with a replication engine between them, and loopback ports.
 */
#ifndef INA_SWITCH_H
#define INA_SWITCH_H

#include <stddef.h>
#include <stdint.h>

#include "link.h"
#include "packet.h"
#include "port.h"
#include "program.h"
#include "table.h"

enum {
    INA_SWITCH_PORTS = 512,     /* port numbers 0..510; INA_DROP_PORT is never one */
    INA_BATCH = 64,             /* most packets that programs see in one call */
    INA_SWITCH_GROUPS = 65536,  /* multicast groups and clone sessions: 1..65535 */
};

/* Reason why a frame ended here; counted on the port it came from, or on the one it would have left by. */
enum ina_drop_reason {
    INA_DROPPED_INGRESS = 0,       /* by the program */
    INA_DROPPED_EGRESS = 1,        /* by the program */
    INA_DROPPED_NO_PORT = 2,       /* (from) unicast to a port that does not exist */
    INA_DROPPED_NO_GROUP = 3,      /* (from) multicast to a group that does not exist */
    INA_DROPPED_NO_SESSION = 4,    /* (from) clone to a session that does not exist */
    INA_DROPPED_TAIL = 5,          /* (to) the queue was full */
    INA_DROPPED_BACK_PRESSURE = 6, /* (to) the port lent no frame */
    INA_DROPPED_TOO_LONG = 7,      /* (to) longer than the port takes */
    INA_DROPPED_PASSES = 8,        /* (from) resubmitted, recirculated or cloned too often */
    INA_DROPPED_NO_BUFFER = 9,     /* (to) the buffer that all queues share was full */
    INA_DROPPED_MALFORMED = 10,    /* (from) no bytes, no headroom, or longer than on the wire; refused by a TNA parser */
    INA_DROPPED_ASSERTION = 11,    /* an assert or assume of the program was false */
    INA_DROPPED_LOOP_LIMIT = 12,   /* too many rounds of loops without a bound */
    INA_DROPPED_REENTRIES = 13,    /* (from) too many frames were to enter again */
    INA_DROPPED_NO_MEMORY = 14,    /* (either) of this machine */
    INA_DROP_REASONS = 15
};

struct ina_switch_port_stats {
    uint64_t rx_packets, rx_bytes, tx_packets, tx_bytes;
    uint64_t ecn_marks, recirculated; /* recirculated: resubmissions and clones too */
    uint64_t drops[15];               /* by enum ina_drop_reason */
};

struct ina_switch_config { /* 0 takes the default */
    uint64_t buffer;       /* bytes that wait in the queues of all ports together, counted as they count them; 0: no limit */
    uint32_t reentries;    /* frames that are to enter again at once (resubmitted, recirculated, clones): 1024 */
    uint32_t max_frame;    /* longest frame held in those or given to the callback, bytes: 9216 */
    uint32_t max_passes;   /* of a packet through ingress, at most 255: 64 */
    uint32_t digests;      /* digests that wait to be read: 256 */
    uint64_t seed;         /* of the program's random numbers */
    uint32_t pipes;        /* TNA, at most INA_TNA_PIPES: 2, or as many as the program has pipelines */
    const struct ina_tables *const *next_tables; /* TNA: of the pipelines after the first, in order */
};

struct ina_replica {
    uint16_t port, rid;
};

struct ina_digest {        /* followed by the metadata, meta_size bytes */
    uint64_t time;         /* ps */
    uint32_t ingress_port;
    uint32_t number;       /* of the program's digest: the packet's `digest` */
};

/* One operation of the control plane. `ina_switch_execute` runs it at once; a data plane (below) runs it between bursts. */
enum ina_command_op {
    INA_SET_TABLES = 0,     /* tables (TNA: of pipeline id); the old image may be freed afterwards */
    INA_SET_GROUP = 1,      /* multicast group id = count replicas at data; count 0 removes it */
    INA_SET_SESSION = 2,    /* clone session likewise; size: truncate clones to so many bytes, 0: whole */
    INA_ADD_PORT = 3,       /* id; port (lent, never closed; NULL: the output callback), link (NULL: straight through) */
    INA_REMOVE_PORT = 4,    /* id; drops frames that wait for it */
    INA_READ_STATE = 5,     /* count elements of size bytes, stride apart from offset on, packed into data */
    INA_WRITE_STATE = 6,    /* the reverse */
    INA_READ_PORT = 7,      /* struct ina_switch_port_stats of port id into data */
    INA_READ_DIGESTS = 8,   /* up to count of struct ina_digest + metadata, oldest first, stride bytes apart, into data; count becomes
                               their number, offset those lost */
    INA_SET_LINK = 9        /* rate and delay of the link of port id, as in link, for frames whose transmission begins from now on */
};

struct ina_command {
    uint32_t op;            /* enum ina_command_op */
    int32_t result;         /* 0 or -errno: -EINVAL, -ENOENT, -EEXIST, -ENOMEM, -ECANCELED (an earlier one failed) */
    uint32_t id;
    uint32_t count;
    uint64_t offset, stride, size;
    void *data;
    const struct ina_tables *tables;
    struct ina_port *port;
    const struct ina_link_config *link;
};

struct ina_switch;

/* NULL + errno: EINVAL (ABI, number of tables or pipes), ENOMEM. `tables` may be NULL only if the program has none. */
struct ina_switch *ina_switch_create(const struct ina_program *program, const struct ina_tables *tables,
                                     const struct ina_switch_config *config);
void ina_switch_destroy(struct ina_switch *sw);
/* Frames of ports that were added without a `struct ina_port`. The packet is lent for the call; its tag is that of
 * the packet it came from. The callback does not call this switch. */
void ina_switch_set_output(struct ina_switch *sw,
                           void (*output)(void *context, uint16_t port, const struct ina_packet *pkt, uint64_t now),
                           void *context);

/* For a caller with a calendar of its own (virtual time): frames that leave by ports with a link and without a `struct
 * ina_port` are written straight into the caller's memory and handed over as soon as they are sent, with their arrival time;
 * the link keeps nothing in flight. These functions do not call the switch. */
struct ina_outlet {
    void *context;
    int (*get)(void *context, struct ina_packet *pkt); /* lends an empty frame, its tag included; 0: there is none */
    /* Takes a frame that `get` lent, or one of those that ina_switch_input was called with (its tag says which). len 0: it is
     * not sent. */
    void (*put)(void *context, uint16_t port, struct ina_packet *pkt, uint64_t arrival);
    void (*wake)(void *context, uint16_t port, uint64_t due); /* ina_switch_poll_port is to be called then */
    void (*exhausted)(void *context); /* a frame was dropped because this machine is out of memory */
    uint32_t kept;           /* bytes of a frame that are stored while it waits, the rest becomes zeros. 0: all */
};
int ina_switch_set_outlet(struct ina_switch *sw, const struct ina_outlet *outlet); /* before ports are added; 0, -ENOMEM, -EBUSY */
void ina_switch_poll_port(struct ina_switch *sw, uint32_t port, uint64_t now);

/* Discipline of a queue that merges frames: asked when a frame is to wait, for each that waits there already, the latest first. */
enum ina_merged { INA_MERGE_OTHER = 0, /* they have nothing in common: the next one is asked for */
                  INA_MERGE_DONE = 1,  /* the waiting frame, of the same length, stands for both, and the arriving one is gone */
                  INA_MERGE_BEHIND = 2 /* the arriving one is queued, behind all */ };
typedef enum ina_merged (*ina_merge)(void *context, uint8_t *waiting, uint32_t waiting_len, const uint8_t *arriving, uint32_t len);
/* Sets that of a port, NULL: none; it ends with the port. 0, -ENOENT: the port has no queue before an outlet, -EINVAL: the outlet
 * does not store whole frames. */
int ina_switch_set_merge(struct ina_switch *sw, uint32_t port, ina_merge merge, void *context);
uint32_t ina_switch_headroom(const struct ina_switch *sw); /* that ina_switch_input wants before each frame */

/* Frames from ports: ingress_port, data, len, wire_len, headroom (>= ina_switch_headroom) and tailroom are set, tag is the
 * caller's; the rest is overwritten, and the frames may be. Everything that can leave at `now` has left on return. */
void ina_switch_input(struct ina_switch *sw, struct ina_packet *pkts, unsigned n, uint64_t now);
uint64_t ina_switch_next_due(const struct ina_switch *sw); /* ps; UINT64_MAX: no queue has anything */
void ina_switch_poll(struct ina_switch *sw, uint64_t now);
const struct ina_link_stats *ina_switch_link_stats(const struct ina_switch *sw, uint32_t port); /* NULL: it has no link */

int ina_switch_execute(struct ina_switch *sw, struct ina_command *command); /* command->result */
/* In order, to the end; `stop_on_error` cancels those after the first that fails. Number that failed. */
unsigned ina_switch_execute_all(struct ina_switch *sw, struct ina_command *commands, unsigned n, int stop_on_error);

uint32_t ina_switch_parked_bytes(const struct ina_switch *sw); /* of memory for one frame that waits, with its link's record */
void *ina_switch_state(struct ina_switch *sw); /* ina_switch_state_size bytes, 64-byte aligned */
uint64_t ina_switch_state_size(const struct ina_switch *sw);
/* v1model: the caller's memory takes the place of the state, in any condition that a switch of this program has left it in, and stays the
 * caller's: ina_switch_state_size bytes, 64-byte aligned. */
void ina_switch_use_state(struct ina_switch *sw, void *state);
uint32_t ina_switch_pipes(const struct ina_switch *sw);        /* 0: the program has none */
uint64_t ina_switch_state_stride(const struct ina_switch *sw); /* from one pipe's state to the next one's (TNA) */

/* ina_table_lookup (table.h) as a function, for bindings: the entry that matches, or NULL. */
const struct ina_entry *ina_table_find(const struct ina_table *table, const uint64_t *key);

/* ---- program objects (loader.c) -------------------------------------------------------------------------------------
 * NULL and a message in `error` when `path` is no program of this ABI. Close only after its switches are destroyed. */
const struct ina_program *ina_program_open(const char *path, void **handle, char *error, size_t error_size);
void ina_program_close(void *handle);

/* ---- output as bytes (collector.c), for callers without C: records of a header and the frame, 8-byte aligned --------- */
struct ina_collected {
    uint64_t time;
    uint32_t len, wire_len;
    uint32_t port, tag;
};
struct ina_collector {
    uint8_t *data;
    uint64_t size, used;
    uint64_t lost;          /* frames for which there was no memory */
};
void ina_collect(void *collector, uint16_t port, const struct ina_packet *pkt, uint64_t now); /* for set_output */
void ina_collector_free(struct ina_collector *collector); /* its memory; zeroes are an empty one */
/* Copies one frame in, with headroom, and runs it: for ina_switch_input from outside C. 0, -EMSGSIZE, -ENOMEM. */
int ina_switch_input_frame(struct ina_switch *sw, const uint8_t *frame, uint32_t len, uint16_t port, uint64_t now);

/* ---- data plane (dataplane.c): a native thread that owns the switch until it is stopped ------------------------------ */
struct ina_dataplane_config {
    uint64_t spin_ps;       /* poll the ports this long after the last frame before sleeping */
    uint32_t yields;        /* then give the processor away this often and look again */
    uint32_t batch;         /* frames taken from a port at once, 1..INA_BATCH; 0: 32 */
    uint64_t poll_ps;       /* sleep between looks at ports that have no descriptor to wait on; 0: 50 us */
    uint64_t nap_ps;        /* after frames, sleep this long before looking again, whatever comes; 0: no */
};
struct ina_dataplane_stats {
    uint64_t bursts, packets, sleeps, commands;
};
struct ina_dataplane;
struct ina_dataplane *ina_dataplane_start(struct ina_switch *sw, const struct ina_dataplane_config *config); /* NULL + errno */
/* Runs commands in order between two bursts, from any thread. 0, -ETIMEDOUT (none has run), -ESHUTDOWN. */
int ina_dataplane_call(struct ina_dataplane *dp, struct ina_command *commands, unsigned n, int stop_on_error,
                       uint64_t timeout_ps);
void ina_dataplane_get_stats(struct ina_dataplane *dp, struct ina_dataplane_stats *stats);
/* 0: the thread has ended, dp is gone and the switch is the caller's again. -ETIMEDOUT: it still runs. */
int ina_dataplane_stop(struct ina_dataplane *dp, uint64_t timeout_ps);

#endif
