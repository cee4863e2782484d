/* What the harnesses share: taking numbers out of an input, buffers of exact size, and saying what is broken.
 *
 * An input is a sequence of operations, and numbers that are missing at its end are 0: every prefix of an input is one. */
#ifndef INA_FUZZ_H
#define INA_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "broken: %s:%d: %s\n", __FILE__, __LINE__, #condition); \
            abort(); \
        } \
    } while (0)

struct input {
    const uint8_t *at, *end;
};

static inline uint64_t take(struct input *in, unsigned bytes)
{
    uint64_t value = 0;
    for (; bytes && in->at != in->end; bytes--)
        value = value << 8 | *in->at++;
    return value;
}

/* A number below `below`. */
static inline uint32_t choose(struct input *in, uint32_t below)
{
    return (uint32_t)(take(in, below > 256 ? 2 : 1) % below);
}

/* Memory that ends where the sanitizer notices: also of 0 bytes. */
static inline void *exactly(size_t bytes)
{
    void *p = malloc(bytes);
    CHECK(p);
    return p;
}

static inline void *aligned(size_t bytes)
{
    void *p = NULL;
    CHECK(!posix_memalign(&p, 64, bytes ? bytes : 1));
    return p;
}

/* Overwrites up to 7 stretches of `bytes`, each of up to 8 bytes, at places that the input says. */
static inline void edit(struct input *in, uint8_t *bytes, uint32_t len)
{
    for (uint32_t edits = choose(in, 8); edits && len; edits--) {
        const uint32_t at = choose(in, len);
        uint32_t n = 1 + choose(in, 8);
        for (n = n < len - at ? n : len - at; n; n--)
            bytes[at + n - 1] = (uint8_t)take(in, 1);
    }
}

/* Reads every byte, so that the sanitizer has seen them all. */
static inline void touch(const uint8_t *bytes, size_t n)
{
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum = (uint8_t)(sum + bytes[i]);
}

#endif
