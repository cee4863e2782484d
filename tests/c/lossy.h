/* What the tests of workers under sanitizers share: numbers that a seed repeats, tensors of three workers and their sums, and
 * frames of random and of nearly right bytes. */
#ifndef INA_TEST_LOSSY_H
#define INA_TEST_LOSSY_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol.h"

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            exit(1); \
        } \
    } while (0)

enum { WORKERS = 3, TENSORS = 24, MAX_QUEUE = 4096 };

static uint64_t seed = 88172645463325252ull;
static uint32_t draw(uint32_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 32) % below;
}

struct worker {
    void *state;
    struct ina_tensor tensors[INA_MAX_OPS];
    void *in[TENSORS], *out[TENSORS];
    uint32_t done;
};

/* Random bytes, or a real frame with a few bytes changed. */
static uint8_t *spoiled(const uint8_t *real, uint32_t real_len, uint32_t *len)
{
    *len = draw(2) ? draw(200) : draw(real_len + 1);
    uint8_t *bytes = malloc(*len ? *len : 1);
    for (uint32_t i = 0; i < *len; i++)
        bytes[i] = (uint8_t)draw(256);
    if (draw(2)) {
        memcpy(bytes, real, *len < real_len ? *len : real_len);
        for (uint32_t i = draw(4); *len && i--;)
            bytes[draw(*len)] = (uint8_t)draw(256);
    }
    return bytes;
}

/* `infinite`: some floats of worker 1 are. */
static void fill(struct worker *w, uint32_t rank, uint32_t t, uint32_t count, int is_float, int in_place, int infinite)
{
    w->in[t] = malloc(count ? 4 * count : 1);
    w->out[t] = in_place ? w->in[t] : malloc(count ? 4 * count : 1);
    for (uint32_t i = 0; i < count; i++) {
        if (is_float)
            ((float *)w->in[t])[i] = infinite && i % 200 == 77 && rank == 1 ? INFINITY : (float)(i % 100 + rank) / 4;
        else
            ((int32_t *)w->in[t])[i] = (int32_t)(i * 2654435761u * (rank + 1));
    }
}

static void check(const struct worker *w, uint32_t t, uint32_t count, int is_float, int infinite)
{
    for (uint32_t i = 0; i < count; i++) {
        if (is_float)
            CHECK(((const float *)w->out[t])[i] == (infinite && i % 200 == 77 ? INFINITY : (3.0f * (float)(i % 100) + 3) / 4));
        else
            CHECK(((const uint32_t *)w->out[t])[i] == i * 2654435761u * 6);
    }
}

static void forget(struct worker *workers)
{
    for (uint32_t i = 0; i < WORKERS; i++) {
        for (uint32_t t = 0; t < TENSORS; t++) {
            if (workers[i].out[t] != workers[i].in[t])
                free(workers[i].out[t]);
            free(workers[i].in[t]);
        }
        free(workers[i].state);
    }
}

#endif
