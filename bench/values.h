/* Shared parts of the benchmarks of switches in memory: the values of their packets, in wire format, the clocks, and a switch's turn. */
#ifndef INA_BENCH_VALUES_H
#define INA_BENCH_VALUES_H

#include <stdint.h>
#include <string.h>
#include <time.h>

#include "port.h"

struct ina_switch;

/* Returns a value of packet `number`: every worker's values can be computed anywhere. */
static inline uint32_t value(uint32_t worker, uint32_t number, uint32_t k)
{
    return (number * 2654435761u + k * 40503u) ^ worker * 0x5bd1e995u;
}

static inline void store32(uint8_t *p, uint32_t v)
{
    v = __builtin_bswap32(v);
    memcpy(p, &v, 4);
}

static inline uint32_t load32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return __builtin_bswap32(v);
}

static inline void store_values(uint8_t *words, uint32_t worker, uint32_t number, uint32_t values)
{
    for (uint32_t k = 0; k < values; k++)
        store32(words + 4 * k, value(worker, number, k));
}

/* 1: the words are the sums of all workers' values of packet `number`. */
static inline int are_sums(const uint8_t *words, uint32_t workers, uint32_t number, uint32_t values)
{
    uint32_t diff = 0;
    for (uint32_t k = 0; k < values; k++) {
        uint32_t sum = 0;
        for (uint32_t w = 0; w < workers; w++)
            sum += value(w, number, k);
        diff |= sum ^ load32(words + 4 * k);
    }
    return !diff;
}

static inline uint64_t clock_time(clockid_t clock) /* ps */
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000000u + (uint64_t)t.tv_nsec * 1000u;
}

/* Returns the processor time of this thread, ps: other load does not count. */
static inline uint64_t cpu_time(void)
{
    return clock_time(CLOCK_THREAD_CPUTIME_ID);
}

/* A switch works off what lies in its ports first .. last. Returns the number of frames. */
static inline uint64_t work_off(struct ina_switch *sw, void (*input)(struct ina_switch *, struct ina_packet *, unsigned, uint64_t),
                                struct ina_port *const *ports, uint32_t first, uint32_t last, uint32_t batch, uint64_t now)
{
    uint64_t packets = 0;
    for (unsigned busy = 1; busy;) {
        busy = 0;
        for (uint32_t w = first; w <= last; w++) {
            struct ina_packet pkts[64];
            const int n = ports[w]->ops->rx(ports[w], pkts, (int)batch, now);
            if (n <= 0)
                continue;
            for (int i = 0; i < n; i++)
                pkts[i].ingress_port = (uint16_t)w;
            input(sw, pkts, (unsigned)n, now);
            ports[w]->ops->rx_done(ports[w], n);
            packets += (uint64_t)n;
            busy = 1;
        }
    }
    return packets;
}

#endif
