/* Top-k: see topk.h. |x| orders as its bits do. Three passes of 11, 10 and 10 bits find the k-th largest, each among those that agree with
 * it in the bits before, so that all but the first see few; the last pass collects. */
#include "topk.h"

#include <string.h>

#include "floats.h"

/* Counts of the values whose bits from `top` on are `prefix`, by their bits from top - width to top. Four tables, so that values of
 * the same bits do not wait for each other. */
static void count_bits(uint64_t count, const float *x, uint32_t top, uint32_t width, uint32_t prefix, uint64_t *totals)
{
    static const uint32_t TABLES = 4;
    uint32_t tables[4][2048];
    const uint32_t size = 1u << width, shift = top - width;
    memset(totals, 0, size * sizeof *totals);
    for (uint64_t from = 0; from < count;) {
        const uint64_t to = count - from < 1u << 31 ? count : from + (1u << 31);
        memset(tables, 0, sizeof tables);
        if (top == 31)
            for (uint64_t i = from; i < to; i++)
                tables[i % TABLES][magnitude_of(x[i]) >> shift]++;
        else
            for (uint64_t i = from; i < to; i++) {
                const uint32_t bits = magnitude_of(x[i]);
                if (bits >> top == prefix)
                    tables[i % TABLES][bits >> shift & (size - 1)]++;
            }
        for (uint32_t table = 0; table < TABLES; table++)
            for (uint32_t i = 0; i < size; i++)
                totals[i] += tables[table][i];
        from = to;
    }
}

void ina_topk(uint64_t count, const float *x, uint64_t k, uint32_t *places)
{
    static const uint32_t WIDTHS[] = {11, 10, 10};
    uint64_t totals[2048], rest = k; /* of those that agree with the k-th largest so far, how many are chosen */
    uint32_t threshold = 0, top = 31;
    if (k == 0)
        return;
    for (int pass = 0; pass < 3; pass++) {
        count_bits(count, x, top, WIDTHS[pass], threshold, totals);
        uint32_t digit = 1u << WIDTHS[pass];
        do {
            digit--;
            if (totals[digit] >= rest)
                break;
            rest -= totals[digit];
        } while (digit > 0);
        threshold = threshold << WIDTHS[pass] | digit;
        top -= WIDTHS[pass];
    }
    uint64_t found = 0; /* branches only where a chunk has something */
    for (uint64_t from = 0; from < count; from += 64) {
        const uint64_t to = count - from < 64 ? count : from + 64;
        uint32_t any = 0;
        for (uint64_t i = from; i < to; i++)
            any |= magnitude_of(x[i]) >= threshold;
        if (!any)
            continue;
        for (uint64_t i = from; i < to; i++) {
            const uint32_t bits = magnitude_of(x[i]);
            if (bits > threshold || (bits == threshold && rest > 0)) {
                places[found++] = (uint32_t)i;
                rest -= bits == threshold;
            }
        }
    }
}
