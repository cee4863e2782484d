/* Recovery: which of a worker's packets are sent again, and when. O(1) for each packet.
 *
 * All packets that wait for their results are in one list, in the order of sending; the head is the oldest. Two things have a packet
 * sent again, which moves it to the end of the list:
 *
 *   gap      A packet that was sent once, and `reorder` later than the head, has its result: the head is sent again at once
 *            (as RACK, RFC 8985 §6.2). Packets sent twice are no evidence: which of the two was answered is not known.
 *            `reorder` is an eighth of a round trip. If a result comes within a quarter of one after that, and another one later,
 *            the packet was late, not lost (as Eifel tells it, RFC 3522). That may also be another worker's doing, but seldom:
 *            where 5 of 16 packets were late, `reorder` is made four times as long, a whole round trip at most, else half as long
 *            (RFC 8985 §6.2 has steps of its own). Not in ATP, where another worker's repetition often brings the result.
 *   overdue  Since the head was sent, or the last probe, `interval` has passed, and half of it since the latest result (while
 *            results come, one that is missing shows as a gap): the packet with the lowest number alone is sent again, as a
 *            probe (as the tail loss probe of RFC 8985 §7); all workers ask about the same packet.
 *                reply `pending`: other workers are late. The next probe comes after as much time again as the wait has taken.
 *                a result:        it had been lost, so others may be: the next two are sent at once, then four, ... But not if it came
 *                                 sooner than any round trip, when others' packets were late; if that happens to two single probes
 *                                 in a row, with nothing else between, there was no round trip yet, or those known had waited for others.
 *                                 Nor if it came after more than the time-out: so late it is no answer, but the path was slow.
 *                no reply:        a time-out: probe or answer is lost, or the packet was, and the probe is added in its place.
 *                                 The next probes are two, then four, ...; the second comes after the same interval (a probe that
 *                                 is lost is likelier than a dead path), then intervals double, from rto_min at least to rto_max.
 *                                 When as many probes as there are slots have brought nothing, one at a time is sent: if
 *                                 the path is longer than rto_max, more would fill it.
 *
 * So a worker that waits for a late one sends a logarithmic number of probes, and k lost results are found in log2(k) round trips.
 *
 * A result brings `interval` back to what the round trips say: smoothed, with their variation (RFC 6298 §2; Karn's rule: no
 * samples from packets sent twice). Packets that were waiting when a probe was sent are no samples either: they waited for a
 * worker, not for the path. So before the first sample, after a probe without a `pending` reply, results say nothing of the path until a
 * packet sent after it has its own; the interval stays as it is till then (as in RFC 6298 §5), and doubles before each further wait: a path
 * that is longer than `min` is probed a logarithmic number of times. Not where only silence shows losses, which would be found late. The
 * open packet of a tensor with a route is no sample where packets with values follow it: they take longer.
 * Each further result of a packet that was sent again shows that a repetition was needless (as in RFC 3522).
 * The last of them answers the last transmission, and the sum was there when that came: so this is a sample, and a path that has
 * become longer than the interval is learnt.
 * When all transmissions of a packet have been answered, nothing was lost: the length of that silence is what processes of a busy
 * machine may take, and is added to the interval (`delay`), until it has not been confirmed for DELAY_KEPT times its length. So is
 * twice the time by which the caller comes too late to a timer.
 *
 * fixed: each packet has a time-out of rto_min, and nothing else (SwitchML NSDI'21 §3.5).
 *
 * A value: no pointers; sits in the tail of a protocol's state, behind its statistics.
 */
#ifndef INA_RTO_H
#define INA_RTO_H

#include <stddef.h>
#include <stdint.h>

enum { INA_RTO_LOWEST = -2 };
enum ina_rto_kind { INA_RTO_FIRST = 0, INA_RTO_TIMEOUT, INA_RTO_PROBE, INA_RTO_GAP }; /* why a packet is sent (again) */

struct ina_rto_slot {
    uint64_t since;          /* last sent */
    uint16_t next, prev;     /* in the list, which is a ring with its head */
    uint8_t listed;
    uint8_t sent;            /* transmissions of this packet, saturating */
    uint8_t kind;            /* of the latest one */
    uint8_t gap : 1, late : 1, again : 6; /* of the packet before: kind of the latest one, and that had its result too soon; repetitions not known to be needless */
};

struct ina_rto {
    uint64_t min, max;       /* ps */
    uint64_t srtt, rttvar, least; /* round trip: smoothed, variation, shortest */
    uint64_t rto;            /* of an answered path: the interval after a result */
    uint64_t interval;       /* until the head is overdue */
    uint64_t delay, confirmed; /* added to the interval; when it was learnt, or halved */
    uint64_t probed;         /* last probe, or result after probes */
    uint64_t heard;          /* latest result */
    uint64_t sampled;        /* packets sent before this give no sample */
    uint64_t resent;         /* when the packet of slot `asking` was last sent, which has a result and waits for others; 0: none does */
    uint64_t wait, silence;  /* start of the wait that probes ask about, 0: none is; a delay, if the latest probe was needless */
    uint64_t reorder, newest; /* newest: latest sending of a packet, sent once, that has its result */
    uint32_t eighths;        /* of a round trip in `reorder` */
    uint32_t gaps, late;     /* packets sent again for a gap since that was looked at, and results that showed one to be late */
    uint32_t slots, fixed;
    uint32_t reason;         /* of probes: INA_RTO_PROBE or INA_RTO_TIMEOUT */
    uint32_t soon;           /* single probes in a row with a result sooner than any round trip, and alone */
    uint32_t unanswered;     /* probes since anything came */
    uint32_t window, owed;   /* probes at once; those of them that are still to be sent */
    uint32_t asked, pending; /* probes sent together; `pending` replies since */
    uint32_t asking;
    uint64_t delays;         /* how often one was observed */
    struct ina_rto_slot slot[]; /* [slots], and the head of the list */
};

struct ina_rto_burst {       /* results that have all come now */
    uint64_t now;
    uint64_t oldest, newest; /* first and last transmission among packets sent once; UINT64_MAX and 0: there are none */
    uint32_t results;
    uint32_t found, early;   /* results of probes, a round trip later or more; and sooner */
    uint32_t disorderly;     /* 1: of packets that are answered in any order, so that only silence shows a loss */
};

size_t ina_rto_size(uint32_t slots);
void ina_rto_init(struct ina_rto *rto, uint32_t slots, uint64_t min, uint64_t max, int fixed);
/* A result that the slot already had. 1: a packet was sent again without need. */
int ina_rto_duplicate(struct ina_rto *rto, uint32_t slot, uint64_t now);
void ina_rto_late(struct ina_rto *rto, uint32_t slot, uint64_t now); /* then, where only a packet's own worker has its result sent again */
void ina_rto_pending(struct ina_rto *rto, uint32_t slot, uint64_t now);   /* others are late */
int ina_rto_again(struct ina_rto *rto, uint32_t slot, enum ina_rto_kind kind); /* the slot, with its timer off */
/* A slot to send again (timer off), or -1; INA_RTO_LOWEST: that with the lowest number of those sent before `probed`. */
int ina_rto_expired(struct ina_rto *rto, uint64_t now);
uint64_t ina_rto_next(const struct ina_rto *rto);                         /* UINT64_MAX: no timer runs */

/* ---- per packet, inline ------------------------------------------------------------------------------------------ */

static inline uint64_t ina_rto_at_most(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t ina_rto_at_least(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline uint64_t ina_rto_later(uint64_t t, uint64_t interval)
{
    return t > UINT64_MAX - interval ? UINT64_MAX : t + interval;
}

/* The slot that has waited longest; not below `slots`: there is none. */
static inline uint32_t ina_rto_head(const struct ina_rto *rto)
{
    return rto->slot[rto->slots].next;
}

/* Timer off, count of transmissions kept. */
static inline void ina_rto_stop(struct ina_rto *rto, uint32_t index)
{
    struct ina_rto_slot *slot = &rto->slot[index];
    const uint16_t next = slot->next, prev = slot->prev;
    if (!slot->listed)
        return;
    rto->slot[prev].next = next;
    rto->slot[next].prev = prev;
    slot->listed = 0;
}

/* Packets that are sent now, one after the other, by slots whose timers are off: linked as they come, appended to the list at the end. */
struct ina_rto_run {
    uint32_t last;
};

static inline struct ina_rto_run ina_rto_begin(const struct ina_rto *rto)
{
    return (struct ina_rto_run){rto->slot[rto->slots].prev};
}

static inline void ina_rto_link(struct ina_rto *rto, struct ina_rto_run *run, uint32_t index, uint64_t now)
{
    struct ina_rto_slot *slot = &rto->slot[index];
    slot->since = now;
    slot->listed = 1;
    slot->prev = (uint16_t)run->last;
    rto->slot[run->last].next = (uint16_t)index;
    run->last = index;
}

static inline void ina_rto_add(struct ina_rto *rto, struct ina_rto_run *run, uint32_t index, uint64_t now)
{
    struct ina_rto_slot *slot = &rto->slot[index];
    slot->sent = (uint8_t)(slot->sent + (slot->sent < UINT8_MAX));
    ina_rto_link(rto, run, index, now);
}

static inline void ina_rto_end(struct ina_rto *rto, const struct ina_rto_run *run)
{
    rto->slot[run->last].next = (uint16_t)rto->slots;
    rto->slot[rto->slots].prev = (uint16_t)run->last;
}

/* Starts (again) the slot's timer. */
static inline void ina_rto_sent(struct ina_rto *rto, uint32_t index, uint64_t now)
{
    ina_rto_stop(rto, index);
    struct ina_rto_run run = ina_rto_begin(rto);
    ina_rto_add(rto, &run, index, now);
    ina_rto_end(rto, &run);
}

static inline struct ina_rto_burst ina_rto_burst_at(uint64_t now)
{
    return (struct ina_rto_burst){.now = now, .oldest = UINT64_MAX};
}

/* The packet of a slot has changed, and is to be sent again for that: a new question, for which nobody has waited yet. Timer off. */
static inline void ina_rto_changed(struct ina_rto *rto, uint32_t index)
{
    ina_rto_stop(rto, index);
    rto->slot[index].kind = INA_RTO_FIRST; /* it is sent again for no reason of the timers */
    rto->interval = rto->rto;
    rto->wait = 0;
}

/* Resets a slot whose packet is answered. */
static inline void ina_rto_answered(struct ina_rto *rto, struct ina_rto_burst *burst, uint32_t index)
{
    struct ina_rto_slot *slot = &rto->slot[index];
    const uint64_t since = slot->since;
    burst->results++;
    ina_rto_stop(rto, index);
    if (__builtin_expect(slot->sent == 1, 1)) {
        burst->oldest = ina_rto_at_most(burst->oldest, since);
        burst->newest = ina_rto_at_least(burst->newest, since);
    } else if (slot->kind == INA_RTO_PROBE) {
        if (burst->now - since < rto->least)
            burst->early++;
        else if (burst->now - since <= rto->rto)
            burst->found++;
    }
    if (__builtin_expect(slot->sent > 1, 0) && (!rto->resent || rto->asking == index || since - rto->resent > rto->max)) {
        rto->asking = index;
        rto->resent = since;
    }
    slot->gap = slot->kind == INA_RTO_GAP;
    slot->late = slot->gap && burst->now - since < rto->least / 4;
    slot->again = 63u & (slot->kind == INA_RTO_FIRST ? 0 : (uint32_t)ina_rto_at_most(slot->sent - 1u, 63));
    slot->kind = INA_RTO_FIRST;
    slot->sent = 0;
}

void ina_rto_doubt(struct ina_rto *rto, struct ina_rto_burst *burst); /* probes have results sooner than any round trip */
void ina_rto_resumed(struct ina_rto *rto, uint32_t found, uint64_t now); /* results come again, after a probe */

/* Takes how long a packet's answer took. */
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
    rto->srtt = srtt;
    rto->rttvar = rttvar;
    rto->least = ina_rto_at_most(rto->least, rtt);
    rto->reorder = 1 + srtt / 8 * rto->eighths;
    rto->rto = ina_rto_at_most(srtt + ina_rto_at_least(2 * srtt, 4 * rttvar), rto->max);
}

/* Takes a burst with at least one result. */
static inline void ina_rto_results(struct ina_rto *rto, struct ina_rto_burst *burst)
{
    if (burst->oldest != UINT64_MAX && (burst->oldest >= rto->sampled || !rto->srtt))
        ina_rto_sample(rto, burst->now - burst->oldest);
    /* Later samples may have waits for other workers' recoveries in them; intervals that stayed till then would grow from each other. */
    if (__builtin_expect(rto->srtt || rto->pending || burst->disorderly, 1))
        rto->interval = rto->rto;
    rto->newest = ina_rto_at_least(rto->newest, burst->newest);
    rto->heard = burst->now;
    if (__builtin_expect(burst->early || rto->soon, 0))
        ina_rto_doubt(rto, burst);
    if (__builtin_expect(rto->wait || burst->found, 0))
        ina_rto_resumed(rto, burst->found, burst->now);
}

#endif
