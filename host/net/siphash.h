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

/* The last word of a message of `length` bytes: what its whole words leave, and the length. */
static inline uint64_t ina_siphash_last(const uint8_t *bytes, uint32_t length)
{
    uint64_t last = 0;
    memcpy(&last, bytes + (length & ~7u), length & 7);
    return le64toh(last) | (uint64_t)length << 56;
}

/* Of `length` bytes. */
static inline uint64_t ina_siphash_bytes(const uint64_t key[2], const uint8_t *bytes, uint32_t length)
{
    uint64_t v[4], word;
    ina_siphash_begin(v, key);
    for (uint32_t at = 0; at < (length & ~7u); at += 8) {
        memcpy(&word, bytes + at, 8);
        ina_siphash_word(v, le64toh(word));
    }
    ina_siphash_word(v, ina_siphash_last(bytes, length));
    return ina_siphash_end(v);
}

struct ina_siphash_message {
    const uint8_t *bytes;
    uint32_t length;
};

/* Of n messages (siphash.c). Those of one length that follow each other take a third of the time each. */
void ina_siphash_all(const uint64_t key[2], const struct ina_siphash_message *messages, uint32_t n, uint64_t *hashes);

#endif
