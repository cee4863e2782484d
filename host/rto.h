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
enum { INA_RTO_NONE = 0xffff, INA_RTO_IDLE = 0xff };

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
void ina_rto_duplicate(struct ina_rto *rto, uint32_t slot, uint64_t now); /* a result that the slot already had */
void ina_rto_pending(struct ina_rto *rto, uint32_t slot, uint64_t now);   /* others are late: probe from now on */
int ina_rto_expired(struct ina_rto *rto, uint64_t now, int *probe);       /* a slot to send again (timer off), or -1 */
uint64_t ina_rto_next(const struct ina_rto *rto);                         /* UINT64_MAX: no timer runs */

/* ---- what happens to every packet, inline ------------------------------------------------------------------------- */

static inline uint64_t ina_rto_at_most(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t ina_rto_later(uint64_t t, uint64_t interval)
{
    return t > UINT64_MAX - interval ? UINT64_MAX : t + interval;
}

/* Timer off, count of transmissions kept. */
static inline void ina_rto_stop(struct ina_rto *rto, uint32_t index)
{
    struct ina_rto_slot *slot = &rto->slot[index];
    const uint32_t list = slot->list, next = slot->next, prev = slot->prev;
    if (list == INA_RTO_IDLE)
        return;
    if (prev == INA_RTO_NONE)
        rto->first[list] = (uint16_t)next;
    else
        rto->slot[prev].next = (uint16_t)next;
    if (next == INA_RTO_NONE)
        rto->last[list] = (uint16_t)prev;
    else
        rto->slot[next].prev = (uint16_t)prev;
    if ((prev & next) == INA_RTO_NONE) /* it was alone */
        rto->used &= ~(1u << list);
    slot->list = INA_RTO_IDLE;
}

static inline void ina_rto_append(struct ina_rto *rto, uint32_t index, uint32_t list, uint64_t now)
{
    struct ina_rto_slot *slot = &rto->slot[index];
    const uint32_t last = rto->last[list];
    slot->since = now;
    slot->list = (uint8_t)list;
    slot->next = INA_RTO_NONE;
    slot->prev = (uint16_t)last;
    if (last == INA_RTO_NONE)
        rto->first[list] = (uint16_t)index;
    else
        rto->slot[last].next = (uint16_t)index;
    rto->last[list] = (uint16_t)index;
    rto->used |= 1u << list;
}

/* Starts (again) the slot's timer. */
static inline void ina_rto_sent(struct ina_rto *rto, uint32_t index, uint64_t now)
{
    struct ina_rto_slot *slot = &rto->slot[index];
    ina_rto_stop(rto, index);
    slot->sent += slot->sent < UINT8_MAX;
    ina_rto_append(rto, index, slot->level, now);
}

static inline void ina_rto_sample(struct ina_rto *rto, uint64_t rtt)
{
    uint64_t srtt = rto->srtt, rttvar = rto->rttvar;
    if (srtt) {
        const uint64_t error = rtt > srtt ? rtt - srtt : srtt - rtt;
        rttvar += error / 4 - rttvar / 4;
        srtt += rtt / 8 - srtt / 8;
    } else {
        srtt = rtt ? rtt : 1;
        rttvar = rtt / 2;
    }
    const uint64_t estimate = srtt + 4 * rttvar;
    rto->srtt = srtt;
    rto->rttvar = rttvar;
    rto->rto = estimate < rto->min ? rto->min : ina_rto_at_most(estimate, rto->max);
}

/* Answered: a sample, and all anew. */
static inline void ina_rto_result(struct ina_rto *rto, uint32_t index, uint64_t now)
{
    struct ina_rto_slot *slot = &rto->slot[index];
    const uint32_t sent = slot->sent;
    if (sent == 1)
        ina_rto_sample(rto, now - slot->since);
    ina_rto_stop(rto, index);
    slot->resent = sent > 1;
    slot->level = 0;
    slot->sent = 0;
    rto->probe_interval = ina_rto_at_most(4 * rto->rto, rto->max);
    rto->probe_refill = ina_rto_at_most(rto->probe_refill, ina_rto_later(now, rto->probe_interval));
    rto->probe_budget += rto->probe_budget < rto->slots;
}

#endif
