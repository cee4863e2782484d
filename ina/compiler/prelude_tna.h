/* Support of compiled TNA programs, after prelude.h. */
#include "tna.h"

/* Bytes that a meter counts: without `less`, or with what the control plane says (twice the number, and 1). */
static inline __attribute__((unused)) double ina_adjusted(uint32_t octets, uint32_t less, int64_t said)
{
    const int64_t bytes = said & 1 ? octets + (said - 1) / 2 : (int64_t)octets - less;
    return bytes > 0 ? (double)bytes : 0;
}

/* As ina_meter, for a packet that already has a colour (RFC 2698 section 3, colour-aware). */
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
    uint64_t configured; /* 0: gives what it is given; 1: samples; 2: rates (what comes adds up) */
    double rise, fall;
    double out;          /* lpf: what the average is multiplied with; wred: highest probability of a drop */
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
    double kept = constant > 0 ? ina_decay(elapsed / constant) : 0;
    f->last = now > f->last ? now : f->last;
    f->average = f->configured == 2 ? f->average * kept + sample : sample + (f->average - sample) * kept;
    return f->average;
}

static inline __attribute__((unused)) uint32_t ina_lpf(struct ina_filter *f, uint32_t sample, uint64_t now)
{
    double found = f->configured ? ina_average(f, sample, now) * f->out : sample;
    return found >= 4294967295.0 ? ~0u : (uint32_t)found;
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

/* A MathUnit (tna_math.py). */
static inline __attribute__((unused)) uint32_t ina_math(uint32_t x, const uint8_t *table, int invert, int shift, int scale)
{
    int e = x < 16 ? 0 : 28 - __builtin_clz(x);
    if (shift < 0)
        e += e & 1;
    int power = shift < 0 ? e / 2 : e << shift;
    uint64_t found = table[x >> e];
    power = scale + (invert ? -power : power);
    if (power < 0)
        return power < -31 ? 0 : (uint32_t)(found >> -power);
    return power > 31 || found << power > ~0u ? ~0u : (uint32_t)(found << power);
}
