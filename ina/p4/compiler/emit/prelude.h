/* Support of compiled programs: pasted into each of them, so that their C text is complete but for the public headers. */
#include <string.h>

/* Programs may set variables that they never read. */
#pragma GCC diagnostic ignored "-Wunused-variable"
#pragma GCC diagnostic ignored "-Wunused-but-set-variable"

typedef unsigned __int128 ina_u128;
typedef uint16_t ina_u16 __attribute__((aligned(1), may_alias));
typedef uint32_t ina_u32 __attribute__((aligned(1), may_alias));
typedef uint64_t ina_u64 __attribute__((aligned(1), may_alias));
typedef uint16_t ina_r16 __attribute__((may_alias)); /* register cells: aligned */
typedef uint32_t ina_r32 __attribute__((may_alias));
typedef uint64_t ina_r64 __attribute__((may_alias));
typedef ina_u128 ina_r128 __attribute__((aligned(8), may_alias));
#define INA_INLINE static inline __attribute__((always_inline, unused))
#define ina_likely(x) __builtin_expect(!!(x), 1)
#define ina_unlikely(x) __builtin_expect(!!(x), 0)

INA_INLINE uint32_t ina_load8(const uint8_t *p) { return *p; }
INA_INLINE uint32_t ina_load16(const uint8_t *p) { return __builtin_bswap16(*(const ina_u16 *)p); }
INA_INLINE uint32_t ina_load32(const uint8_t *p) { return __builtin_bswap32(*(const ina_u32 *)p); }
INA_INLINE uint64_t ina_load64(const uint8_t *p) { return __builtin_bswap64(*(const ina_u64 *)p); }
INA_INLINE void ina_store8(uint8_t *p, uint32_t v) { *p = (uint8_t)v; }
INA_INLINE void ina_store16(uint8_t *p, uint32_t v) { *(ina_u16 *)p = __builtin_bswap16((uint16_t)v); }
INA_INLINE void ina_store32(uint8_t *p, uint32_t v) { *(ina_u32 *)p = __builtin_bswap32(v); }
INA_INLINE void ina_store64(uint8_t *p, uint64_t v) { *(ina_u64 *)p = __builtin_bswap64(v); }

/* n <= 8 big-endian bytes; n is a constant. */
INA_INLINE uint64_t ina_load(const uint8_t *p, unsigned n)
{
    switch (n) {
    case 1: return ina_load8(p);
    case 2: return ina_load16(p);
    case 3: return (uint64_t)ina_load16(p) << 8 | p[2];
    case 4: return ina_load32(p);
    case 5: return (uint64_t)ina_load32(p) << 8 | p[4];
    case 6: return (uint64_t)ina_load32(p) << 16 | ina_load16(p + 4);
    case 7: return (uint64_t)ina_load32(p) << 24 | (uint64_t)ina_load16(p + 4) << 8 | p[6];
    default: return ina_load64(p);
    }
}

INA_INLINE ina_u128 ina_load_wide(const uint8_t *p, unsigned n)
{
    return (ina_u128)ina_load(p, n - 8) << 64 | ina_load64(p + n - 8);
}

INA_INLINE void ina_store(uint8_t *p, unsigned n, uint64_t v)
{
    switch (n) {
    case 1: ina_store8(p, (uint32_t)v); break;
    case 2: ina_store16(p, (uint32_t)v); break;
    case 3: ina_store16(p, (uint32_t)(v >> 8)); p[2] = (uint8_t)v; break;
    case 4: ina_store32(p, (uint32_t)v); break;
    case 5: ina_store32(p, (uint32_t)(v >> 8)); p[4] = (uint8_t)v; break;
    case 6: ina_store32(p, (uint32_t)(v >> 16)); ina_store16(p + 4, (uint32_t)v); break;
    case 7: ina_store32(p, (uint32_t)(v >> 24)); ina_store16(p + 4, (uint32_t)(v >> 8)); p[6] = (uint8_t)v; break;
    default: ina_store64(p, v);
    }
}

INA_INLINE void ina_store_wide(uint8_t *p, unsigned n, ina_u128 v)
{
    ina_store(p, n - 8, (uint64_t)(v >> 64));
    ina_store64(p + n - 8, (uint64_t)v);
}

/* Saturating arithmetic on `w` bits, values as bit patterns. */
INA_INLINE ina_u128 ina_mask(unsigned w) { return w >= 128 ? ~(ina_u128)0 : ((ina_u128)1 << w) - 1; }
INA_INLINE uint32_t ina_satadd_u32(uint32_t a, uint32_t b) { uint32_t s = a + b; return s < a ? ~0u : s; }
INA_INLINE uint32_t ina_satsub_u32(uint32_t a, uint32_t b) { return a < b ? 0 : a - b; }
INA_INLINE uint32_t ina_satadd_s32(uint32_t a, uint32_t b)
{
    uint32_t s = a + b, limit = 0x7fffffffu + (a >> 31);
    return (int32_t)((a ^ s) & (b ^ s)) < 0 ? limit : s;
}
INA_INLINE uint32_t ina_satsub_s32(uint32_t a, uint32_t b)
{
    uint32_t s = a - b, limit = 0x7fffffffu + (a >> 31);
    return (int32_t)((a ^ b) & (a ^ s)) < 0 ? limit : s;
}
INA_INLINE ina_u128 ina_satadd_u(ina_u128 a, ina_u128 b, unsigned w)
{
    ina_u128 s = a + b;
    return s < a || s > ina_mask(w) ? ina_mask(w) : s;
}
INA_INLINE ina_u128 ina_satsub_u(ina_u128 a, ina_u128 b) { return a < b ? 0 : a - b; }
INA_INLINE ina_u128 ina_saturate(ina_u128 a, ina_u128 s, ina_u128 overflow, unsigned w)
{
    ina_u128 limit = (ina_mask(w) >> 1) + (a >> (w - 1) & 1);
    return overflow >> (w - 1) & 1 ? limit : s & ina_mask(w);
}
INA_INLINE ina_u128 ina_satadd_s(ina_u128 a, ina_u128 b, unsigned w)
{
    ina_u128 s = a + b;
    return ina_saturate(a, s, (a ^ s) & (b ^ s), w);
}
INA_INLINE ina_u128 ina_satsub_s(ina_u128 a, ina_u128 b, unsigned w)
{
    ina_u128 s = a - b;
    return ina_saturate(a, s, (a ^ b) & (a ^ s), w);
}

/* ina_table_lookup for a constant number of key words. */
INA_INLINE const struct ina_entry *ina_lookup_exact(const struct ina_table *t, const uint64_t *key, uint32_t words)
{
    const uint32_t *bucket = ina_table_buckets(t);
    for (uint64_t b = ina_key_hash(key, words) & t->bucket_mask; bucket[b] != ~0u; b = (b + 1) & t->bucket_mask) {
        const struct ina_entry *e = ina_table_at(t, bucket[b]);
        uint64_t diff = 0;
        for (uint32_t w = 0; w < words; w++)
            diff |= e->words[w] ^ key[w];
        if (!diff)
            return e;
    }
    return 0;
}

/* The same, but tries *found first: the previous packet's entry in the same table, or NULL. */
INA_INLINE const struct ina_entry *ina_lookup_again(const struct ina_table *t, const uint64_t *key, uint32_t words,
    const struct ina_entry **found)
{
    const struct ina_entry *const e = *found;
    if (ina_likely(e != 0)) {
        uint64_t diff = 0;
        for (uint32_t w = 0; w < words; w++)
            diff |= e->words[w] ^ key[w];
        if (ina_likely(!diff))
            return e;
    }
    return *found = ina_lookup_exact(t, key, words);
}

/* The Internet checksum; sums can be continued. */
static inline __attribute__((unused)) uint64_t ina_csum_add(uint64_t sum, const uint8_t *p, uint64_t n)
{
    for (; n >= 4; n -= 4, p += 4)
        sum += ina_load32(p);
    if (n >= 2) {
        sum += ina_load16(p);
        n -= 2, p += 2;
    }
    return n ? sum + ((uint64_t)*p << 8) : sum;
}

INA_INLINE uint32_t ina_csum_fold(uint64_t sum)
{
    sum += sum << 32 | sum >> 32; /* the upper half of x + (its halves exchanged) is their sum with the carry added */
    uint32_t half = (uint32_t)(sum >> 32);
    half += half << 16 | half >> 16;
    return ~half >> 16;
}

/* Two rates, three colours, colour-blind (RFC 2698 section 3). Rates in units per second, bursts and tokens in units. */
struct ina_meter {
    uint64_t configured; /* 0: everything is green */
    double peak_rate, peak_burst, committed_rate, committed_burst, peak_tokens, committed_tokens;
    uint64_t last; /* ps */
} __attribute__((may_alias));
_Static_assert(sizeof(struct ina_meter) == 64, "ina_meter");

static inline __attribute__((unused)) uint32_t ina_meter(struct ina_meter *m, double amount, uint64_t now)
{
    enum { GREEN, YELLOW, RED };
    if (!m->configured)
        return GREEN;
    double elapsed = (double)(now > m->last ? now - m->last : 0) / 1e12;
    m->last = now > m->last ? now : m->last;
    m->peak_tokens += elapsed * m->peak_rate;
    if (m->peak_tokens > m->peak_burst)
        m->peak_tokens = m->peak_burst;
    m->committed_tokens += elapsed * m->committed_rate;
    if (m->committed_tokens > m->committed_burst)
        m->committed_tokens = m->committed_burst;
    if (m->peak_tokens < amount)
        return RED;
    m->peak_tokens -= amount;
    if (m->committed_tokens < amount)
        return YELLOW;
    m->committed_tokens -= amount;
    return GREEN;
}

/* Hashes of `n` bytes and then `m` more (the payload), as BMv2 computes them. */
static inline __attribute__((unused)) uint32_t ina_crc(uint32_t crc, uint32_t polynomial, const uint8_t *p, uint64_t n)
{
    for (; n; n--) {
        crc ^= *p++;
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (polynomial & -(crc & 1));
    }
    return crc;
}

INA_INLINE uint32_t ina_hash_crc32(const uint8_t *p, uint64_t n, const uint8_t *q, uint64_t m)
{
    return ~ina_crc(ina_crc(0xffffffffu, 0xedb88320u, p, n), 0xedb88320u, q, m);
}

INA_INLINE uint32_t ina_hash_crc16(const uint8_t *p, uint64_t n, const uint8_t *q, uint64_t m)
{
    return ina_crc(ina_crc(0, 0xa001u, p, n), 0xa001u, q, m);
}

INA_INLINE uint32_t ina_hash_csum16(const uint8_t *p, uint64_t n, const uint8_t *q, uint64_t m)
{
    uint64_t sum = ina_csum_add(0, p, n);
    if (n % 2 && m)
        sum += *q++, m--; /* the other half of the last word */
    return ina_csum_fold(ina_csum_add(sum, q, m));
}

INA_INLINE uint32_t ina_hash_xor16(const uint8_t *p, uint64_t n, const uint8_t *q, uint64_t m)
{
    uint32_t x = 0;
    for (uint64_t i = 0; i < n + m; i++)
        x ^= (uint32_t)(i < n ? p[i] : q[i - n]) << (i % 2 ? 0 : 8);
    return x;
}

INA_INLINE uint64_t ina_hash_identity(const uint8_t *p, uint64_t n, const uint8_t *q, uint64_t m)
{
    uint64_t v = 0;
    for (uint64_t i = 0; i < n + m && i < 8; i++)
        v = v << 8 | (i < n ? p[i] : q[i - n]);
    return v;
}

/* low + the high half of SplitMix64's next number times the size of low .. high. */
static inline __attribute__((unused)) uint64_t ina_random(uint64_t *seed, uint64_t low, uint64_t range)
{
    uint64_t z = (*seed += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return low + (range ? (uint64_t)((ina_u128)z * range >> 64) : z);
}
