#include "rto.h"

#include <assert.h>
#include <string.h>

enum { NONE = 0xffff, IDLE = 0xff };
static_assert(INA_RTO_LISTS <= 32, "`used` has a bit per list");

static inline uint64_t at_most(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t later(uint64_t t, uint64_t interval)
{
    return t > UINT64_MAX - interval ? UINT64_MAX : t + interval;
}

size_t ina_rto_size(uint32_t slots)
{
    return sizeof(struct ina_rto) + slots * sizeof(struct ina_rto_slot);
}

void ina_rto_init(struct ina_rto *rto, uint32_t slots, uint64_t min, uint64_t max)
{
    memset(rto, 0, ina_rto_size(slots));
    rto->min = min;
    rto->max = max;
    rto->slots = slots;
    rto->rto = at_most(4 * min, max); /* no sample yet: careful */
    rto->probe_interval = at_most(4 * rto->rto, max);
    rto->probe_budget = INA_PROBE_BURST;
    for (int i = 0; i < INA_RTO_LISTS; i++)
        rto->first[i] = rto->last[i] = NONE;
    for (uint32_t i = 0; i < slots; i++)
        rto->slot[i] = (struct ina_rto_slot){.next = NONE, .prev = NONE, .list = IDLE};
}

static uint64_t interval(const struct ina_rto *rto, int list)
{
    if (list == INA_RTO_WAITING)
        return rto->probe_interval;
    return rto->rto > rto->max >> list ? rto->max : rto->rto << list;
}

static void append(struct ina_rto *rto, uint32_t index, int list, uint64_t now)
{
    struct ina_rto_slot *slot = &rto->slot[index];
    slot->since = now;
    slot->list = (uint8_t)list;
    slot->next = NONE;
    slot->prev = rto->last[list];
    if (slot->prev == NONE)
        rto->first[list] = (uint16_t)index;
    else
        rto->slot[slot->prev].next = (uint16_t)index;
    rto->last[list] = (uint16_t)index;
    rto->used |= 1u << list;
}

void ina_rto_stop(struct ina_rto *rto, uint32_t index)
{
    struct ina_rto_slot *slot = &rto->slot[index];
    if (slot->list == IDLE)
        return;
    if (slot->prev == NONE)
        rto->first[slot->list] = slot->next;
    else
        rto->slot[slot->prev].next = slot->next;
    if (slot->next == NONE)
        rto->last[slot->list] = slot->prev;
    else
        rto->slot[slot->next].prev = slot->prev;
    if (rto->first[slot->list] == NONE)
        rto->used &= ~(1u << slot->list);
    slot->list = IDLE;
}

void ina_rto_sent(struct ina_rto *rto, uint32_t index, uint64_t now)
{
    struct ina_rto_slot *slot = &rto->slot[index];
    ina_rto_stop(rto, index);
    slot->sent = slot->sent < UINT8_MAX ? slot->sent + 1 : UINT8_MAX;
    append(rto, index, slot->level, now);
}

static void sample(struct ina_rto *rto, uint64_t rtt)
{
    if (!rto->srtt) {
        rto->srtt = rtt ? rtt : 1;
        rto->rttvar = rtt / 2;
    } else {
        const uint64_t error = rtt > rto->srtt ? rtt - rto->srtt : rto->srtt - rtt;
        rto->rttvar = rto->rttvar - rto->rttvar / 4 + error / 4;
        rto->srtt = rto->srtt - rto->srtt / 8 + rtt / 8;
    }
    const uint64_t estimate = rto->srtt + 4 * rto->rttvar;
    rto->rto = estimate < rto->min ? rto->min : at_most(estimate, rto->max);
}

void ina_rto_result(struct ina_rto *rto, uint32_t index, uint64_t now)
{
    struct ina_rto_slot *slot = &rto->slot[index];
    if (slot->sent == 1)
        sample(rto, now - slot->since);
    ina_rto_stop(rto, index);
    slot->resent = slot->sent > 1;
    slot->level = 0;
    slot->sent = 0;
    rto->probe_interval = at_most(4 * rto->rto, rto->max);
    rto->probe_refill = at_most(rto->probe_refill, later(now, rto->probe_interval));
    if (rto->probe_budget < rto->slots)
        rto->probe_budget++;
}

void ina_rto_duplicate(struct ina_rto *rto, uint32_t index, uint64_t now)
{
    struct ina_rto_slot *slot = &rto->slot[index];
    if (!slot->resent || now < rto->corrected)
        return;
    slot->resent = 0;
    rto->rto = at_most(2 * rto->rto, rto->max);
    rto->corrected = later(now, rto->rto);
}

void ina_rto_pending(struct ina_rto *rto, uint32_t index, uint64_t now)
{
    struct ina_rto_slot *slot = &rto->slot[index];
    /* A first packet is never answered so: with exactly two sent, this is the answer to the second (in a tree perhaps to that of
     * another worker, which was sent about then). */
    if (slot->sent == 2 && slot->level != INA_RTO_WAITING && slot->list != IDLE)
        sample(rto, now - slot->since);
    ina_rto_stop(rto, index);
    slot->level = INA_RTO_WAITING;
    append(rto, index, INA_RTO_WAITING, now);
}

static uint64_t due(const struct ina_rto *rto, int list)
{
    const uint64_t t = later(rto->slot[rto->first[list]].since, interval(rto, list));
    return list == INA_RTO_WAITING && !rto->probe_budget && t < rto->probe_refill ? rto->probe_refill : t;
}

int ina_rto_expired(struct ina_rto *rto, uint64_t now, int *probe)
{
    for (uint32_t left = rto->used; left; left &= left - 1) {
        const int list = __builtin_ctz(left);
        if (due(rto, list) > now)
            continue;
        const int index = rto->first[list];
        *probe = list == INA_RTO_WAITING;
        if (!*probe) {
            rto->slot[index].level = list + 1 < INA_RTO_LEVELS ? list + 1 : list;
        } else {
            if (now >= rto->probe_refill) {
                if (rto->probe_budget < INA_PROBE_BURST)
                    rto->probe_budget = INA_PROBE_BURST;
                rto->probe_interval = at_most(2 * rto->probe_interval, rto->max);
                rto->probe_refill = later(now, rto->probe_interval);
            }
            rto->probe_budget--;
        }
        ina_rto_stop(rto, (uint32_t)index);
        return index;
    }
    return -1;
}

uint64_t ina_rto_next(const struct ina_rto *rto)
{
    uint64_t next = UINT64_MAX;
    for (uint32_t left = rto->used; left; left &= left - 1)
        next = at_most(next, due(rto, __builtin_ctz(left)));
    return next;
}
