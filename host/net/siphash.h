/* SipHash-2-4 (Aumasson and Bernstein, INDOCRYPT 2012): a pseudo-random function of a key of 128 bits. */
#ifndef INA_SIPHASH_H
#define INA_SIPHASH_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline void ina_siphash_round(uint64_t v[4])
{
    v[0] += v[1], v[1] = v[1] << 13 | v[1] >> 51, v[1] ^= v[0], v[0] = v[0] << 32 | v[0] >> 32;
    v[2] += v[3], v[3] = v[3] << 16 | v[3] >> 48, v[3] ^= v[2];
    v[0] += v[3], v[3] = v[3] << 21 | v[3] >> 43, v[3] ^= v[0];
    v[2] += v[1], v[1] = v[1] << 17 | v[1] >> 47, v[1] ^= v[2], v[2] = v[2] << 32 | v[2] >> 32;
}

static inline void ina_siphash_begin(uint64_t v[4], const uint64_t key[2])
{
    v[0] = key[0] ^ 0x736f6d6570736575ull, v[1] = key[1] ^ 0x646f72616e646f6dull;
    v[2] = key[0] ^ 0x6c7967656e657261ull, v[3] = key[1] ^ 0x7465646279746573ull;
}

static inline void ina_siphash_word(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    ina_siphash_round(v), ina_siphash_round(v);
    v[0] ^= word;
}

static inline uint64_t ina_siphash_end(uint64_t v[4])
{
    v[2] ^= 0xff;
    for (int i = 0; i < 4; i++)
        ina_siphash_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* Of the 16 bytes of a and b, little endian. */
static inline uint64_t ina_siphash(const uint64_t key[2], uint64_t a, uint64_t b)
{
    uint64_t v[4];
    ina_siphash_begin(v, key);
    ina_siphash_word(v, a), ina_siphash_word(v, b), ina_siphash_word(v, 16ull << 56);
    return ina_siphash_end(v);
}

/* Of `length` bytes. */
static inline uint64_t ina_siphash_bytes(const uint64_t key[2], const uint8_t *bytes, uint32_t length)
{
    uint64_t v[4], word, last = 0;
    ina_siphash_begin(v, key);
    for (const uint8_t *end = bytes + (length & ~7u); bytes < end; bytes += 8) {
        memcpy(&word, bytes, 8);
        ina_siphash_word(v, le64toh(word));
    }
    memcpy(&last, bytes, length & 7);
    ina_siphash_word(v, le64toh(last) | (uint64_t)length << 56);
    return ina_siphash_end(v);
}

#endif
