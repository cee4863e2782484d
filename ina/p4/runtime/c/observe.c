/* Digests, read on request: a bounded ring that keeps the newest. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"

_Static_assert(sizeof(struct ina_digest) == 16, "ina_digest");
_Static_assert(sizeof(((struct ina_switch_port_stats *)0)->drops) == INA_DROP_REASONS * sizeof(uint64_t), "drops");

/* The first unread entry of a ring that still exists; adds the number of overwritten ones to *lost. */
static uint64_t oldest(uint64_t read, uint64_t written, uint64_t capacity, uint64_t *lost)
{
    uint64_t first = written > capacity ? written - capacity : 0;
    if (read >= first)
        return read;
    *lost += first - read;
    return first;
}

void ina_digest_add(struct ina_switch *sw, const struct ina_packet *pkt, uint32_t number, uint64_t now)
{
    uint8_t *at = sw->digests + (sw->digest_written++ % sw->config.digests) * sw->digest_stride;
    struct ina_digest digest = {now, pkt->ingress_port, number};
    memcpy(at, &digest, sizeof digest);
    memcpy(at + sizeof digest, pkt->meta, sw->meta_size);
}

unsigned ina_digest_drain(struct ina_switch *sw, uint8_t *into, uint64_t stride, unsigned max, uint64_t *lost)
{
    unsigned n = 0;
    sw->digest_read = oldest(sw->digest_read, sw->digest_written, sw->config.digests, lost);
    for (; n < max && sw->digest_read < sw->digest_written; n++, sw->digest_read++)
        memcpy(into + n * stride, sw->digests + (sw->digest_read % sw->config.digests) * sw->digest_stride,
               sizeof(struct ina_digest) + sw->meta_size);
    return n;
}
