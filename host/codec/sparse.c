/* Sparse blocks: see sparse.h. */
#include "sparse.h"

#include <string.h>

#include "kernel.h"

/* All bits of the floats but their signs, or-ed. */
#define BITS(uint)                                                                      \
    INA_KERNEL static uint##_t bits_of_##uint(size_t count, const unsigned char *restrict x) \
    {                                                                                   \
        uint##_t bits = 0;                                                              \
        for (size_t i = 0; i < count; i++) {                                            \
            uint##_t one;                                                               \
            memcpy(&one, x + sizeof one * i, sizeof one);                               \
            bits |= one;                                                                \
        }                                                                               \
        return bits & (uint##_t)-1 >> 1;                                                \
    }

BITS(uint32)
BITS(uint64)

void ina_sparse_used(size_t count, uint32_t size, uint32_t block, const void *x, uint8_t *used)
{
    for (size_t at = 0; at < count; at += block, used++) {
        const size_t values = count - at < block ? count - at : block;
        const unsigned char *from = (const unsigned char *)x + at * size;
        *used = size == 4 ? bits_of_uint32(values, from) != 0 : bits_of_uint64(values, from) != 0;
    }
}
