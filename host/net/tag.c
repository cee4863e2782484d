#include "tag.h"

#include <string.h>

#include "siphash.h"

enum { NUMBER = 8, WORD = 64 }; /* bytes of the number; bits of a word of the window */
enum { BATCH = 64 };             /* payloads whose tags are made at once */

void ina_tag_key(uint64_t key[2], const uint8_t bytes[INA_TAG_KEY])
{
    memcpy(key, bytes, INA_TAG_KEY);
    key[0] = le64toh(key[0]), key[1] = le64toh(key[1]);
}

/* Writes numbers, from `number` on, and tags behind up to BATCH payloads. */
static void write_some(const uint64_t key[2], uint64_t number, const struct ina_tag_payload *payloads, uint32_t n)
{
    struct ina_siphash_message messages[BATCH] = {0};
    uint64_t tags[BATCH];
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t sent = htobe64(number + i);
        memcpy(payloads[i].bytes + payloads[i].length, &sent, NUMBER);
        messages[i] = (struct ina_siphash_message){payloads[i].bytes, payloads[i].length + NUMBER};
    }
    ina_siphash_all(key, messages, n, tags);
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t tag = htobe64(tags[i]);
        memcpy(payloads[i].bytes + payloads[i].length + NUMBER, &tag, sizeof tag);
    }
}

void ina_tag_write(const uint64_t key[2], uint64_t number, const struct ina_tag_payload *payloads, uint32_t n)
{
    for (uint32_t at = 0; at < n; at += BATCH)
        write_some(key, number + at, payloads + at, n - at < BATCH ? n - at : BATCH);
}

/* 1: the number was not taken before, and is now. */
static int take(struct ina_tag_window *w, uint64_t number)
{
    const uint64_t word = number / WORD, last = w->last / WORD, bit = 1ull << number % WORD;
    if (number > w->last) {
        const uint64_t ahead = word - last < INA_TAG_WORDS ? word - last : INA_TAG_WORDS;
        for (uint64_t i = 0; i < ahead; i++)
            w->seen[(word - i) % INA_TAG_WORDS] = 0;
        w->last = number;
    } else if (!number || last - word >= INA_TAG_WORDS) {
        return 0; /* too old to know */
    }
    uint64_t *seen = &w->seen[word % INA_TAG_WORDS];
    if (*seen & bit)
        return 0;
    *seen |= bit;
    return 1;
}

/* Checks up to BATCH payloads. */
static void check_some(const uint64_t key[2], struct ina_tag_window *window, const struct ina_tag_payload *payloads, uint32_t n,
                  uint8_t *verdicts)
{
    struct ina_siphash_message messages[BATCH] = {0};
    uint64_t tags[BATCH];
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t length = payloads[i].length;
        messages[i] = (struct ina_siphash_message){payloads[i].bytes, length < INA_TAG_SIZE ? 0 : length - (uint32_t)sizeof *tags};
    }
    ina_siphash_all(key, messages, n, tags);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t number, tag;
        verdicts[i] = INA_TAG_FORGED;
        if (payloads[i].length < INA_TAG_SIZE)
            continue;
        const uint8_t *end = payloads[i].bytes + payloads[i].length;
        memcpy(&number, end - INA_TAG_SIZE, NUMBER);
        memcpy(&tag, end - sizeof tag, sizeof tag);
        /* One comparison of registers: it takes the same time whichever bits differ. */
        if (be64toh(tag) == tags[i])
            verdicts[i] = take(window, be64toh(number)) ? INA_TAG_RIGHT : INA_TAG_REPLAYED;
    }
}

void ina_tag_check(const uint64_t key[2], struct ina_tag_window *window, const struct ina_tag_payload *payloads, uint32_t n,
                   uint8_t *verdicts)
{
    for (uint32_t at = 0; at < n; at += BATCH)
        check_some(key, window, payloads + at, n - at < BATCH ? n - at : BATCH, verdicts + at);
}
