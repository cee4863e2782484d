#include "siphash.h"

/* Each step of SipHash waits for the one before it, so one message leaves most of a processor idle. Eight messages beside each other
 * do not: lane n of `near` is of message n, lane n of `far` of message HALF + n.
 *
 * For processors with AVX2, which is looked for at each call: a clone of INA_KERNEL for those without it would take longer than
 * message by message, as their vectors have two words and no shuffle of bytes. */
enum { HALF = 4, LANES = 2 * HALF };

#if defined __x86_64__ && defined __GNUC__ && !defined INA_SIPHASH_PLAIN /* which tests define */
enum { WORTH = 5 /* messages: fewer take less time one by one */ };
#define AVX2 __attribute__((target("avx2")))
#define PART static inline __attribute__((always_inline, target("avx2")))

typedef uint64_t half __attribute__((vector_size(HALF * sizeof(uint64_t))));

struct state {
    half v0, v1, v2, v3;
};

PART half rotated(half x, int by)
{
    return x << by | x >> (64 - by);
}

/* By whole parts of a word: one shuffle in place of three operations, of which processors have but one or two shifts a cycle. Clang
 * finds it by itself. */
#ifndef __clang__
typedef uint32_t quarters __attribute__((vector_size(sizeof(half))));
typedef uint16_t eighths __attribute__((vector_size(sizeof(half))));

PART half rotated_32(half x)
{
    return (half)__builtin_shuffle((quarters)x, (quarters){1, 0, 3, 2, 5, 4, 7, 6});
}

PART half rotated_16(half x)
{
    return (half)__builtin_shuffle((eighths)x, (eighths){3, 0, 1, 2, 7, 4, 5, 6, 11, 8, 9, 10, 15, 12, 13, 14});
}
#else
PART half rotated_32(half x)
{
    return rotated(x, 32);
}

PART half rotated_16(half x)
{
    return rotated(x, 16);
}
#endif

PART void step(struct state *s) /* ina_siphash_round */
{
    s->v0 += s->v1, s->v1 = rotated(s->v1, 13) ^ s->v0, s->v0 = rotated_32(s->v0);
    s->v2 += s->v3, s->v3 = rotated_16(s->v3) ^ s->v2;
    s->v0 += s->v3, s->v3 = rotated(s->v3, 21) ^ s->v0;
    s->v2 += s->v1, s->v1 = rotated(s->v1, 17) ^ s->v2, s->v2 = rotated_32(s->v2);
}

PART void steps(struct state *near, struct state *far, int count)
{
    for (int i = 0; i < count; i++)
        step(near), step(far);
}

PART void begin(struct state *s, const uint64_t key[2])
{
    uint64_t v[4];
    const half zero = {0};
    ina_siphash_begin(v, key);
    s->v0 = zero + v[0], s->v1 = zero + v[1], s->v2 = zero + v[2], s->v3 = zero + v[3];
}

PART uint64_t word_at(const uint8_t *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return le64toh(word);
}

PART half words_at(const uint8_t *const bytes[HALF], uint32_t at)
{
    return (half){word_at(bytes[0] + at), word_at(bytes[1] + at), word_at(bytes[2] + at), word_at(bytes[3] + at)};
}

PART half lasts(const uint8_t *const bytes[HALF], uint32_t length)
{
    return (half){ina_siphash_last(bytes[0], length), ina_siphash_last(bytes[1], length), ina_siphash_last(bytes[2], length),
                  ina_siphash_last(bytes[3], length)};
}

/* LANES messages of one length. */
AVX2 static void beside(const uint64_t key[2], const uint8_t *const bytes[LANES], uint32_t length, uint64_t hashes[LANES])
{
    struct state near, far;
    begin(&near, key), begin(&far, key);
    for (uint32_t at = 0; at < (length & ~7u); at += 8) {
        const half a = words_at(bytes, at), b = words_at(bytes + HALF, at);
        near.v3 ^= a, far.v3 ^= b;
        steps(&near, &far, 2);
        near.v0 ^= a, far.v0 ^= b;
    }
    const half a = lasts(bytes, length), b = lasts(bytes + HALF, length);
    near.v3 ^= a, far.v3 ^= b;
    steps(&near, &far, 2);
    near.v0 ^= a, far.v0 ^= b;
    near.v2 ^= 0xff, far.v2 ^= 0xff;
    steps(&near, &far, 4);
    const half hash[2] = {near.v0 ^ near.v1 ^ near.v2 ^ near.v3, far.v0 ^ far.v1 ^ far.v2 ^ far.v3};
    memcpy(hashes, hash, sizeof hash);
}

static uint32_t worth(void)
{
    return __builtin_cpu_supports("avx2") ? WORTH : UINT32_MAX;
}
#else
static uint32_t worth(void)
{
    return UINT32_MAX;
}

static void beside(const uint64_t key[2], const uint8_t *const bytes[LANES], uint32_t length, uint64_t hashes[LANES])
{
    for (int lane = 0; lane < LANES; lane++)
        hashes[lane] = ina_siphash_bytes(key, bytes[lane], length);
}
#endif

void ina_siphash_all(const uint64_t key[2], const struct ina_siphash_message *messages, uint32_t n, uint64_t *hashes)
{
    const uint32_t least = worth();
    for (uint32_t i = 0, end; i < n; i = end) {
        const uint32_t length = messages[i].length;
        for (end = i + 1; end < n && end - i < LANES && messages[end].length == length; end++)
            ;
        if (end - i < least) {
            for (; i < end; i++)
                hashes[i] = ina_siphash_bytes(key, messages[i].bytes, length);
            continue;
        }
        const uint8_t *bytes[LANES];
        uint64_t results[LANES];
        for (uint32_t lane = 0; lane < LANES; lane++)
            bytes[lane] = messages[i + lane < end ? i + lane : i].bytes; /* lanes too many do the first again */
        beside(key, bytes, length, results);
        memcpy(hashes + i, results, (end - i) * sizeof *hashes);
    }
}
