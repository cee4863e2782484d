/* Retransmission timers of all slots, O(1) each: slots wait in lists, one per back-off level, in the order in which they
 * were sent, and a list's interval is the same for all in it, so its head is always the next that is due.
 *
 *     sent once ── level 0 (RTO) ── level 1 (2 RTO) ── ... up to rto_max          nothing heard: taken for loss
 *     the switch answered `pending` ── waiting (probes, few and slow)             heard: other workers are late
 *
 * RTO: Jacobson's estimator of RFC 6298 §2, Karn's rule (no samples from packets sent twice), exponential
 * back-off (§5.5) of each slot for itself, since loss of one packet says little about the others. A second result of a
 * packet sent twice shows that its time-out was too short (as in RFC 3522): RTO doubles, until the next sample. Results that
 * come in one burst are one sample, of the packet that was longest in flight.
 *
 * Probing: slots that wait for other workers are asked about only INA_PROBE_BURST at a time, at intervals that double up to
 * rto_max. Each result that arrives pays for one more probe and starts the intervals anew: when late workers catch up, a lost
 * result is found in a few RTOs.
 *
 * A value: no pointers; sits in the tail of a protocol's state, behind its statistics.
 */
#ifndef INA_RTO_H
#define INA_RTO_H

#include <stddef.h>
#include <stdint.h>

enum { INA_RTO_LEVELS = 24, INA_RTO_WAITING = INA_RTO_LEVELS, INA_RTO_LISTS, INA_PROBE_BURST = 8 };
enum { INA_RTO_IDLE = 0xff };

struct ina_rto_slot {
    uint64_t since;          /* last sent (or, waiting, last heard of) */
    uint16_t next, prev;     /* in its list, which is a ring with its head */
    uint8_t list;            /* INA_RTO_IDLE: in none */
    uint8_t level;           /* list for the next transmission; 0 if nothing is sent */
    uint8_t sent;            /* transmissions of this packet, saturating */
    uint8_t resent;          /* the packet before was sent more than once */
};

struct ina_rto {
    uint64_t min, max;       /* ps */
    uint64_t rto, srtt, rttvar;
    uint64_t corrected;      /* RTO is not doubled again before this */
    uint64_t probe_interval, probe_refill;
    uint32_t probe_budget, slots;
    uint32_t used, reserved; /* used: bit per list; cleared when the list is next found empty */
    struct ina_rto_slot slot[]; /* [slots], and the heads of the lists, [INA_RTO_LISTS] */
};

struct ina_rto_burst {       /* results that have all come now */
    uint64_t since;          /* first transmission time among packets sent once; UINT64_MAX: there are none */
    uint32_t results;
};

size_t ina_rto_size(uint32_t slots);
void ina_rto_init(struct ina_rto *rto, uint32_t slots, uint64_t min, uint64_t max);
void ina_rto_duplicate(struct ina_rto *rto, uint32_t slot, uint64_t now); /* a result that the slot already had */
void ina_rto_pending(struct ina_rto *rto, uint32_t slot, uint64_t now);   /* others are late: probe from now on */
int ina_rto_expired(struct ina_rto *rto, uint64_t now, int *probe);       /* a slot to send again (timer off), or -1 */
uint64_t ina_rto_next(const struct ina_rto *rto);                         /* UINT64_MAX: no timer runs */

/* ---- per packet, inline ------------------------------------------------------------------------------------------ */

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
    const uint16_t next = slot->next, prev = slot->prev;
    if (slot->list == INA_RTO_IDLE)
        return;
    rto->slot[prev].next = next;
    rto->slot[next].prev = prev;
    slot->list = INA_RTO_IDLE;
}

static inline void ina_rto_append(struct ina_rto *rto, uint32_t index, uint32_t list, uint64_t now)
{
    struct ina_rto_slot *slot = &rto->slot[index];
    const uint16_t head = (uint16_t)(rto->slots + list), last = rto->slot[head].prev;
    slot->since = now;
    slot->list = (uint8_t)list;
    slot->next = head;
    slot->prev = last;
    rto->slot[last].next = (uint16_t)index;
    rto->slot[head].prev = (uint16_t)index;
    rto->used |= 1u << list;
}

/* Packets that are sent now, one after the other, by slots whose timers are off: most are sent for the first time, and their slots
 * are linked as they come and appended to the list of level 0 at the end. */
struct ina_rto_run {
    uint32_t last;
};

static inline struct ina_rto_run ina_rto_begin(const struct ina_rto *rto)
{
    return (struct ina_rto_run){rto->slot[rto->slots].prev};
}

static inline void ina_rto_add(struct ina_rto *rto, struct ina_rto_run *run, uint32_t index, uint64_t now)
{
    struct ina_rto_slot *slot = &rto->slot[index];
    if (__builtin_expect(slot->sent, 0)) {
        if (slot->sent < UINT8_MAX)
            slot->sent++;
        if (slot->level) {
            ina_rto_append(rto, index, slot->level, now);
            return;
        }
    } else {
        slot->sent = 1;
    }
    slot->since = now;
    slot->list = 0;
    slot->prev = (uint16_t)run->last;
    rto->slot[run->last].next = (uint16_t)index;
    run->last = index;
}

static inline void ina_rto_end(struct ina_rto *rto, const struct ina_rto_run *run)
{
    rto->slot[run->last].next = (uint16_t)rto->slots;
    rto->slot[rto->slots].prev = (uint16_t)run->last;
    rto->used |= 1;
}

/* Starts (again) the slot's timer. */
static inline void ina_rto_sent(struct ina_rto *rto, uint32_t index, uint64_t now)
{
    ina_rto_stop(rto, index);
    struct ina_rto_run run = ina_rto_begin(rto);
    ina_rto_add(rto, &run, index, now);
    ina_rto_end(rto, &run);
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

/* Resets a slot whose packet is answered. */
static inline void ina_rto_answered(struct ina_rto *rto, struct ina_rto_burst *burst, uint32_t index)
{
    struct ina_rto_slot *slot = &rto->slot[index];
    const uint8_t sent = slot->sent;
    if (sent == 1 && slot->since < burst->since)
        burst->since = slot->since;
    burst->results++;
    ina_rto_stop(rto, index);
    slot->resent = sent > 1;
    slot->level = 0;
    slot->sent = 0;
}

/* Takes the sample of a burst with at least one result. */
static inline void ina_rto_results(struct ina_rto *rto, const struct ina_rto_burst *burst, uint64_t now)
{
    if (burst->since != UINT64_MAX)
        ina_rto_sample(rto, now - burst->since);
    rto->probe_interval = ina_rto_at_most(4 * rto->rto, rto->max);
    rto->probe_refill = ina_rto_at_most(rto->probe_refill, ina_rto_later(now, rto->probe_interval));
    if (rto->probe_budget < rto->slots)
        rto->probe_budget = (uint32_t)ina_rto_at_most((uint64_t)rto->probe_budget + burst->results, rto->slots);
}

#endif
