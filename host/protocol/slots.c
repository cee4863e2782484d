#include "slots.h"

#include <errno.h>
#include <string.h>

#include "memory.h"

static int is_keyed(const struct ina_slots_shape *shape, const struct ina_worker_config *config)
{
    return ina_option(shape->options, config, shape->check) == INA_CHECK_KEYED;
}

static int has_key(const struct ina_worker_config *config)
{
    uint8_t any = 0;
    for (int i = 0; i < INA_KEY_BYTES; i++)
        any |= config->key[i];
    return any != 0;
}

int ina_slots_valid(const struct ina_slots_shape *shape, const struct ina_worker_config *c)
{
    return c->workers >= 1 && c->workers <= shape->max_workers && c->worker < c->workers && c->job <= 255
           && c->life && c->life <= shape->last_life && c->slots >= 1 && c->slots <= INA_MAX_SLOTS && !(c->slots & (c->slots - 1))
           && ina_lane_holds(c->lane, c->values) && ina_lane_shift(c->lane, (int)c->workers) > 0
           && c->rto_min_ps && c->rto_min_ps <= c->rto_max_ps && c->timeout_ps
           && c->first_packet < 1ull << 63 && ina_rule_valid(c->rule) && (!is_keyed(shape, c) || (has_key(c) && c->lane == INA_KEYED_LANE))
           && ina_options_valid(shape->options, c);
}

static size_t ready_offset(const struct ina_slots_shape *shape, uint32_t slots)
{
    return shape->state + slots * (shape->slot + shape->extra);
}

static size_t tensors_offset(const struct ina_slots_shape *shape, uint32_t slots)
{
    return ready_offset(shape, slots) + ina_slots_words(slots) * sizeof(uint64_t);
}

static size_t keyed_offset(const struct ina_slots_shape *shape, uint32_t slots)
{
    return ina_whole_lines(tensors_offset(shape, slots) + ina_tensors_size(slots));
}

size_t ina_slots_head_size(const struct ina_slots_shape *shape, const struct ina_worker_config *config)
{
    return keyed_offset(shape, config->slots) + (is_keyed(shape, config) ? ina_whole_lines(ina_keyed_size(config->values)) : 0);
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
    s->at.keyed = (uint32_t)keyed_offset(shape, config->slots);
    s->at.tail = (uint32_t)ina_slots_head_size(shape, config);
    ina_tensors_init(ina_slots_tensors(s), config, exponent, floats);
    if (is_keyed(shape, config))
        ina_keyed_init((struct ina_keyed *)((uint8_t *)s + s->at.keyed), config->key, config->values);
    struct ina_slots_tail *tail = ina_slots_tail(s);
    ina_rto_init(&tail->rto, config->slots, config->rto_min_ps, config->rto_max_ps, config->rto_fixed != 0);
    ina_slots_publish_rto(tail);
}

void ina_slots_publish_rto(struct ina_slots_tail *tail)
{
    tail->stats.srtt_ps = tail->rto.srtt;
    tail->stats.rttvar_ps = tail->rto.rttvar;
    tail->stats.rto_ps = tail->rto.rto + tail->rto.delay;
    tail->stats.delays = tail->rto.delays;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

/* Bits that a pending reply may name: workers; of more than there are bits, the children of a switch. */
static uint32_t all_of(uint32_t workers)
{
    return workers < INA_BITMAP_WORKERS ? (1u << workers) - 1 : UINT32_MAX;
}

void ina_slots_wait_for(void *state, uint32_t missing)
{
    ina_slots_tail(state)->stats.waits_for = missing & all_of(ina_slots_of(state)->config.workers);
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

int ina_slots_spoilt(void *state, uint32_t index)
{
    enum { MOST = 3 };
    struct ina_tensors *ts = ina_slots_tensors(state);
    struct ina_slot *slot = ina_slots_slot(state, index);
    ina_slots_tail(state)->stats.drop_corrupt++;
    if (ina_slots_marked(state, index))
        return 0;
    ina_rto_stop(&ina_slots_tail(state)->rto, index);
    ina_slots_tail(state)->rto.slot[index].kind = INA_RTO_FIRST; /* it is sent again for no reason of the timers */
    if (++slot->spoilt < MOST)
        return 1;
    ts->failure = (struct ina_event){.slot = index, .tsi = (uint32_t)slot->seq};
    ina_tensors_fail(ts, INA_ERR_CORRUPT, slot->op);
    return 0;
}

struct ina_check ina_slots_tag(const void *state, const struct ina_tensor *tensors, uint64_t seq, uint32_t handle, int floats,
                               const uint8_t *wire)
{
    const struct ina_tensors *ts = ina_slots_tensors(state);
    const struct ina_op *op = &ts->op[handle];
    const struct ina_keyed_packet packet = ina_slots_keyed_packet(state, seq, handle, floats);
    const int own = packet.agreed && packet.exponent == ina_tensors_exponent_of(ts, op, &tensors[handle], seq - op->first - op->ahead);
    return ina_keyed_tag(ina_slots_keyed(state), &packet, ina_slots_of(state)->config.worker, own, wire);
}

int ina_slots_keyed_fits(const void *state, uint64_t seq, uint32_t handle, int floats, struct ina_check sum, int overflow,
                         const uint8_t *wire)
{
    const struct ina_keyed_packet packet = ina_slots_keyed_packet(state, seq, handle, floats);
    if (floats) {
        const struct ina_check expected = ina_keyed_result(ina_slots_keyed(state), &packet, wire);
        return sum.word[0] == expected.word[0] && sum.word[1] == expected.word[1];
    }
    const int wrapped = overflow && !ina_is_float(ina_slots_tensors(state)->op[handle].dtype);
    return ina_keyed_fits(ina_slots_keyed(state), &packet, 0, ina_slots_tensors(state)->contributions, sum, wrapped, wire);
}

void ina_slots_refused(void *state, uint32_t version)
{
    struct ina_tensors *ts = ina_slots_tensors(state);
    ina_slots_tail(state)->stats.refusals++;
    if (ts->failed)
        return;
    ina_slots_fail(state, INA_ERR_VERSION, ina_tensors_oldest(ts));
    ts->failure.tsi = version;
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

int ina_slots_lowest(void *state)
{
    struct ina_rto *rto = &ina_slots_tail(state)->rto;
    uint32_t lowest = ina_rto_head(rto);
    for (uint32_t i = lowest; i < rto->slots && rto->slot[i].since < rto->probed; i = rto->slot[i].next)
        if (ina_slots_slot(state, i)->seq < ina_slots_slot(state, lowest)->seq)
            lowest = i;
    return ina_rto_again(rto, lowest, (enum ina_rto_kind)rto->reason);
}

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
