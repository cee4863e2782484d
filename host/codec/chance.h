/* Random numbers that follow from (seed, place): every result is the same on every processor. */
#ifndef INA_CHANCE_H
#define INA_CHANCE_H

#include <stdint.h>

#include "mix.h"

/* SplitMix64. */
INA_KERNEL_PART uint64_t mixed(uint64_t x)
{
    return ina_mix(x + 0x9e3779b97f4a7c15);
}

/* In [0, 1), of 24 bits: the last step of MurmurHash3. */
INA_KERNEL_PART float chance_of(uint32_t seed, uint32_t place)
{
    uint32_t x = place * 0x9e3779b9 + seed;
    x = (x ^ x >> 16) * 0x85ebca6b;
    x = (x ^ x >> 13) * 0xc2b2ae35;
    x ^= x >> 16;
    return (float)(int32_t)(x >> 8) * 0x1p-24f;
}

#endif
