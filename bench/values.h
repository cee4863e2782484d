/* Shared parts of the benchmarks of switches in memory: the values of their packets, in wire format, and the clock. */
#ifndef INA_BENCH_VALUES_H
#define INA_BENCH_VALUES_H

#include <stdint.h>
#include <string.h>
#include <time.h>

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

/* Returns the processor time of this thread, ps: other load does not count. */
static inline uint64_t cpu_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000000u + (uint64_t)t.tv_nsec * 1000u;
}

#endif
