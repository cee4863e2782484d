/* Control-plane operations of a switch that runs a TNA program: pipes, the packet replication engine, mirror sessions and
 * port metadata. They are commands like those of switch.h (`struct ina_command`).
 *
 * A multicast group is an image of 32-bit words, made by the control plane from its nodes and ECMP groups:
 *
 *     group:        number of branches | for each: offset of a branch
 *     branch:       level-1 exclusion id, bit 16: it is valid, bit 17: chosen by hash | number of choices | offset of a node, each
 *     node:         rid | number of ports | number of LAGs | ports ... | LAG ids ...
 *
 * Offsets are in words from the start of the image; a choice of 0 is a slot without a node. Of the choices of a branch
 * that is chosen by hash, h % (number of choices) is taken if it has a node, otherwise the (h % nodes)-th node.
 */
#ifndef INA_TNA_SWITCH_H
#define INA_TNA_SWITCH_H

#include <stdint.h>

#include "packet.h"
#include "tna.h"

enum {
    INA_TNA_LAGS = 256,
    INA_TNA_PRUNES = 288,       /* level-2 exclusion ids */
    INA_TNA_SESSIONS = 1024,    /* mirror sessions 1..1023; 0 is reserved */
    INA_TNA_PARSERS = 18,       /* of each pipe, for four ports each */
    INA_TNA_CPU = 64,           /* ports 64..67 are the CPU's; of pipes 1 and 3 of four, which have no CPU, they recirculate */
    INA_TNA_LOOPBACK = 68,      /* ports 68..71 of each pipe recirculate */
    INA_TNA_FCS = 4,            /* Ethernet's frame check sequence: part of pkt_length, not of our frames */
    INA_TNA_NO_PORT = 511
};

/* Operations: `op` of struct ina_command (switch.h has those below 32). */
enum ina_tna_op {
    INA_TNA_SET_GROUP = 32,     /* multicast group id: image of count words at data; count 0 removes it */
    INA_TNA_SET_LAG = 33,       /* id: count ports (uint16_t) at data, offset: remote members before, stride: after them */
    INA_TNA_SET_PRUNE = 34,     /* level-2 exclusion id: count ports (uint16_t) at data */
    INA_TNA_SET_REPLICATION = 35, /* struct ina_tna_replication at data */
    INA_TNA_SET_PORT = 36,      /* port id: struct ina_tna_port at data */
    INA_TNA_SET_SESSION = 37,   /* mirror session id: struct ina_tna_session at data; NULL removes it */
    INA_TNA_SET_LOOPBACK = 38,  /* port id, which is there and has no struct ina_port: count 1 loopback, 0 not */
    INA_TNA_SET_ENABLED = 39,   /* port id: count 0: nothing enters or leaves by it, as if it were not there; 1: again */
    INA_TNA_SET_PIPE_TABLES = 40, /* pipe id: tables, of its pipeline, for all parsers; count n: for parser n - 1 only. INA_SET_TABLES
                                 * sets those of all its pipes and parsers */
    INA_TNA_SET_APP = 41,       /* packet generator's application id (8 * pipe + number): struct ina_tna_app at data */
    INA_TNA_READ_APP = 42,      /* id: its counters into the struct ina_tna_app_counters at data; count 1: sets them from there */
    INA_TNA_SET_PKTGEN_BUFFER = 43, /* pipe id: count bytes at data, from offset on */
    INA_TNA_SET_PKTGEN_PORT = 44 /* port id: count, enum ina_tna_pktgen_port or-ed */
};

struct ina_tna_replication {
    uint16_t global_rid;        /* a packet with this rid prunes at every node, as if it were the node's */
    uint16_t cpu_port;          /* where copy_to_cpu goes; INA_TNA_NO_PORT: nowhere */
    uint8_t protect;            /* 1: the backup of a port that is down gets its copies */
};

struct ina_tna_port {
    uint8_t metadata[8];        /* bytes between intrinsic metadata and frame */
    uint16_t backup;            /* for multicast while the port is down; itself: none */
    uint8_t down;
};

/* The packet generator of a pipe (7.17): applications that, when triggered, send batches of a packet of the pipe's buffer, with 6
 * bytes in front, into the pipe by its port 68. */
enum { INA_TNA_APPS = 8, INA_TNA_PKTGEN_BUFFER = 16384, INA_TNA_PKTGEN_HEADER = 6 };
enum ina_tna_trigger { INA_TNA_ONE_SHOT = 0, INA_TNA_PERIODIC = 1, INA_TNA_PORT_DOWN = 2, INA_TNA_PATTERN = 3 };
enum ina_tna_pktgen_port {
    INA_TNA_PKTGEN_ENABLE = 1,  /* of port 68: the pipe's generator sends */
    INA_TNA_PKTGEN_PATTERN = 2, /* of ports 68 to 71: packets that recirculate there may trigger */
    INA_TNA_PKTGEN_CLEAR = 4    /* of any port: the next time that it goes down triggers, once */
};

struct ina_tna_app {
    uint64_t timer_ps;          /* from being enabled, or from one trigger to the next */
    uint64_t packet_gap_ps, batch_gap_ps; /* from start to start; never less than a packet lasts at 100 Gb/s */
    uint32_t batches, packets;  /* of one trigger, and of each batch */
    uint32_t length, at;        /* of the packet, in the buffer, bytes */
    uint32_t pattern, mask;     /* of a recirculated packet's first 32 bits */
    uint16_t port;              /* that packets seem to come from, of the pipe */
    uint8_t trigger, enabled, increment; /* increment: the port by 1 with each packet of a batch */
};

struct ina_tna_app_counters {
    uint64_t triggers, batches, packets;
};

enum ina_tna_direction { INA_TNA_INGRESS = 1, INA_TNA_EGRESS = 2 };

struct ina_tna_session {
    struct ina_tna to;          /* the destination, as ingress would set it */
    uint32_t max_len;           /* mirror header and frame, bytes; 0: whole */
    uint8_t directions;         /* enum ina_tna_direction, or-ed: the phases whose copies it takes */
    uint8_t enabled;
};

#endif
