/* Inside host/: memory layout of the ATP worker's state, behind one pointer:
 *
 *     struct state | slots | bitmap of slots to send again | tensors in flight     the head: decides its behaviour
 *     struct tail: statistics, start times, timers of the slots                    the tail
 */
#ifndef INA_ATP_STATE_H
#define INA_ATP_STATE_H

#include "internet.h"
#include "protocol.h"
#include "rto.h"
#include "tensors.h"

enum slot_state { IDLE = 0, FLYING = 1, READY = 2 };
enum { NONE = 0xffff, ONE = 1 << 16 /* a packet, in the unit of windows */ };

struct slot {
    uint64_t seq;             /* the packet in flight, or the last one */
    uint32_t seen;            /* workers that the server has of it, by its last pending reply */
    uint16_t index;           /* aggregator of the next packet */
    uint8_t state, op, has_seen;
    uint8_t floats;           /* this packet goes to the server in floats */
    uint8_t resend;           /* the next transmission asks switches for their partial sums */
    uint8_t used;             /* seq means something */
    uint8_t listed;           /* in the list of packets that wait for an answer */
    uint8_t unused;
    uint16_t after, before;   /* its neighbours there */
    uint16_t padding[3];      /* states are compared byte by byte */
    uint64_t order;           /* of its latest transmission among all of this worker */
};

struct state {
    struct ina_worker_config config;
    struct { uint32_t ready, tensors, tail, reserved; } at; /* bytes from here to those parts */
    struct ina_internet net;     /* of bare frames; net_values: of frames with values */
    struct ina_internet net_values;
    struct ina_address peer;     /* the switch, or the server */
    uint64_t next;               /* first packet that has not been sent */
    uint64_t sent, answered;     /* transmissions; the latest of them that was a packet's first and has its result */
    uint64_t recover;            /* the window shrinks once for all packets before this one */
    uint64_t window, threshold;  /* AIMD, in 1/ONE packets; below the threshold it grows fast */
    uint32_t flying;             /* packets sent that have no result */
    uint16_t first, last;        /* packets that wait for an answer, in the order of their transmissions; NONE */
    /* then: struct slot [slots], uint64_t ready[words], struct ina_tensors */
};

struct tail {
    struct ina_worker_stats stats;
    struct ina_tensor_times times;
    uint32_t cursor, reserved;   /* resends go round the slots */
    struct ina_rto rto;
};

static_assert(sizeof(struct slot) == 40, "no padding");

#include "slots.h"

#endif
