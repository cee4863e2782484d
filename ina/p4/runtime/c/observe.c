/* The packet trace and digests, read on request. Both are bounded rings that keep the newest. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"

_Static_assert(sizeof(struct ina_trace_record) == 128, "ina_trace_record");
_Static_assert(sizeof(struct ina_digest) == 16, "ina_digest");
_Static_assert(sizeof(((struct ina_switch_port_stats *)0)->drops) == INA_DROP_REASONS * sizeof(uint64_t), "drops");

int ina_trace_start(struct ina_switch *sw, uint32_t records)
{
    struct ina_trace_record *ring = records ? calloc(records, sizeof *ring) : NULL;
    if (records && !ring)
        return -ENOMEM;
    free(sw->trace);
    sw->trace = ring;
    sw->trace_capacity = records;
    sw->trace_written = sw->trace_read = 0;
    return 0;
}

void ina_trace_add(struct ina_switch *sw, const struct ina_packet *pkt, uint16_t port, uint8_t direction, uint64_t now)
{
    struct ina_trace_record *record = &sw->trace[sw->trace_written++ % sw->trace_capacity];
    *record = (struct ina_trace_record){
        .time = now,
        .len = pkt->len,
        .port = port,
        .target = pkt->rid,
        .direction = direction,
        .verdict = pkt->verdict,
        .instance_type = pkt->instance_type,
        .stored = pkt->len < INA_TRACE_BYTES ? pkt->len : INA_TRACE_BYTES,
    };
    memcpy(record->bytes, pkt->data, record->stored);
}

/* The first unread entry of a ring that still exists; adds the number of overwritten ones to *lost. */
static uint64_t oldest(uint64_t read, uint64_t written, uint64_t capacity, uint64_t *lost)
{
    uint64_t first = written > capacity ? written - capacity : 0;
    if (read >= first)
        return read;
    *lost += first - read;
    return first;
}

unsigned ina_trace_drain(struct ina_switch *sw, struct ina_trace_record *into, unsigned max, uint64_t *lost)
{
    unsigned n = 0;
    sw->trace_read = oldest(sw->trace_read, sw->trace_written, sw->trace_capacity, lost);
    for (; n < max && sw->trace_read < sw->trace_written; n++)
        into[n] = sw->trace[sw->trace_read++ % sw->trace_capacity];
    return n;
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
