/* Lanes: what a value of a packet is. All packets of a job have values of one lane (struct ina_worker_config), and a switch program
 * is compiled for one (LANE, p4/include/size.p4). This table is the only place that says how wide one is: C asks it, and so does
 * Python (ina/aggregation/lane.py). How to add one: docs/design/architecture.md.
 *
 * A value is a big-endian integer. Integers whose dtype is the lane's travel as they are, floats in fixed point.
 */
#ifndef INA_LANE_H
#define INA_LANE_H

#include <stddef.h>
#include <stdint.h>

#include "kernel.h"

/* Elements of tensors. Floats of 16 bits are widened where they are read, travel as float32, and are rounded where they are written. */
enum ina_dtype { INA_INT32 = 0, INA_FLOAT32 = 1, INA_BFLOAT16 = 2, INA_FLOAT16 = 3, INA_DTYPES = 4 };
enum { INA_LANE_INT32 = 0, INA_LANES = 1 };        /* rows of the table */

struct ina_lane {
    uint32_t bits;       /* of a value: 8, 16 or 32 */
    uint32_t is_signed;  /* 1: two's complement */
    uint32_t dtype;      /* enum ina_dtype: integers of so many bits */
    uint32_t values;     /* how many a packet may have: powers of two with a size code (p4/include/size.p4), a bit for each */
};

const struct ina_lane *ina_lane_at(uint32_t lane); /* all of them in order, then NULL */
/* Fixed point: a float is a multiple of 2^(exponent - shift), at most 2^shift of them, so that the sums of all workers stay within
 * +-2^(bits - 2). A sum is wrong by half a unit for each worker. */
int ina_lane_shift(uint32_t lane, int workers);    /* bits - 2 - ceil(log2 workers) */
#ifndef INA_CDEF
static const struct ina_lane ina_lanes[INA_LANES] = {
    [INA_LANE_INT32] = {.bits = 32, .is_signed = 1, .dtype = INA_INT32, .values = 32 | 64 | 128 | 256 | 1024 | 2048},
};

static inline int ina_is_float(uint32_t dtype)
{
    return dtype - INA_FLOAT32 <= INA_FLOAT16 - INA_FLOAT32;
}

/* Bits of a value. The lane is there (ina_slots_valid, ina_ps_init); the compiler knows them while there is one. */
static inline uint32_t ina_lane_bits(uint32_t lane)
{
    if (lane >= INA_LANES)
        __builtin_unreachable();
    return ina_lanes[lane].bits;
}

/* 1: there is such a lane, and its packets may have so many values. */
static inline int ina_lane_holds(uint32_t lane, uint32_t values)
{
    return lane < INA_LANES && !(values & (values - 1)) && (ina_lanes[lane].values & values);
}

/* How a sum leaves the range: it wraps modulo 2^bits. Then the sign's bit of `*overflow` is set, and stays. */
INA_KERNEL_PART uint32_t ina_lane_sum(uint32_t a, uint32_t b, uint32_t *overflow)
{
    const uint32_t sum = a + b;
    *overflow |= (a ^ sum) & (b ^ sum); /* two operands of one sign, a sum of the other */
    return sum;
}

/* 1: a sum has left the range. */
static inline int ina_lane_overflown(uint32_t lane, uint32_t overflow)
{
    return (int)(overflow >> (ina_lane_bits(lane) - 1) & 1);
}

/* Calls `by` with a kernel, its lane as a constant, and what follows: one case for each row of the table. */
#define INA_BY_LANE(lane, by, kernel, ...)                                     \
    switch (lane) {                                                            \
    case INA_LANE_INT32: by(kernel, INA_LANE_INT32, __VA_ARGS__); break;       \
    default: __builtin_unreachable();                                          \
    }

/* Bytes of so many values on the wire, and of as many integers of the lane's dtype in memory. */
static inline size_t ina_lane_bytes(uint32_t lane, size_t values)
{
    return ina_lane_bits(lane) / 8 * values;
}
#endif

#endif
