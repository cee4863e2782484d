/* Flow: packets between two ranks of a baseline, each delivered once, with a window; sans-IO, and without their contents.
 *
 * Packets of one direction are numbered from 0. The receiver accepts each number once and acknowledges every fourth
 * packet, the sender's last one ("push"), and every one out of order: all below `cumulative` have arrived, of the 64
 * after it those in `selective`, and the sender may send below `limit` (the receiver's room). A packet counts as
 * lost when three later ones have arrived or after a time-out (RFC 6298: smoothed round trip and four deviations, at
 * least `rto`), and is sent again.
 *
 * INA_IDEAL_WINDOW: always `window` packets under way, the network permitting. INA_DCTCP: slow start, then one packet more a
 * round trip, and once a window less by half the smoothed share of packets that met a queue over the ECN threshold
 * (Alizadeh et al., DCTCP, SIGCOMM'10 §3.3), at most `window`.
 */
#ifndef INA_EMULATOR_FLOW_H
#define INA_EMULATOR_FLOW_H

#include <stdint.h>

enum { INA_FLOW_ONE = 1 << 16 };
enum ina_congestion { INA_IDEAL_WINDOW = 0, INA_DCTCP = 1 };

struct ina_ack {
    uint32_t cumulative, limit, marked; /* marked: packets with "congestion experienced" since the last one */
    uint64_t selective;
    uint64_t echo;             /* when the last received packet was sent (RFC 7323): a sample of the round trip */
};

struct ina_flow_packet {
    uint64_t sent;             /* ps, of the last time */
    uint8_t acked, lost, times;
};

struct ina_flow {
    uint32_t window, congestion;
    uint64_t rto;              /* least */
    /* out */
    struct ina_flow_packet *out; /* by number mod window */
    uint32_t available, next, una, limit;
    uint32_t lost;             /* packets to be retransmitted */
    uint64_t heard;            /* last sign of the peer, or own probe, while the window is closed */
    uint64_t cwnd, alpha;      /* packets, share of marked packets: in 1 / INA_FLOW_ONE (whole numbers: the same on any machine) */
    uint32_t round_end, round_packets, round_marked, slow_start;
    uint64_t srtt, deviation;  /* ps, 0: no sample yet */
    uint64_t sent, again, timeouts;
    /* in */
    uint8_t *got;              /* by number mod window */
    uint32_t cumulative, consumed, unacknowledged, marked;
    uint64_t echo;
    int ack_due;
    uint64_t accepted, duplicates;
};

int ina_flow_init(struct ina_flow *flow, uint32_t window, uint32_t congestion, uint64_t rto); /* 0, -ENOMEM */
void ina_flow_destroy(struct ina_flow *flow);
void ina_flow_offer(struct ina_flow *flow, uint32_t packets, uint64_t now); /* adds packets to send */
int ina_flow_idle(const struct ina_flow *flow);                 /* 1: all offered packets are acknowledged */
int ina_flow_hurries(const struct ina_flow *flow, uint64_t now); /* 1: to acknowledge, send again, or probe */
int ina_flow_open(const struct ina_flow *flow);                 /* 1: the window lets packet `next` go */
/* Returns 1: send packet *number now; 2: send a window probe, without a packet; 0: nothing. *push: request an acknowledgement
 * at once. */
int ina_flow_send(struct ina_flow *flow, uint64_t now, uint32_t *number, int *push);
void ina_flow_acknowledged(struct ina_flow *flow, const struct ina_ack *ack, uint64_t now);
uint64_t ina_flow_next_timer(const struct ina_flow *flow);      /* UINT64_MAX: none */
/* 1: new; 0: a duplicate, or outside the window. */
int ina_flow_accept(struct ina_flow *flow, uint32_t number, uint64_t sent, int push, int marked);
/* Makes room: the reader has taken the numbers below `until`. */
void ina_flow_consume(struct ina_flow *flow, uint32_t until, int tell);
int ina_flow_acknowledge(struct ina_flow *flow, struct ina_ack *ack); /* 1: send this */

#endif
