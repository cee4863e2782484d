#include "rto.h"

#include <string.h>

enum { DELAY_KEPT = 64, MOST_PROBES = 256, JUDGED = 16 /* packets of gaps */, LATE = 5 /* of them, more than other workers' losses make */ };

size_t ina_rto_size(uint32_t slots)
{
    return sizeof(struct ina_rto) + (slots + 1) * sizeof(struct ina_rto_slot);
}

void ina_rto_init(struct ina_rto *rto, uint32_t slots, uint64_t min, uint64_t max, int fixed)
{
    memset(rto, 0, ina_rto_size(slots));
    rto->min = min;
    rto->max = max;
    rto->slots = slots;
    rto->fixed = (uint32_t)fixed;
    rto->rto = fixed ? min : ina_rto_at_most(4 * min, max); /* no sample yet: careful */
    rto->interval = rto->rto;
    rto->least = UINT64_MAX;
    rto->reorder = UINT64_MAX;
    rto->eighths = 1;
    rto->window = 1;
    rto->slot[slots].next = rto->slot[slots].prev = (uint16_t)slots;
}

/* How long the path is silent on a busy machine, beyond its round trips. */
static void learn_delay(struct ina_rto *rto, uint64_t delay, uint64_t now)
{
    rto->delays++;
    if (delay < rto->delay)
        return;
    rto->delay = ina_rto_at_most(delay, rto->max);
    rto->confirmed = now;
}

static uint64_t delay_at(struct ina_rto *rto, uint64_t now)
{
    while (rto->delay && now > rto->confirmed && now - rto->confirmed > DELAY_KEPT * rto->delay) {
        rto->confirmed += DELAY_KEPT * rto->delay;
        rto->delay /= 2;
    }
    return rto->delay;
}

/* A packet is sent again for a gap. */
static void widen(struct ina_rto *rto)
{
    if (++rto->gaps < JUDGED)
        return;
    rto->eighths = rto->late >= LATE ? 4 * rto->eighths : rto->eighths / 2;
    rto->eighths = (uint32_t)ina_rto_at_most(ina_rto_at_least(rto->eighths, 1), 8);
    rto->gaps = rto->late = 0;
}

void ina_rto_late(struct ina_rto *rto, uint32_t index, uint64_t now)
{
    rto->late += rto->slot[index].late;
    rto->slot[index].late = 0;
    if (rto->resent && rto->asking == index && !rto->slot[index].again) {
        ina_rto_sample(rto, now - rto->resent);
        rto->resent = 0;
    }
}

int ina_rto_duplicate(struct ina_rto *rto, uint32_t index, uint64_t now)
{
    struct ina_rto_slot *slot = &rto->slot[index];
    if (!slot->again)
        return 0;
    slot->again--;
    if (!slot->gap && !slot->again && rto->silence) { /* each transmission was answered: none was lost */
        learn_delay(rto, rto->silence, now);
        rto->silence = 0;
    }
    return 1;
}

void ina_rto_pending(struct ina_rto *rto, uint32_t index, uint64_t now)
{
    const struct ina_rto_slot *slot = &rto->slot[index];
    /* A first packet is never answered so: with exactly two sent, this is the answer to the second (in a tree perhaps to that of
     * another worker, which was sent about then). */
    if (!rto->srtt && slot->sent == 2 && slot->listed) {
        rto->srtt = ina_rto_at_least(now - slot->since, 1);
        rto->rttvar = rto->srtt / 2;
        rto->rto = ina_rto_at_most(3 * rto->srtt, rto->max);
    }
    if (!slot->listed) { /* it was to be sent again: no need now */
        struct ina_rto_run run = ina_rto_begin(rto);
        ina_rto_link(rto, &run, index, now);
        ina_rto_end(rto, &run);
    }
    rto->pending++;
    rto->unanswered = 0;
    rto->owed = 0;
    if (rto->wait)
        rto->interval = ina_rto_at_most(ina_rto_at_least(rto->rto, now - rto->wait), rto->max);
}

void ina_rto_doubt(struct ina_rto *rto, struct ina_rto_burst *burst)
{
    const int alone = burst->early && burst->oldest == UINT64_MAX && !rto->pending && rto->window == 1;
    rto->soon = alone ? rto->soon + 1 : 0;
    if (rto->soon < 2)
        return;
    rto->least = (burst->now - rto->probed) / 2;
    burst->found += burst->early;
}

void ina_rto_resumed(struct ina_rto *rto, uint32_t found, uint64_t now)
{
    rto->unanswered = 0;
    if (rto->wait) {
        const uint64_t answer = now - rto->probed; /* about a round trip: the probe's, or another worker's, perhaps of a lost packet */
        const int late = answer < rto->least || answer > 2 * rto->srtt;
        rto->silence = !rto->pending && late && now - rto->wait > rto->rto ? now - rto->wait - rto->rto : 0;
        rto->wait = 0;
        if (!found)
            rto->probed = now;
    }
    if (found) {
        rto->window = (uint32_t)ina_rto_at_most(2ull * rto->window, MOST_PROBES);
        rto->owed = rto->window;
    } else {
        rto->window = 1;
        rto->owed = 0;
    }
}

static int overtaken(const struct ina_rto *rto, const struct ina_rto_slot *slot)
{
    return ina_rto_later(slot->since, rto->reorder) <= rto->newest;
}

static uint64_t start_of_wait(const struct ina_rto *rto, const struct ina_rto_slot *slot)
{
    return ina_rto_at_least(slot->since, rto->probed);
}

static uint64_t due(const struct ina_rto *rto, const struct ina_rto_slot *slot)
{
    if (rto->fixed)
        return ina_rto_later(slot->since, rto->min);
    const uint64_t interval = rto->interval + rto->delay;
    return ina_rto_at_least(ina_rto_later(start_of_wait(rto, slot), interval), ina_rto_later(rto->heard, interval / 2));
}

int ina_rto_again(struct ina_rto *rto, uint32_t index, enum ina_rto_kind kind)
{
    rto->slot[index].kind = (uint8_t)kind;
    ina_rto_stop(rto, index);
    return (int)index;
}

static void double_interval(struct ina_rto *rto)
{
    rto->interval = ina_rto_at_most(ina_rto_at_least(2 * rto->interval, rto->min), rto->max);
}

int ina_rto_expired(struct ina_rto *rto, uint64_t now)
{
    const uint32_t index = ina_rto_head(rto);
    if (index >= rto->slots)
        return -1;
    const struct ina_rto_slot *slot = &rto->slot[index];
    if (!rto->fixed) {
        if (overtaken(rto, slot)) {
            widen(rto);
            return ina_rto_again(rto, index, INA_RTO_GAP);
        }
        if (rto->owed) {
            rto->owed = slot->since < rto->probed ? rto->owed - 1 : 0;
            if (slot->since < rto->probed)
                return INA_RTO_LOWEST;
        }
    }
    uint64_t end = due(rto, slot);
    if (end > now)
        return -1;
    if (rto->fixed)
        return ina_rto_again(rto, index, INA_RTO_TIMEOUT);
    delay_at(rto, now);
    end = due(rto, slot);
    if (now - end > rto->interval / 4) {
        learn_delay(rto, 2 * (now - end), now);
        if (due(rto, slot) > now)
            return -1;
    }
    if (!rto->wait) {
        rto->wait = ina_rto_at_least(start_of_wait(rto, slot), 1);
        rto->window = 1;
        rto->reason = INA_RTO_PROBE;
        if (!rto->srtt)
            double_interval(rto);
    } else {
        const int more = rto->pending < rto->asked && rto->unanswered < rto->slots;
        rto->window = more ? (uint32_t)ina_rto_at_most(2ull * rto->window, MOST_PROBES) : 1;
        rto->reason = rto->pending ? INA_RTO_PROBE : INA_RTO_TIMEOUT;
        double_interval(rto);
    }
    rto->asked = rto->window;
    rto->unanswered += rto->window;
    rto->owed = rto->window - 1;
    rto->pending = 0;
    rto->probed = rto->sampled = now;
    return INA_RTO_LOWEST;
}

uint64_t ina_rto_next(const struct ina_rto *rto)
{
    const uint32_t index = ina_rto_head(rto);
    if (index >= rto->slots)
        return UINT64_MAX;
    const struct ina_rto_slot *slot = &rto->slot[index];
    if (!rto->fixed && (overtaken(rto, slot) || (rto->owed && slot->since < rto->probed)))
        return 0;
    return due(rto, slot);
}
