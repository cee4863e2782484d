/* Sketch: see sketch.h. */
#include "sketch.h"

#include <string.h>

static uint32_t turned(uint32_t x, int bits)
{
    return x << bits | x >> (32 - bits);
}

/* MurmurHash3_x86_32 (Appleby) of one block of 4 bytes. */
uint32_t ina_sketch_hash(uint32_t place, uint32_t seed)
{
    uint32_t hash = turned(seed ^ turned(place * 0xcc9e2d51, 15) * 0x1b873593, 13) * 5 + 0xe6546b64;
    hash ^= 4; /* bytes */
    hash = (hash ^ hash >> 16) * 0x85ebca6b;
    hash = (hash ^ hash >> 13) * 0xc2b2ae35;
    return hash ^ hash >> 16;
}

static uint32_t bucket_of(const struct ina_sketch *s, uint64_t value, uint32_t range)
{
    const uint32_t hash = ina_sketch_hash(s->places[value], INA_SKETCH_RANGES * s->seed + range);
    return range * s->each + (uint32_t)((uint64_t)hash * s->each >> 32);
}

uint64_t ina_sketch_order(const struct ina_sketch *s, uint32_t *order, uint8_t *range, uint32_t *scratch)
{
    const uint32_t buckets = INA_SKETCH_RANGES * s->each;
    uint32_t *held = scratch, *which = held + buckets, *queue = which + buckets; /* which: its values' numbers, xor-ed */
    memset(held, 0, sizeof *held * 2 * buckets);
    for (uint64_t i = 0; i < s->count; i++)
        for (uint32_t r = 0; r < INA_SKETCH_RANGES; r++) {
            const uint32_t b = bucket_of(s, i, r);
            held[b]++;
            which[b] ^= (uint32_t)i;
        }
    uint32_t ready = 0; /* each bucket comes into the queue once, as counts only fall */
    for (uint32_t b = 0; b < buckets; b++)
        if (held[b] == 1)
            queue[ready++] = b;
    memset(range, INA_SKETCH_LEFT, s->count);
    uint64_t peeled = 0;
    for (uint32_t next = 0; next < ready; next++) {
        if (held[queue[next]] != 1)
            continue; /* its value has been peeled elsewhere */
        const uint32_t value = which[queue[next]];
        order[peeled++] = value;
        range[value] = (uint8_t)(queue[next] / s->each);
        for (uint32_t r = 0; r < INA_SKETCH_RANGES; r++) {
            const uint32_t b = bucket_of(s, value, r);
            which[b] ^= value;
            if (--held[b] == 1)
                queue[ready++] = b;
        }
    }
    uint64_t end = peeled;
    for (uint64_t i = 0; i < s->count; i++)
        if (range[i] == INA_SKETCH_LEFT)
            order[end++] = (uint32_t)i;
    return peeled;
}

void ina_sketch_add(const struct ina_sketch *s, const uint8_t *range, const int32_t *values, int32_t *buckets)
{
    for (uint64_t i = 0; i < s->count; i++)
        if (range[i] != INA_SKETCH_LEFT)
            for (uint32_t r = 0; r < INA_SKETCH_RANGES; r++) {
                const uint32_t b = bucket_of(s, i, r);
                buckets[b] = (int32_t)((uint32_t)buckets[b] + (uint32_t)values[i]);
            }
}

void ina_sketch_peel(const struct ina_sketch *s, const uint32_t *order, const uint8_t *range, uint64_t peeled, int32_t *buckets,
                     int32_t *values)
{
    for (uint64_t k = 0; k < peeled; k++) {
        const uint32_t i = order[k];
        const int32_t value = buckets[bucket_of(s, i, range[i])];
        for (uint32_t r = 0; r < INA_SKETCH_RANGES; r++) {
            const uint32_t b = bucket_of(s, i, r);
            buckets[b] = (int32_t)((uint32_t)buckets[b] - (uint32_t)value);
        }
        values[i] = value;
    }
}
