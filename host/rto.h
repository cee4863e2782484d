/* Retransmission timers of all slots, O(1) each: slots wait in lists, one per back-off level, in the order in which they
 * were sent, and a list's interval is the same for all in it, so its head is always the next that is due.
 *
 *     sent once ── level 0 (RTO) ── level 1 (2 RTO) ── ... up to rto_max          nothing heard: taken for loss
 *     the switch answered `pending` ── waiting (probes, few and slow)             heard: other workers are late
 *
 * RTO: Jacobson's estimator as RFC 6298 §2 writes it, Karn's rule (no samples from packets sent twice), exponential
 * back-off (§5.5) of each slot for itself, since loss of one packet says little about the others. A second result of a
 * packet sent twice shows that its time-out was too short (as in RFC 3522): RTO doubles, until the next sample. Probing: slots that wait for other workers are asked about only INA_PROBE_BURST at a time, at
 * intervals that double up to rto_max. Each result that arrives pays for one more probe and starts the intervals anew:
 * when late workers catch up, a lost result is found in a few RTOs.
 *
 * A value: no pointers; sits in the tail of a protocol's state, behind its statistics.
 */
#ifndef INA_RTO_H
#define INA_RTO_H

#include <stddef.h>
#include <stdint.h>

enum { INA_RTO_LEVELS = 24, INA_RTO_WAITING = INA_RTO_LEVELS, INA_RTO_LISTS, INA_PROBE_BURST = 8 };

struct ina_rto_slot {
    uint64_t since;          /* last sent (or, waiting, last heard of) */
    uint16_t next, prev;     /* in its list; INA_RTO_NONE ends it */
    uint8_t list;            /* INA_RTO_IDLE: in none */
    uint8_t level;           /* list for the next transmission */
    uint8_t sent;            /* transmissions of this packet, saturating */
    uint8_t resent;          /* the packet before was sent more than once */
};

struct ina_rto {
    uint64_t min, max;       /* ps */
    uint64_t rto, srtt, rttvar;
    uint64_t corrected;      /* RTO is not doubled again before this */
    uint64_t probe_interval, probe_refill;
    uint32_t probe_budget, slots;
    uint32_t used;           /* bit per list that is not empty */
    uint16_t first[INA_RTO_LISTS], last[INA_RTO_LISTS];
    struct ina_rto_slot slot[];
};

size_t ina_rto_size(uint32_t slots);
void ina_rto_init(struct ina_rto *rto, uint32_t slots, uint64_t min, uint64_t max);
void ina_rto_sent(struct ina_rto *rto, uint32_t slot, uint64_t now);      /* starts (again) the slot's timer */
void ina_rto_stop(struct ina_rto *rto, uint32_t slot);                    /* timer off, count of transmissions kept */
void ina_rto_result(struct ina_rto *rto, uint32_t slot, uint64_t now);    /* answered: a sample, and all anew */
void ina_rto_duplicate(struct ina_rto *rto, uint32_t slot, uint64_t now); /* a result that the slot already had */
void ina_rto_pending(struct ina_rto *rto, uint32_t slot, uint64_t now);   /* others are late: probe from now on */
int ina_rto_expired(struct ina_rto *rto, uint64_t now, int *probe);       /* a slot to send again (timer off), or -1 */
uint64_t ina_rto_next(const struct ina_rto *rto);                         /* UINT64_MAX: no timer runs */

#endif
