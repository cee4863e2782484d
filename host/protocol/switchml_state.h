/* Inside host/: memory layout of the SwitchML worker's state, behind one pointer:
 *
 *     struct state | slots | bitmap of ready slots | tensors in flight     the head: decides the worker's behaviour
 *     struct tail: statistics, start times, timers of the slots            the tail
 */
#ifndef INA_SWITCHML_STATE_H
#define INA_SWITCHML_STATE_H

#include "frame.h"
#include "protocol.h"
#include "rto.h"
#include "tensors.h"

enum slot_state { IDLE = 0, BLOCKED = 1, READY = 2, FLYING = 3 };

struct slot {
    uint64_t seq;                 /* the packet it sends next, or has in flight */
    uint32_t missing;             /* workers that a switch waits for, by the last pending reply that named some */
    uint8_t state, op, asked, reserved; /* asked: there was a pending reply */
};

struct state {
    struct ina_worker_config config;
    struct { uint32_t ready, tensors, tail, reserved; } at; /* bytes from here to those parts */
    struct ina_frame_template frame;
    uint32_t slots_log2, reserved;
    /* then: struct slot [slots], uint64_t ready[words], struct ina_tensors */
};

struct tail {
    struct ina_worker_stats stats;
    struct ina_tensor_times times;
    uint32_t cursor, reserved;    /* sending goes round the slots, so that none starves */
    struct ina_rto rto;
};

#include "slots.h"

#endif
