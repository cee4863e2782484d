#include "rto.h"

#include <assert.h>
#include <string.h>

static_assert(INA_RTO_LISTS <= 32, "`used` has a bit per list");

size_t ina_rto_size(uint32_t slots)
{
    return sizeof(struct ina_rto) + (slots + INA_RTO_LISTS) * sizeof(struct ina_rto_slot);
}

void ina_rto_init(struct ina_rto *rto, uint32_t slots, uint64_t min, uint64_t max)
{
    memset(rto, 0, ina_rto_size(slots));
    rto->min = min;
    rto->max = max;
    rto->slots = slots;
    rto->rto = ina_rto_at_most(4 * min, max); /* no sample yet: careful */
    rto->probe_interval = ina_rto_at_most(4 * rto->rto, max);
    rto->probe_budget = INA_PROBE_BURST;
    for (uint32_t i = 0; i < slots + INA_RTO_LISTS; i++)
        rto->slot[i] = (struct ina_rto_slot){.next = (uint16_t)i, .prev = (uint16_t)i, .list = INA_RTO_IDLE};
}

static uint64_t interval(const struct ina_rto *rto, int list)
{
    if (list == INA_RTO_WAITING)
        return rto->probe_interval;
    return rto->rto > rto->max >> list ? rto->max : rto->rto << list;
}

void ina_rto_duplicate(struct ina_rto *rto, uint32_t index, uint64_t now)
{
    struct ina_rto_slot *slot = &rto->slot[index];
    if (!slot->resent || now < rto->corrected)
        return;
    slot->resent = 0;
    rto->rto = ina_rto_at_most(2 * rto->rto, rto->max);
    rto->corrected = ina_rto_later(now, rto->rto);
}

void ina_rto_pending(struct ina_rto *rto, uint32_t index, uint64_t now)
{
    struct ina_rto_slot *slot = &rto->slot[index];
    /* A first packet is never answered so: with exactly two sent, this is the answer to the second (in a tree perhaps to that of
     * another worker, which was sent about then). */
    if (slot->sent == 2 && slot->level != INA_RTO_WAITING && slot->list != INA_RTO_IDLE)
        ina_rto_sample(rto, now - slot->since);
    ina_rto_stop(rto, index);
    slot->level = INA_RTO_WAITING;
    ina_rto_append(rto, index, INA_RTO_WAITING, now);
}

/* The first slot of a list; not below `slots`: it is empty. */
static uint32_t first(const struct ina_rto *rto, int list)
{
    return rto->slot[rto->slots + (uint32_t)list].next;
}

static uint64_t due(const struct ina_rto *rto, int list)
{
    const uint64_t t = ina_rto_later(rto->slot[first(rto, list)].since, interval(rto, list));
    return list == INA_RTO_WAITING && !rto->probe_budget && t < rto->probe_refill ? rto->probe_refill : t;
}

int ina_rto_expired(struct ina_rto *rto, uint64_t now, int *probe)
{
    for (uint32_t left = rto->used; left; left &= left - 1) {
        const int list = __builtin_ctz(left);
        const uint32_t index = first(rto, list);
        if (index >= rto->slots) {
            rto->used &= ~(1u << list);
            continue;
        }
        if (due(rto, list) > now)
            continue;
        *probe = list == INA_RTO_WAITING;
        if (!*probe) {
            rto->slot[index].level = (uint8_t)(list + 1 < INA_RTO_LEVELS ? list + 1 : list);
        } else {
            if (now >= rto->probe_refill) {
                if (rto->probe_budget < INA_PROBE_BURST)
                    rto->probe_budget = INA_PROBE_BURST;
                rto->probe_interval = ina_rto_at_most(2 * rto->probe_interval, rto->max);
                rto->probe_refill = ina_rto_later(now, rto->probe_interval);
            }
            rto->probe_budget--;
        }
        ina_rto_stop(rto, index);
        return (int)index;
    }
    return -1;
}

uint64_t ina_rto_next(const struct ina_rto *rto)
{
    uint64_t next = UINT64_MAX;
    for (uint32_t left = rto->used; left; left &= left - 1) {
        const int list = __builtin_ctz(left);
        if (first(rto, list) < rto->slots)
            next = ina_rto_at_most(next, due(rto, list));
    }
    return next;
}
