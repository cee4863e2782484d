#include "offers.h"

#include <errno.h>

int ina_offers_amend(void *state, const struct ina_tensor *tensors, int handle, uint64_t now)
{
    struct ina_tensors *ts = ina_slots_tensors(state);
    if (handle < 0 || handle >= INA_MAX_OPS || ts->failed)
        return -EINVAL;
    const int result = ina_tensors_amend(ts, tensors, (uint32_t)handle);
    const uint64_t seq = ts->op[handle].first;
    const uint32_t index = (uint32_t)(seq & (ina_slots_of(state)->config.slots - 1));
    struct ina_slot *slot = ina_slots_slot(state, index);
    if (result < 0 || slot->seq != seq || (slot->state != FLYING && slot->state != READY))
        return result; /* it is decided, or not its turn */
    struct ina_slots_tail *tail = ina_slots_tail(state);
    if (ts->choice[handle].state != INA_OFFER_ASK && !tail->times.started[handle])
        tail->times.started[handle] = now ? now : 1;
    if (slot->state == FLYING) {
        ina_rto_changed(&tail->rto, index);
        slot->state = READY;
        ina_slots_mark(state, index);
    }
    return 0;
}

enum ina_offers_outcome ina_offers_answer(void *state, const struct ina_tensor *tensors, uint32_t handle, uint32_t answer, uint32_t ranks,
                                          uint32_t *missing)
{
    struct ina_tensors *ts = ina_slots_tensors(state);
    struct ina_worker_stats *stats = &ina_slots_tail(state)->stats;
    if (answer == INA_OFFER_OPEN) {
        *missing = ts->choice[handle].state == INA_OFFER_ASK ? 0 : ranks; /* a worker that asks does not wait */
        return INA_OFFERS_OPEN;
    }
    if (answer == INA_OFFER_DECIDED && ina_tensors_decide(ts, tensors, handle, ranks, stats) == INA_OUTCOME_OK)
        return INA_OFFERS_DECIDED;
    stats->drop_malformed++;
    return INA_OFFERS_WRONG;
}
