#include "route.h"

static uint32_t all(uint32_t workers)
{
    return (uint32_t)((1ull << workers) - 1);
}

/* Sets of a piece: nothing goes back to the only worker that has it, and values that nobody else needs go nowhere. */
static struct ina_route route_of(const struct ina_piece *piece)
{
    struct ina_route route = {piece->sources, piece->receivers, 0};
    if (!(route.sources & (route.sources - 1)))
        route.receivers &= ~route.sources;
    if (!route.receivers || !route.sources)
        return (struct ina_route){0};
    route.members = route.sources | route.receivers;
    return route;
}

int ina_route_valid(const struct ina_tensor *t, uint32_t workers)
{
    if (!ina_tensor_is_routed(t))
        return !t->pieces && !t->ends && !t->pieces_count;
    if (workers > INA_BITMAP_WORKERS || (t->pieces_count && !(t->pieces && t->ends)))
        return 0;
    uint64_t left = t->count;
    for (uint64_t i = 0; i < t->pieces_count; i++) {
        const struct ina_piece *piece = &t->pieces[i];
        if (piece->count > left || ((piece->sources | piece->receivers) & ~all(workers))
            || (ina_is_float(t->dtype) && piece->sources != all(workers)))
            return 0;
        left -= piece->count;
    }
    return !left;
}

uint64_t ina_route_hash(const struct ina_tensor *t)
{
    uint64_t h = ina_mix(t->pieces_count + 1);
    for (uint64_t i = 0; i < t->pieces_count; i++) {
        h = ina_mix(h ^ t->pieces[i].count);
        h = ina_mix(h ^ ((uint64_t)t->pieces[i].sources << 32 | t->pieces[i].receivers));
    }
    return h;
}

uint64_t ina_route_blocks(const struct ina_tensor *t, uint32_t workers, uint32_t values, uint8_t *partial)
{
    uint64_t blocks = 0;
    *partial = 0;
    for (uint64_t i = 0; i < t->pieces_count; i++) {
        const struct ina_piece *piece = &t->pieces[i];
        const struct ina_route route = route_of(piece);
        if (ina_is_float(t->dtype) || route.members) { /* the exponents of floats are everybody's */
            blocks += (piece->count + values - 1) >> __builtin_ctz(values); /* packet sizes are powers of two */
            *partial |= !ina_is_float(t->dtype) && piece->count && route.members != all(workers);
        }
        t->ends[i] = blocks;
    }
    return blocks;
}

static uint64_t begin_of(const struct ina_tensor *t, uint64_t i)
{
    return i ? t->ends[i - 1] : 0;
}

/* The piece of a block: with pieces of one size, the first that is looked at. */
static const struct ina_piece *piece_of(const struct ina_tensor *t, uint64_t block)
{
    const uint64_t blocks = t->ends[t->pieces_count - 1];
    uint64_t low = 0, high = t->pieces_count, at = (uint64_t)((unsigned __int128)block * high / blocks);
    while (block < begin_of(t, at) || block >= t->ends[at]) {
        if (block < begin_of(t, at))
            high = at;
        else
            low = at + 1;
        at = low + (high - low) / 2;
    }
    return &t->pieces[at];
}

struct ina_place ina_route_place(const struct ina_tensor *t, uint32_t values, uint64_t block)
{
    const struct ina_piece *piece = piece_of(t, block);
    const uint64_t at = (block - begin_of(t, (uint64_t)(piece - t->pieces))) * values, left = piece->count - at;
    return (struct ina_place){piece->at + at, left < values ? left : values};
}

struct ina_route ina_route_of(const struct ina_tensors *ts, const struct ina_tensor *tensors, uint32_t handle, uint64_t seq)
{
    const struct ina_op *op = &ts->op[handle];
    const uint64_t p = seq - op->first;
    struct ina_route route = {0};
    if (p >= op->ahead)
        route = route_of(piece_of(&tensors[handle], p - op->ahead));
    if (!op->partial || p < op->ahead || ina_route_is_gate(ts, handle, seq))
        route.members = all(ts->workers);
    return route;
}
