/* SipHash-2-4 (Aumasson and Bernstein, INDOCRYPT 2012) of messages of two words: a pseudo-random function of a key of 128 bits. */
#ifndef INA_SIPHASH_H
#define INA_SIPHASH_H

#include <stdint.h>

static inline void ina_siphash_round(uint64_t v[4])
{
    v[0] += v[1], v[1] = v[1] << 13 | v[1] >> 51, v[1] ^= v[0], v[0] = v[0] << 32 | v[0] >> 32;
    v[2] += v[3], v[3] = v[3] << 16 | v[3] >> 48, v[3] ^= v[2];
    v[0] += v[3], v[3] = v[3] << 21 | v[3] >> 43, v[3] ^= v[0];
    v[2] += v[1], v[1] = v[1] << 17 | v[1] >> 47, v[1] ^= v[2], v[2] = v[2] << 32 | v[2] >> 32;
}

/* Of the 16 bytes of a and b, little endian. */
static inline uint64_t ina_siphash(const uint64_t key[2], uint64_t a, uint64_t b)
{
    const uint64_t words[] = {a, b, 16ull << 56};
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575ull, key[1] ^ 0x646f72616e646f6dull,
                     key[0] ^ 0x6c7967656e657261ull, key[1] ^ 0x7465646279746573ull};
    for (int i = 0; i < 3; i++) {
        v[3] ^= words[i];
        ina_siphash_round(v), ina_siphash_round(v);
        v[0] ^= words[i];
    }
    v[2] ^= 0xff;
    for (int i = 0; i < 4; i++)
        ina_siphash_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

#endif
