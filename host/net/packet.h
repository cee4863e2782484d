/* The packet descriptor: a port lends it, a switch program reads and writes it, and a protocol fills it.
 *
 * A descriptor never owns its bytes. The buffer belongs to a port (ring slot, mbuf, socket batch):
 *
 *     |<- headroom ->|<------- len ------->|<- tailroom ->|
 *     +--------------+---------------------+--------------+
 *     |              | Ethernet ...        |              |
 *     +--------------+---------------------+--------------+
 *                    ^ data
 *
 * Frames run from the Ethernet header to the end of the payload; no FCS, no preamble.
 * Times are unsigned 64-bit picoseconds of whichever clock the world has.
 */
#ifndef INA_PACKET_H
#define INA_PACKET_H

#include <stdint.h>

/* Decision of the ingress (or egress) phase; the runtime acts on it. */
enum ina_verdict {
    INA_DROP = 0,      /* the packet ends here */
    INA_UNICAST = 1,   /* to `egress_port` */
    INA_MULTICAST = 2, /* a copy for each member of `mcast_grp` */
    INA_RESUBMIT = 3,  /* the original frame enters ingress again */
    INA_RECIRCULATE = 4, /* the deparsed frame enters ingress again (egress phase only) */
    INA_FAILED = 5,    /* an assertion of the program was false: the packet ends here */
    INA_ENDLESS = 6    /* it made too many rounds of the program's loops: the packet ends here */
};

/* v1model instance types (standard_metadata.instance_type, as BMv2 numbers them). */
enum ina_instance_type {
    INA_NORMAL = 0,
    INA_INGRESS_CLONE = 1,
    INA_EGRESS_CLONE = 2,
    INA_COALESCED = 3,
    INA_RECIRCULATED = 4,
    INA_REPLICATED = 5,
    INA_RESUBMITTED = 6
};

enum { INA_CPU_PORT = 510, INA_DROP_PORT = 511, INA_NO_TIME = 0 };

struct ina_packet {
    uint8_t *data;          /* first byte of the frame */
    uint32_t len;           /* bytes at data */
    uint32_t wire_len;      /* length on the wire; equals len unless payload is left out (virtual time) */
    uint32_t headroom;      /* writable bytes before data */
    uint32_t tailroom;      /* writable bytes after data + len */
    uint16_t ingress_port;
    uint16_t egress_port;
    uint16_t mcast_grp;
    uint16_t rid;           /* replication id of this copy */
    uint8_t verdict;        /* enum ina_verdict */
    uint8_t instance_type;  /* enum ina_instance_type */
    uint8_t clone;          /* 1: also a clone to `clone_session` */
    uint8_t digest;         /* 1: the program left a digest in its metadata */
    uint32_t clone_session;
    uint32_t field_list;    /* preserved field list of resubmit or recirculate, of a clone once it is one */
    uint32_t truncate_len;  /* 0: whole */
    uint32_t enq_qdepth;    /* queue depth in packets when this packet was queued */
    uint32_t deq_qdepth;    /* and when it left */
    uint64_t ingress_time;  /* when it entered the switch */
    uint64_t enq_time;
    uint64_t deq_time;
    uint8_t *meta;          /* program metadata, `meta_size` bytes, carried from ingress to egress */
    uint32_t tag;           /* for the caller: never read by programs or protocols */
    uint32_t clone_list;    /* preserved field list of the clone */
};

#endif
