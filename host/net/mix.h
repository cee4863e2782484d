/* SplitMix64's finaliser (Steele, Lea and Flood, OOPSLA'14): every bit of the input changes half of the output. */
#ifndef INA_MIX_H
#define INA_MIX_H

#include "kernel.h"

INA_KERNEL_PART uint64_t ina_mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

#endif
