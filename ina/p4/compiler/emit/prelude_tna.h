/* Support of compiled TNA programs, after prelude.h. */
#include "tna.h"

/* Bytes that a meter counts: without `less`, or with the control plane's adjustment (twice the number, plus 1). */
static inline __attribute__((unused)) double ina_adjusted(uint32_t octets, uint32_t less, int64_t adjust)
{
    const int64_t bytes = adjust & 1 ? octets + (adjust - 1) / 2 : (int64_t)octets - less;
    return bytes > 0 ? (double)bytes : 0;
}

/* A hash that the control plane has changed. Its words: 1 | kind | bits of the register, and 1 << 8: reversed, 1 << 9: msb,
 * 1 << 10: extend, rotation << 16, bits of the result << 32 | polynomial | init | final xor | seed | number of input bits |
 * for each: its position in `in`, counted from 1, and in the upper half the position of the bit that it is XORed with. */
static inline __attribute__((unused)) uint64_t ina_dynamic_hash(const uint64_t *c, const uint8_t *in)
{
    enum { IDENTITY, XOR, CRC };
    const unsigned width = c[2] & 0xff, result = c[2] >> 32 & 0xff, rotate = c[2] >> 16 & 0xff;
    const uint64_t all = ~0ull >> (64 - width), mask = ~0ull >> (64 - result), n = c[7];
    const unsigned pad = c[1] == XOR ? (unsigned)((width - n % width) % width) : (unsigned)(-n & 7);
    uint64_t sum = c[1] == CRC ? c[4] : 0, word = 0;
    for (uint64_t i = 0; i < pad + n; i++) {
        uint64_t bit = 0;
        if (i >= pad) {
            const uint64_t one = c[8 + i - pad] & 0xffffffff, other = c[8 + i - pad] >> 32;
            bit = in[(one - 1) / 8] >> (7 - (one - 1) % 8) & 1;
            if (other)
                bit ^= in[(other - 1) / 8] >> (7 - (other - 1) % 8) & 1;
        }
        word = word << 1 | bit;
        if (c[1] == IDENTITY) {
            sum = word;
        } else if (c[1] == XOR) {
            if (i % width == width - 1) {
                sum ^= word & all;
                word = 0;
            }
        } else if (i % 8 == 7) {
            if (c[2] >> 8 & 1) { /* the byte's bits enter least significant first */
                sum ^= word & 0xff;
                for (int k = 0; k < 8; k++)
                    sum = sum >> 1 ^ (sum & 1 ? c[3] : 0);
            } else {
                sum ^= (word & 0xff) << (width - 8);
                for (int k = 0; k < 8; k++)
                    sum = (sum << 1 ^ (sum >> (width - 1) & 1 ? c[3] : 0)) & all;
            }
        }
    }
    if (c[1] != IDENTITY)
        sum = (sum ^ c[5]) & all;
    if (c[1] != IDENTITY && result < width && c[2] >> 9 & 1)
        sum >>= width - result;
    if (c[1] != IDENTITY && c[2] >> 10 & 1)
        for (unsigned at = width; at < result; at += width)
            sum |= sum << at;
    sum &= mask;
    if (rotate % result)
        sum = (sum << rotate % result | sum >> (result - rotate % result)) & mask;
    return (sum ^ c[6]) & mask;
}

/* ina_meter for a packet that already has a colour (RFC 2698 section 3, colour-aware). */
static inline __attribute__((unused)) uint32_t ina_meter_aware(struct ina_meter *m, double amount, uint64_t now, uint32_t before)
{
    enum { GREEN, YELLOW, RED };
    if (!m->configured || before == GREEN)
        return before == GREEN ? ina_meter(m, amount, now) : before;
    double committed = m->committed_tokens, elapsed = (double)(now > m->last ? now - m->last : 0) / 1e12;
    committed += elapsed * m->committed_rate;
    committed = committed > m->committed_burst ? m->committed_burst : committed;
    if (before == RED) { /* takes no tokens */
        ina_meter(m, 0, now);
        m->committed_tokens = committed;
        return RED;
    }
    uint32_t color = ina_meter(m, amount, now);
    m->committed_tokens = committed; /* a yellow packet takes peak tokens only */
    return color == RED ? RED : YELLOW;
}

/* A cell of an Lpf or Wred. Time constants in ns; `fall` is used while the average is above the sample. */
struct ina_filter {
    uint64_t configured; /* 0: output equals input; 1: samples; 2: rates (inputs are accumulated) */
    double rise, fall;
    double out;          /* lpf: factor of the average; wred: highest probability of a drop */
    double low, high;    /* wred: averages between which that probability rises from 0 to `out` */
    double average;
    uint64_t last;       /* ps */
} __attribute__((may_alias));
_Static_assert(sizeof(struct ina_filter) == 64, "ina_filter");

/* e^-x for x >= 0, the same on every machine. */
static inline __attribute__((unused)) double ina_decay(double x)
{
    if (x > 40)
        return 0;
    double step = x / 64, term = 1, sum = 1;
    for (int k = 1; k < 12; k++) {
        term *= -step / k;
        sum += term;
    }
    for (int k = 0; k < 6; k++)
        sum *= sum;
    return sum;
}

static inline __attribute__((unused)) double ina_average(struct ina_filter *f, double sample, uint64_t now)
{
    double constant = sample > f->average ? f->rise : f->fall;
    double elapsed = (double)(now > f->last ? now - f->last : 0) / 1e3;
    double decay = constant > 0 ? ina_decay(elapsed / constant) : 0;
    f->last = now > f->last ? now : f->last;
    f->average = f->configured == 2 ? f->average * decay + sample : sample + (f->average - sample) * decay;
    return f->average;
}

static inline __attribute__((unused)) uint32_t ina_lpf(struct ina_filter *f, uint32_t sample, uint64_t now)
{
    double output = f->configured ? ina_average(f, sample, now) * f->out : sample;
    return output >= 4294967295.0 ? ~0u : (uint32_t)output;
}

static inline __attribute__((unused)) uint32_t ina_wred(struct ina_filter *f, uint32_t sample, uint64_t now, uint64_t random)
{
    if (!f->configured)
        return 0;
    double average = ina_average(f, sample, now);
    if (average < f->low)
        return 0;
    if (average >= f->high)
        return 1;
    return (double)(random >> 11) * 0x1p-53 < f->out * (average - f->low) / (f->high - f->low);
}

/* A byte at a time through a table; `crc` is the register. */
static inline __attribute__((unused)) uint64_t ina_crc_low(const uint64_t *table, uint64_t crc, const uint8_t *p, uint64_t n)
{
    for (; n; n--)
        crc = crc >> 8 ^ table[(crc ^ *p++) & 255];
    return crc;
}

static inline __attribute__((unused)) uint64_t ina_crc_high(const uint64_t *table, unsigned width, uint64_t crc,
                                                            const uint8_t *p, uint64_t n)
{
    for (; n; n--)
        crc = (crc << 8 ^ table[(crc >> (width - 8) ^ *p++) & 255]) & (~0ull >> (64 - width));
    return crc;
}

/* A MathUnit (arch/tna_operations.py). */
static inline __attribute__((unused)) uint32_t ina_math(uint32_t x, const uint8_t *table, int invert, int shift, int scale)
{
    int e = x ? 31 - __builtin_clz(x) : 0;
    if (shift < 0)
        e += e & 1;
    uint64_t found = table[e < 3 ? x << (3 - e) : x >> (e - 3)];
    int power = shift < 0 ? e / 2 : e << shift;
    power = scale + (invert ? -power : power);
    if (power < 0)
        return power < -31 ? 0 : (uint32_t)(found >> -power);
    return power > 31 || found << power > ~0u ? ~0u : (uint32_t)(found << power);
}
