/* One core, in memory: distinct packets of `workers` workers go through a switch, batch by batch, and every replica that
 * leaves is looked at. Compiled by bench/switch.py; the switch's functions come as pointers, so nothing is linked. */
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "switch.h"

enum { BATCH = 64, ROOM = 128 };

struct job {
    struct ina_switch *sw;
    void (*input)(struct ina_switch *, struct ina_packet *, unsigned, uint64_t);
    uint8_t *frames;          /* templates, one a worker and slot, `stride` apart, each at ROOM bytes */
    uint64_t stride;
    uint32_t length, workers, slots, values, rounds;
    uint64_t results, wrong;  /* replicas seen; replicas with a value that is not the sum */
    uint32_t expected;        /* of value 0 in round r: expected + workers * r */
    uint32_t round;
};

static uint32_t be32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return __builtin_bswap32(v);
}

/* Value i of worker w in round r is w + r + i; their sum is checked in every replica, in full. */
void check(void *context, uint16_t port, const struct ina_packet *pkt, uint64_t now)
{
    struct job *job = context;
    (void)port, (void)now;
    uint32_t base = job->expected + job->workers * job->round, bad = 0;
    const uint8_t *payload = pkt->data + 52;
    job->results++;
    if (pkt->len != job->length) {
        job->wrong++;
        return;
    }
    for (uint32_t i = 0; i < job->values; i++)
        bad |= be32(payload + 4 * i) ^ (base + job->workers * i);
    job->wrong += bad != 0;
}

/* Nanoseconds for workers * slots * rounds packets. The frames of a round are written before its clock starts. */
uint64_t run(struct job *job)
{
    uint64_t spent = 0;
    uint32_t count = job->workers * job->slots;
    for (uint32_t r = 0; r < job->rounds; r++) {
        job->round = r;
        for (uint32_t k = 0; k < count; k++) {
            uint8_t *frame = job->frames + k * job->stride + ROOM;
            uint32_t worker = k % job->workers, slot = k / job->workers;
            uint32_t tsi = __builtin_bswap32(r * job->slots + slot);
            uint16_t place = __builtin_bswap16((uint16_t)((r & 1) << 15 | slot));
            /* the switch may have turned the frame round: addresses from the template's own copy behind it */
            memcpy(frame, frame + job->length, 52);
            memcpy(frame + 44, &tsi, 4);
            memcpy(frame + 48, &place, 2);
            uint32_t *values = (uint32_t *)(void *)(frame + 52);
            for (uint32_t i = 0; i < job->values; i++)
                values[i] = __builtin_bswap32(worker + r + i);
        }
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        for (uint32_t k = 0; k < count; k += BATCH) {
            struct ina_packet pkts[BATCH];
            uint32_t n = count - k < BATCH ? count - k : BATCH;
            for (uint32_t j = 0; j < n; j++)
                pkts[j] = (struct ina_packet){.data = job->frames + (k + j) * job->stride + ROOM,
                                              .len = job->length,
                                              .wire_len = job->length,
                                              .headroom = ROOM,
                                              .tailroom = 52,
                                              .ingress_port = (uint16_t)((k + j) % job->workers)};
            job->input(job->sw, pkts, n, 1);
        }
        clock_gettime(CLOCK_MONOTONIC, &b);
        spent += (uint64_t)(b.tv_sec - a.tv_sec) * 1000000000u + (uint64_t)b.tv_nsec - (uint64_t)a.tv_nsec;
    }
    return spent;
}

/* The limit: what the hand-written inner loop alone costs, on the same bytes: add into a row, copy a sum out. */
uint64_t limit(struct job *job, uint32_t *rows, uint8_t *out)
{
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (uint32_t r = 0; r < job->rounds; r++)
        for (uint32_t k = 0; k < job->workers * job->slots; k++) {
            const uint32_t *values = (const uint32_t *)(const void *)(job->frames + k * job->stride + ROOM + 52);
            uint32_t *row = rows + (size_t)(k / job->workers) * job->values;
            if (k % job->workers == 0)
                for (uint32_t i = 0; i < job->values; i++)
                    row[i] = __builtin_bswap32(values[i]);
            else
                for (uint32_t i = 0; i < job->values; i++)
                    row[i] += __builtin_bswap32(values[i]);
            for (uint32_t i = 0; i < job->values; i++)
                ((uint32_t *)(void *)out)[i] = __builtin_bswap32(row[i]);
            __asm__ volatile("" ::: "memory");
        }
    clock_gettime(CLOCK_MONOTONIC, &b);
    return (uint64_t)(b.tv_sec - a.tv_sec) * 1000000000u + (uint64_t)b.tv_nsec - (uint64_t)a.tv_nsec;
}
