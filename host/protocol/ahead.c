#include "ahead.h"

#include <string.h>

static int has_values(const struct ina_tensors *ts, const struct ina_op *op, const struct ina_tensor *t, uint64_t seq)
{
    const struct ina_place place = ina_tensors_place(ts, op, t, seq - op->first - op->ahead);
    const int32_t *x = (const int32_t *)t->in + place.at;
    int32_t any = 0;
    for (uint64_t i = 0; i < place.count; i++)
        any |= x[i];
    return any != 0;
}

void ina_ahead_look(struct ina_ahead *ahead, const struct ina_tensors *ts, const struct ina_op *op, const struct ina_tensor *t,
                    uint64_t seq)
{
    const uint64_t last = ina_ahead_last(ts, op, seq), farthest = seq + (uint64_t)INA_AHEAD_MOST * ts->window;
    if (ahead->after <= seq) { /* else a phase of others' blocks, or a packet that is sent again */
        ahead->has = (uint8_t)has_values(ts, op, t, seq);
        ahead->after = seq + ts->window;
        ahead->found = 0;
    }
    while (!ahead->found && ahead->after < last && ahead->after < farthest) {
        ahead->found = (uint8_t)has_values(ts, op, t, ahead->after);
        if (!ahead->found)
            ahead->after += ts->window;
    }
}

uint64_t ina_ahead_skip(struct ina_tensors *ts, const struct ina_tensor *tensors, uint32_t handle, uint64_t seq, uint64_t steps,
                        struct ina_worker_stats *stats)
{
    struct ina_op *op = &ts->op[handle];
    for (uint64_t i = 1; i < steps; i++) {
        const struct ina_place place = ina_tensors_place(ts, op, &tensors[handle], seq + i * ts->window - op->first - op->ahead);
        memset((int32_t *)tensors[handle].out + place.at, 0, place.count * sizeof(int32_t));
    }
    if (steps > 1) {
        op->unanswered -= steps - 1;
        if (!op->unanswered)
            ina_tensors_finish(ts, handle, stats);
    }
    return seq + steps * ts->window;
}
