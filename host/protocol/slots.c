#include "slots.h"

#include <errno.h>
#include <string.h>

#include "memory.h"
#include "wire.h"

int ina_slots_valid(const struct ina_slots_shape *shape, const struct ina_worker_config *c)
{
    return c->workers >= 1 && c->workers <= shape->max_workers && c->worker < c->workers && c->job <= 255
           && c->life && c->life <= shape->last_life && c->slots >= 1 && c->slots <= INA_MAX_SLOTS && !(c->slots & (c->slots - 1))
           && ina_wire_size_code(c->values) >= 0 && c->rto_min_ps && c->rto_min_ps <= c->rto_max_ps && c->timeout_ps
           && c->first_packet < 1ull << 63;
}

static size_t ready_offset(const struct ina_slots_shape *shape, uint32_t slots)
{
    return shape->state + slots * shape->slot;
}

static size_t tensors_offset(const struct ina_slots_shape *shape, uint32_t slots)
{
    return ready_offset(shape, slots) + ina_slots_words(slots) * sizeof(uint64_t);
}

size_t ina_slots_head_size(const struct ina_slots_shape *shape, const struct ina_worker_config *config)
{
    return ina_whole_lines(tensors_offset(shape, config->slots) + ina_tensors_size(config->slots));
}

size_t ina_slots_state_size(const struct ina_slots_shape *shape, const struct ina_worker_config *config)
{
    return ina_whole_lines(ina_slots_head_size(shape, config) + sizeof(struct ina_slots_tail) + ina_rto_size(config->slots));
}

void ina_slots_init(void *state, const struct ina_slots_shape *shape, const struct ina_worker_config *config,
                    int32_t exponent, uint32_t floats)
{
    struct ina_slots *s = state;
    memset(s, 0, ina_slots_state_size(shape, config));
    s->config = *config;
    s->at.slots = (uint32_t)shape->state;
    s->at.stride = (uint32_t)shape->slot;
    s->at.ready = (uint32_t)ready_offset(shape, config->slots);
    s->at.tensors = (uint32_t)tensors_offset(shape, config->slots);
    s->at.tail = (uint32_t)ina_slots_head_size(shape, config);
    ina_tensors_init(ina_slots_tensors(s), config, exponent, floats);
    struct ina_slots_tail *tail = ina_slots_tail(s);
    ina_rto_init(&tail->rto, config->slots, config->rto_min_ps, config->rto_max_ps);
    ina_slots_publish_rto(tail);
}

void ina_slots_publish_rto(struct ina_slots_tail *tail)
{
    tail->stats.srtt_ps = tail->rto.srtt;
    tail->stats.rttvar_ps = tail->rto.rttvar;
    tail->stats.rto_ps = tail->rto.rto;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

/* Bits that a pending reply may name: workers; of more than there are bits, the children of a switch. */
static uint32_t all_of(uint32_t workers)
{
    return workers < INA_BITMAP_WORKERS ? (1u << workers) - 1 : UINT32_MAX;
}

void ina_slots_fail(void *state, uint32_t code, uint32_t handle)
{
    struct ina_tensors *ts = ina_slots_tensors(state);
    const struct ina_op *op = &ts->op[handle];
    uint64_t oldest = UINT64_MAX;
    for (uint32_t i = 0; ts->ops_open < ts->ops_end && i < ina_slots_of(state)->config.slots; i++) {
        const struct ina_slot *slot = ina_slots_slot(state, i);
        if (slot->state == IDLE || slot->seq >= oldest || slot->seq < op->first || slot->seq >= op->first + ina_tensors_packets(op))
            continue;
        oldest = slot->seq;
        ts->failure = (struct ina_event){.slot = i, .tsi = (uint32_t)oldest, .have_missing = slot->asked,
                                         .missing = slot->missing & all_of(ina_slots_of(state)->config.workers)};
    }
    ina_tensors_fail(ts, code, handle);
}

int ina_slots_abort(void *state, uint32_t code, uint64_t now)
{
    (void)now;
    if (!code)
        return -EINVAL;
    if (!ina_slots_tensors(state)->failed)
        ina_slots_fail(state, code, ina_tensors_oldest(ina_slots_tensors(state)));
    return 0;
}

/* ---- timers and events ------------------------------------------------------------------------------------------- */

int ina_slots_expire(void *state, uint32_t index)
{
    if (ina_slots_tensors(state)->failed || index >= ina_slots_of(state)->config.slots || ina_slots_slot(state, index)->state != FLYING)
        return -ENOENT;
    ina_rto_stop(&ina_slots_tail(state)->rto, index);
    return 0;
}

uint64_t ina_slots_next_timer(const void *state)
{
    if (ina_slots_tensors(state)->failed)
        return UINT64_MAX;
    const uint64_t timer = ina_rto_next(&ina_slots_tail(state)->rto), end = ina_slots_deadline(state);
    return timer < end ? timer : end;
}

int ina_slots_next_handle(const void *state)
{
    return ina_tensors_next_handle(ina_slots_tensors(state));
}

int ina_slots_events(void *state, struct ina_event *events, int max)
{
    return ina_tensors_events(ina_slots_tensors(state), &ina_slots_tail(state)->times, events, max);
}
