#include "tag.h"

#include <string.h>

#include "siphash.h"

enum { NUMBER = 8, WORD = 64 }; /* bytes of the number; bits of a word of the window */

void ina_tag_key(uint64_t key[2], const uint8_t bytes[INA_TAG_KEY])
{
    memcpy(key, bytes, INA_TAG_KEY);
    key[0] = le64toh(key[0]), key[1] = le64toh(key[1]);
}

void ina_tag_write(const uint64_t key[2], uint64_t number, uint8_t *payload, uint32_t length)
{
    const uint64_t sent = htobe64(number);
    memcpy(payload + length, &sent, NUMBER);
    const uint64_t tag = htobe64(ina_siphash_bytes(key, payload, length + NUMBER));
    memcpy(payload + length + NUMBER, &tag, sizeof tag);
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

enum ina_tag_verdict ina_tag_check(const uint64_t key[2], struct ina_tag_window *window, const uint8_t *payload, uint32_t length)
{
    uint64_t number, tag;
    if (length < INA_TAG_SIZE)
        return INA_TAG_FORGED;
    memcpy(&number, payload + length - INA_TAG_SIZE, NUMBER);
    memcpy(&tag, payload + length - sizeof tag, sizeof tag);
    /* One comparison of registers: it takes the same time whichever bits differ. */
    if (be64toh(tag) != ina_siphash_bytes(key, payload, length - (uint32_t)sizeof tag))
        return INA_TAG_FORGED;
    return take(window, be64toh(number)) ? INA_TAG_RIGHT : INA_TAG_REPLAYED;
}
