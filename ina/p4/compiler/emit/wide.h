/* Values of more than 128 bits: structs of 64-bit words, least significant first; bits above the width are zero.
 * INA_WIDE(n) defines the type of n words and what compiled programs do with it. */
INA_INLINE void ina_put_bits(uint8_t *p, uint64_t at, const uint64_t *w, uint64_t width)
{ /* into zeroed bytes, most significant bit first, from bit `at` on */
    while (width) {
        unsigned room = 8 - (unsigned)(at % 8), take = width < room ? (unsigned)width : room;
        width -= take;
        unsigned shift = (unsigned)(width % 64);
        uint64_t piece = w[width / 64] >> shift;
        if (shift + take > 64)
            piece |= w[width / 64 + 1] << (64 - shift);
        p[at / 8] |= (uint8_t)((piece & ((1u << take) - 1)) << (room - take));
        at += take;
    }
}

INA_INLINE void ina_put64(uint8_t *p, uint64_t at, uint64_t value, uint64_t width)
{
    ina_put_bits(p, at, &value, width);
}

INA_INLINE void ina_get_bits(uint64_t *w, const uint8_t *p, uint64_t at, uint64_t width)
{ /* into zeroed words */
    while (width) {
        unsigned room = 8 - (unsigned)(at % 8), take = width < room ? (unsigned)width : room;
        width -= take;
        unsigned shift = (unsigned)(width % 64);
        uint64_t piece = (uint64_t)(p[at / 8] >> (room - take)) & ((1u << take) - 1);
        w[width / 64] |= piece << shift;
        if (shift + take > 64)
            w[width / 64 + 1] |= piece >> (64 - shift);
        at += take;
    }
}

INA_INLINE void ina_wide_divide(uint64_t *quotient, uint64_t *rest, const uint64_t *a, const uint64_t *b, unsigned n)
{ /* bit by bit; quotient and rest are zeroed; by zero: both stay zero, as in the narrow case */
    uint64_t any = 0;
    for (unsigned i = 0; i < n; i++)
        any |= b[i];
    for (unsigned bit = any ? 64 * n : 0; bit-- > 0;) {
        uint64_t carry = a[bit / 64] >> bit % 64 & 1, out = rest[n - 1] >> 63;
        for (unsigned i = 0; i < n; i++) {
            uint64_t next = rest[i] >> 63;
            rest[i] = rest[i] << 1 | carry;
            carry = next;
        }
        unsigned i = n;
        while (!out && i > 0 && rest[i - 1] == b[i - 1])
            i--;
        if (out || !i || rest[i - 1] > b[i - 1]) {
            uint64_t borrow = 0;
            for (unsigned k = 0; k < n; k++) {
                ina_u128 d = (ina_u128)rest[k] - b[k] - borrow;
                rest[k] = (uint64_t)d;
                borrow = (uint64_t)(d >> 64) & 1;
            }
            quotient[bit / 64] |= 1ull << bit % 64;
        }
    }
}

#define INA_WIDE_EACH(n, name, expression)                                                                             \
    INA_INLINE ina_w##n ina_w##n##_##name(ina_w##n a, ina_w##n b)                                                      \
    {                                                                                                                  \
        for (unsigned i = 0; i < n; i++)                                                                               \
            a.w[i] = expression;                                                                                       \
        return a;                                                                                                      \
    }

#define INA_WIDE(n)                                                                                                    \
    typedef struct {                                                                                                   \
        uint64_t w[n];                                                                                                 \
    } __attribute__((may_alias)) ina_w##n;                                                                             \
    typedef ina_w##n ina_rw##n;                                                                                        \
    INA_WIDE_EACH(n, and, a.w[i] & b.w[i])                                                                             \
    INA_WIDE_EACH(n, or, a.w[i] | b.w[i])                                                                              \
    INA_WIDE_EACH(n, xor, a.w[i] ^ b.w[i])                                                                             \
    INA_INLINE ina_w##n ina_w##n##_not(ina_w##n a)                                                                     \
    {                                                                                                                  \
        for (unsigned i = 0; i < n; i++)                                                                               \
            a.w[i] = ~a.w[i];                                                                                          \
        return a;                                                                                                      \
    }                                                                                                                  \
    INA_INLINE ina_w##n ina_w##n##_from(const uint64_t *p, unsigned words)                                             \
    {                                                                                                                  \
        ina_w##n r = {{0}};                                                                                            \
        for (unsigned i = 0; i < n && i < words; i++)                                                                  \
            r.w[i] = p[i];                                                                                             \
        return r;                                                                                                      \
    }                                                                                                                  \
    INA_INLINE ina_w##n ina_w##n##_of(ina_u128 v)                                                                      \
    {                                                                                                                  \
        return (ina_w##n){{(uint64_t)v, (uint64_t)(v >> 64)}};                                                         \
    }                                                                                                                  \
    INA_INLINE ina_u128 ina_w##n##_low(ina_w##n a)                                                                     \
    {                                                                                                                  \
        return (ina_u128)a.w[1] << 64 | a.w[0];                                                                        \
    }                                                                                                                  \
    INA_INLINE ina_w##n ina_w##n##_mask(ina_w##n a, unsigned width)                                                    \
    {                                                                                                                  \
        for (unsigned i = 0; i < n; i++)                                                                               \
            a.w[i] &= width >= 64 * (i + 1) ? ~0ull : width <= 64 * i ? 0 : (1ull << (width - 64 * i)) - 1;            \
        return a;                                                                                                      \
    }                                                                                                                  \
    INA_INLINE uint32_t ina_w##n##_bit(ina_w##n a, unsigned bit)                                                       \
    {                                                                                                                  \
        return (uint32_t)(a.w[bit / 64] >> bit % 64 & 1);                                                              \
    }                                                                                                                  \
    INA_INLINE ina_w##n ina_w##n##_extend(ina_w##n a, unsigned width)                                                  \
    { /* the sign of a value of `width` bits, upwards */                                                               \
        if (ina_w##n##_bit(a, width - 1))                                                                              \
            a = ina_w##n##_or(a, ina_w##n##_not(ina_w##n##_mask(ina_w##n##_not((ina_w##n){{0}}), width)));             \
        return a;                                                                                                      \
    }                                                                                                                  \
    INA_INLINE ina_w##n ina_w##n##_add(ina_w##n a, ina_w##n b)                                                         \
    {                                                                                                                  \
        ina_u128 sum = 0;                                                                                              \
        for (unsigned i = 0; i < n; i++) {                                                                             \
            sum += (ina_u128)a.w[i] + b.w[i];                                                                          \
            a.w[i] = (uint64_t)sum;                                                                                    \
            sum >>= 64;                                                                                                \
        }                                                                                                              \
        return a;                                                                                                      \
    }                                                                                                                  \
    INA_INLINE ina_w##n ina_w##n##_sub(ina_w##n a, ina_w##n b)                                                         \
    {                                                                                                                  \
        return ina_w##n##_add(ina_w##n##_add(a, ina_w##n##_not(b)), ina_w##n##_of(1));                                 \
    }                                                                                                                  \
    INA_INLINE ina_w##n ina_w##n##_mul(ina_w##n a, ina_w##n b)                                                         \
    {                                                                                                                  \
        ina_w##n r = {{0}};                                                                                            \
        for (unsigned i = 0; i < n; i++) {                                                                             \
            uint64_t carry = 0;                                                                                        \
            for (unsigned k = 0; i + k < n; k++) {                                                                     \
                ina_u128 t = (ina_u128)a.w[i] * b.w[k] + r.w[i + k] + carry;                                           \
                r.w[i + k] = (uint64_t)t;                                                                              \
                carry = (uint64_t)(t >> 64);                                                                           \
            }                                                                                                          \
        }                                                                                                              \
        return r;                                                                                                      \
    }                                                                                                                  \
    INA_INLINE ina_w##n ina_w##n##_div(ina_w##n a, ina_w##n b)                                                         \
    {                                                                                                                  \
        ina_w##n q = {{0}}, r = {{0}};                                                                                 \
        ina_wide_divide(q.w, r.w, a.w, b.w, n);                                                                        \
        return q;                                                                                                      \
    }                                                                                                                  \
    INA_INLINE ina_w##n ina_w##n##_mod(ina_w##n a, ina_w##n b)                                                         \
    {                                                                                                                  \
        ina_w##n q = {{0}}, r = {{0}};                                                                                 \
        ina_wide_divide(q.w, r.w, a.w, b.w, n);                                                                        \
        return r;                                                                                                      \
    }                                                                                                                  \
    INA_INLINE uint32_t ina_w##n##_eq(ina_w##n a, ina_w##n b)                                                          \
    {                                                                                                                  \
        uint64_t diff = 0;                                                                                             \
        for (unsigned i = 0; i < n; i++)                                                                               \
            diff |= a.w[i] ^ b.w[i];                                                                                   \
        return !diff;                                                                                                  \
    }                                                                                                                  \
    INA_INLINE uint32_t ina_w##n##_ult(ina_w##n a, ina_w##n b)                                                         \
    {                                                                                                                  \
        for (unsigned i = n; i-- > 0;)                                                                                 \
            if (a.w[i] != b.w[i])                                                                                      \
                return a.w[i] < b.w[i];                                                                                \
        return 0;                                                                                                      \
    }                                                                                                                  \
    INA_INLINE uint32_t ina_w##n##_slt(ina_w##n a, ina_w##n b, unsigned width)                                         \
    {                                                                                                                  \
        uint32_t x = ina_w##n##_bit(a, width - 1), y = ina_w##n##_bit(b, width - 1);                                   \
        return x != y ? x : ina_w##n##_ult(a, b);                                                                      \
    }                                                                                                                  \
    INA_INLINE ina_w##n ina_w##n##_shl(ina_w##n a, uint64_t by)                                                        \
    {                                                                                                                  \
        ina_w##n r = {{0}};                                                                                            \
        for (uint64_t i = by / 64; i < n; i++) {                                                                       \
            r.w[i] = a.w[i - by / 64] << by % 64;                                                                      \
            if (by % 64 && i > by / 64)                                                                                \
                r.w[i] |= a.w[i - by / 64 - 1] >> (64 - by % 64);                                                      \
        }                                                                                                              \
        return r;                                                                                                      \
    }                                                                                                                  \
    INA_INLINE ina_w##n ina_w##n##_shr(ina_w##n a, uint64_t by)                                                        \
    {                                                                                                                  \
        ina_w##n r = {{0}};                                                                                            \
        for (uint64_t i = 0; by / 64 < n && i < n - by / 64; i++) {                                                    \
            r.w[i] = a.w[i + by / 64] >> by % 64;                                                                      \
            if (by % 64 && i + by / 64 + 1 < n)                                                                        \
                r.w[i] |= a.w[i + by / 64 + 1] << (64 - by % 64);                                                      \
        }                                                                                                              \
        return r;                                                                                                      \
    }                                                                                                                  \
    INA_INLINE ina_w##n ina_w##n##_sar(ina_w##n a, uint64_t by, unsigned width)                                        \
    {                                                                                                                  \
        ina_w##n ones = ina_w##n##_mask(ina_w##n##_not((ina_w##n){{0}}), width);                                       \
        ina_w##n r = ina_w##n##_shr(a, by);                                                                            \
        if (ina_w##n##_bit(a, width - 1))                                                                              \
            r = ina_w##n##_or(r, ina_w##n##_xor(ones, ina_w##n##_shr(ones, by)));                                      \
        return r;                                                                                                      \
    }                                                                                                                  \
    INA_INLINE uint64_t ina_w##n##_amount(ina_w##n a)                                                                  \
    { /* of a shift: beyond 32 bits is as good as endless */                                                           \
        return ina_w##n##_ult(a, ina_w##n##_of(UINT32_MAX)) ? a.w[0] : UINT32_MAX;                                     \
    }                                                                                                                  \
    INA_INLINE ina_w##n ina_w##n##_satadd(ina_w##n a, ina_w##n b, unsigned width, int is_signed)                       \
    {                                                                                                                  \
        ina_w##n ones = ina_w##n##_mask(ina_w##n##_not((ina_w##n){{0}}), width);                                       \
        ina_w##n s = ina_w##n##_mask(ina_w##n##_add(a, b), width);                                                     \
        if (!is_signed)                                                                                                \
            return ina_w##n##_ult(s, a) ? ones : s;                                                                    \
        uint32_t x = ina_w##n##_bit(a, width - 1), y = ina_w##n##_bit(b, width - 1);                                   \
        if (x != y || x == ina_w##n##_bit(s, width - 1))                                                               \
            return s;                                                                                                  \
        ina_w##n highest = ina_w##n##_shr(ones, 1);                                                                    \
        return x ? ina_w##n##_xor(ones, highest) : highest;                                                            \
    }                                                                                                                  \
    INA_INLINE ina_w##n ina_w##n##_satsub(ina_w##n a, ina_w##n b, unsigned width, int is_signed)                       \
    {                                                                                                                  \
        ina_w##n s = ina_w##n##_mask(ina_w##n##_sub(a, b), width);                                                     \
        if (!is_signed)                                                                                                \
            return ina_w##n##_ult(a, b) ? (ina_w##n){{0}} : s;                                                         \
        uint32_t x = ina_w##n##_bit(a, width - 1), y = ina_w##n##_bit(b, width - 1);                                   \
        if (x == y || x == ina_w##n##_bit(s, width - 1))                                                               \
            return s;                                                                                                  \
        ina_w##n ones = ina_w##n##_mask(ina_w##n##_not((ina_w##n){{0}}), width), highest = ina_w##n##_shr(ones, 1);    \
        return x ? ina_w##n##_xor(ones, highest) : highest;                                                            \
    }                                                                                                                  \
    INA_INLINE ina_w##n ina_w##n##_load(const uint8_t *p, uint64_t bit, uint64_t width)                                \
    {                                                                                                                  \
        ina_w##n r = {{0}};                                                                                            \
        ina_get_bits(r.w, p, bit, width);                                                                              \
        return r;                                                                                                      \
    }                                                                                                                  \
    INA_INLINE void ina_w##n##_store(uint8_t *p, unsigned bit, unsigned width, ina_w##n v)                             \
    {                                                                                                                  \
        for (unsigned i = bit; i < bit + width; i += 8 - i % 8) {                                                      \
            unsigned end = i / 8 * 8 + 8 < bit + width ? i / 8 * 8 + 8 : bit + width;                                  \
            p[i / 8] &= (uint8_t) ~(((1u << (end - i)) - 1) << (i / 8 * 8 + 8 - end));                                 \
        }                                                                                                              \
        ina_put_bits(p, bit, v.w, width);                                                                              \
    }
