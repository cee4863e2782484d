/* What the control plane sets in a switch that runs a TNA program: pipes, the packet replication engine, mirror sessions
 * and port metadata. The operations go the same way as those of switch.h (`struct ina_command`).
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
    INA_TNA_SET_PIPE_TABLES = 40 /* pipe id: tables, of its pipeline, for all parsers; count n: for parser n - 1 only. INA_SET_TABLES
                                 * sets those of all its pipes and parsers */
};

struct ina_tna_replication {
    uint16_t global_rid;        /* a packet with this rid prunes at every node, as if it were the node's */
    uint16_t cpu_port;          /* where copy_to_cpu goes; INA_TNA_NO_PORT: nowhere */
    uint8_t protect;            /* 1: the backup of a port that is down gets its copies */
};

struct ina_tna_port {
    uint8_t metadata[8];        /* what stands between intrinsic metadata and frame */
    uint16_t backup;            /* for multicast while the port is down; itself: none */
    uint8_t down;
};

enum ina_tna_direction { INA_TNA_INGRESS = 1, INA_TNA_EGRESS = 2 };

struct ina_tna_session {
    struct ina_tna to;          /* the destination: what ingress would ask for */
    uint32_t max_len;           /* mirror header and frame, bytes; 0: whole */
    uint8_t directions;         /* enum ina_tna_direction, or-ed: whose copies it takes */
    uint8_t enabled;
};

#endif
