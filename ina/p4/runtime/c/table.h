/* Table images: immutable; built by the control plane, read by compiled programs through the inline lookups here.
 *
 * A key is an array of 64-bit words: each key field takes ceil(width / 64) words, least significant word first.
 * An entry's parameters likewise, in declaration order. Layout JSON of the program names widths and offsets.
 *
 * In tables whose keys are all exact, fields share words: each begins at the bit that the layout calls `shift`.
 *
 *   image:  struct ina_table | buckets (uint32) | entries | groups of an action selector
 *   entry:  struct ina_entry | key words | mask words (ternary, lpm, range: high bounds) | parameter words
 *   group:  for each member: action | parameter words
 *
 * An entry whose action is INA_ACTION_GROUP runs one member of a group: its first parameter word is the group's place
 * in 64-bit words from the image's start (low half) and its number of members (high half). Members of action profiles
 * outside of groups are plain entries. A parser's value set is a table whose entries have no action.
 */
#ifndef INA_TABLE_H
#define INA_TABLE_H

#include <stdint.h>

enum { INA_ACTION_GROUP = 0x7fffffff };
enum ina_match { INA_MATCH_EXACT = 0, INA_MATCH_TERNARY = 1, INA_MATCH_RANGE = 2 }; /* lpm is ternary, longest first */

struct ina_entry {
    uint32_t action;   /* index into the table's action list, as in the program's layout */
    uint32_t id;       /* control-plane handle: direct counters, idle time-out */
    uint64_t words[];  /* key, mask (if not exact), parameters */
};

struct ina_table {
    uint32_t kind;         /* INA_MATCH_EXACT if every key is exact, else INA_MATCH_TERNARY or _RANGE for the table */
    uint32_t key_words;
    uint32_t param_offset; /* word index of the first parameter within ina_entry.words */
    uint32_t entry_bytes;  /* stride */
    uint32_t entries;
    uint32_t bucket_mask;  /* exact: buckets - 1 (power of two, open addressing, ~0u empty) */
    uint32_t default_action;
    uint32_t reserved;
    uint64_t range_words;  /* bit i: key word i is a range (value..mask as low..high), else value/mask */
    uint64_t default_params[64];
    /* uint32_t bucket[bucket_mask + 1] (exact only, at least one empty): where the entry lies, in bytes from here; padded to 8 bytes. Then
     * entries, highest priority first. */
};

struct ina_tables {
    uint32_t count;
    uint32_t reserved;
    const struct ina_table *table[];
};

#ifndef INA_CDEF
_Static_assert(sizeof(struct ina_entry) == 8, "ina_entry");
_Static_assert(sizeof(struct ina_table) == 40 + 64 * 8, "ina_table");

static inline uint64_t ina_key_hash(const uint64_t *key, uint32_t words)
{
    uint64_t h = 0;
    for (uint32_t i = 0; i < words; i += 2) { /* two words in one multiplication, both halves of the product */
        uint64_t other = i + 1 < words ? key[i + 1] : 0;
        unsigned __int128 product = (unsigned __int128)(key[i] ^ 0x9e3779b97f4a7c15u) * (other ^ 0xff51afd7ed558ccdu);
        h = (h << 23 | h >> 41) ^ (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    return h;
}

static inline const uint32_t *ina_table_buckets(const struct ina_table *t)
{
    return (const uint32_t *)(t + 1);
}

static inline const struct ina_entry *ina_table_at(const struct ina_table *t, uint32_t bytes)
{
    return (const struct ina_entry *)((const uint8_t *)(t + 1) + bytes);
}

/* The entry that matches, or NULL (then default_action, default_params apply). Tables are never NULL. */
static inline const struct ina_entry *ina_table_lookup(const struct ina_table *t, const uint64_t *key)
{
    if (t->kind == INA_MATCH_EXACT) {
        const uint32_t *bucket = ina_table_buckets(t);
        for (uint64_t b = ina_key_hash(key, t->key_words) & t->bucket_mask; bucket[b] != ~0u; b = (b + 1) & t->bucket_mask) {
            const struct ina_entry *e = ina_table_at(t, bucket[b]);
            uint64_t diff = 0;
            for (uint32_t w = 0; w < t->key_words; w++)
                diff |= e->words[w] ^ key[w];
            if (!diff)
                return e;
        }
        return 0;
    }
    for (uint32_t i = 0; i < t->entries; i++) {
        const struct ina_entry *e = ina_table_at(t, i * t->entry_bytes);
        uint32_t w = 0;
        for (; w < t->key_words; w++) {
            uint64_t value = e->words[w], mask = e->words[t->key_words + w];
            if ((w < 64 && t->range_words >> w & 1) ? key[w] < value || key[w] > mask : (key[w] ^ value) & mask)
                break;
        }
        if (w == t->key_words)
            return e;
    }
    return 0;
}

/* The member that `hash` chooses from the entry's group: its action, then its parameters. NULL: the group is empty. */
static inline const uint64_t *ina_table_member(const struct ina_table *t, const struct ina_entry *e, uint64_t hash)
{
    uint64_t group = e->words[t->param_offset], members = group >> 32;
    uint32_t member_words = t->entry_bytes / 8 - t->param_offset; /* an entry's first word goes to the action here */
    return members ? (const uint64_t *)t + (uint32_t)group + hash % members * member_words : 0;
}
#endif

#endif
