/* One direction of a link, sans-IO. Items wait in one ring and fly in another; both are first in, first out, and grow. */
#include "link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

__extension__ typedef unsigned __int128 u128;

enum { FIRST_CAPACITY = 16 };

struct ring {
    struct ina_link_item *items;
    uint32_t first, count, capacity; /* capacity: 0 or a power of two */
};

struct ina_link {
    struct ina_link_config config;
    uint64_t free_at;       /* when the transmitter has sent its last bit */
    uint64_t backlog;       /* bytes waiting */
    uint64_t looked_at;     /* when queue_ps was brought up to date */
    struct ring waiting, flying;
    struct ina_link_stats stats;
};

static const uint64_t LATEST = UINT64_MAX - 1; /* UINT64_MAX means never */

static uint64_t later(uint64_t t, uint64_t by)
{
    return by < LATEST - (t < LATEST ? t : LATEST) ? t + by : LATEST;
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static struct ina_link_item *at(const struct ring *ring, uint32_t i)
{
    return &ring->items[(ring->first + i) & (ring->capacity - 1)];
}

/* Makes room for one more. 0, -ENOMEM. */
static int grow(struct ring *ring)
{
    if (ring->capacity > UINT32_MAX / 2)
        return -ENOMEM;
    const uint32_t capacity = ring->capacity ? 2 * ring->capacity : FIRST_CAPACITY;
    struct ina_link_item *items = malloc(capacity * sizeof *items);
    if (!items)
        return -ENOMEM;
    for (uint32_t i = 0; i < ring->count; i++)
        items[i] = *at(ring, i);
    free(ring->items);
    *ring = (struct ring){.items = items, .count = ring->count, .capacity = capacity};
    return 0;
}

static int push(struct ring *ring, const struct ina_link_item *item)
{
    if (__builtin_expect(ring->count == ring->capacity, 0) && grow(ring))
        return -ENOMEM;
    *at(ring, ring->count++) = *item;
    return 0;
}

static void pop(struct ring *ring, struct ina_link_item *item)
{
    *item = *at(ring, 0);
    ring->first = --ring->count ? ring->first + 1 : 0; /* an empty one begins anew: few cache lines */
}

static void count_queue(struct ina_link *link, uint64_t now)
{
    if (now > link->looked_at) {
        link->stats.queue_ps += link->waiting.count * (now - link->looked_at);
        link->looked_at = now;
    }
}

struct ina_link *ina_link_create(const struct ina_link_config *config)
{
    struct ina_link *link = calloc(1, sizeof *link);
    if (link)
        link->config = *config;
    return link;
}

void ina_link_destroy(struct ina_link *link)
{
    if (!link)
        return;
    free(link->waiting.items);
    free(link->flying.items);
    free(link);
}

void ina_link_set_rate(struct ina_link *link, uint64_t rate_bps)
{
    link->config.rate_bps = rate_bps;
}

void ina_link_set_delay(struct ina_link *link, uint64_t delay_ps)
{
    link->config.delay_ps = delay_ps;
}

int ina_link_enqueue(struct ina_link *link, uint64_t handle, uint32_t bytes, uint64_t now)
{
    const struct ina_link_config *config = &link->config;
    if (config->queue_bytes && bytes > config->queue_bytes - link->backlog) {
        link->stats.tail_drops++;
        return INA_TAIL_DROP;
    }
    const struct ina_link_item item = {.handle = handle, .enq_time = now, .bytes = bytes, .enq_qdepth = link->waiting.count};
    count_queue(link, now);
    if (push(&link->waiting, &item))
        return -ENOMEM;
    int marked = config->ecn_bytes && link->backlog > config->ecn_bytes;
    link->backlog += bytes;
    link->stats.max_queue_bytes = max_u64(link->stats.max_queue_bytes, link->backlog);
    link->stats.ecn_marks += (uint64_t)marked;
    return marked ? INA_ENQUEUED_MARKED : INA_ENQUEUED;
}

int ina_link_dequeue(struct ina_link *link, uint64_t now, struct ina_link_item *item)
{
    if (!link->waiting.count || now < link->free_at || now < at(&link->waiting, 0)->enq_time)
        return 0;
    count_queue(link, now);
    pop(&link->waiting, item);
    link->backlog -= item->bytes;
    link->stats.waited_ps += now - item->enq_time;
    return 1;
}

/* Returns how long the transmitter is busy when it sends from `now`, or after the current packet. */
static uint64_t occupy(struct ina_link *link, uint32_t bytes, uint64_t now)
{
    uint64_t duration = ina_link_serialisation(link->config.rate_bps, bytes);
    link->free_at = later(max_u64(now, link->free_at), duration);
    return duration;
}

static void count_sent(struct ina_link *link, uint32_t bytes, uint64_t duration)
{
    link->stats.packets++;
    link->stats.bytes += bytes;
    link->stats.busy_ps += duration;
}

uint64_t ina_link_send(struct ina_link *link, uint32_t bytes, uint64_t now)
{
    count_sent(link, bytes, occupy(link, bytes, now));
    return later(link->free_at, link->config.delay_ps);
}

uint64_t ina_link_transmit(struct ina_link *link, const struct ina_link_item *item, uint64_t now)
{
    if (link->flying.count == link->flying.capacity && grow(&link->flying))
        return UINT64_MAX;
    struct ina_link_item sent = *item;
    sent.due = ina_link_send(link, item->bytes, now);
    push(&link->flying, &sent);
    return sent.due;
}

int ina_link_pass(struct ina_link *link, uint32_t bytes, uint64_t now)
{
    const uint64_t most = link->config.queue_bytes;
    if (link->waiting.count || now < link->free_at || (most && bytes > most))
        return 0;
    link->stats.max_queue_bytes = max_u64(link->stats.max_queue_bytes, bytes);
    return 1;
}

uint64_t ina_link_free_at(const struct ina_link *link)
{
    return link->free_at;
}

int ina_link_forward(struct ina_link *link, uint32_t bytes, uint64_t now, uint64_t *arrival)
{
    ina_link_settle(link, now);
    if (ina_link_pass(link, bytes, now)) {
        *arrival = ina_link_send(link, bytes, now);
        return INA_ENQUEUED;
    }
    const uint64_t start = max_u64(now, link->free_at);
    const int queued = ina_link_enqueue(link, 0, bytes, now);
    if (queued == INA_TAIL_DROP || queued < 0)
        return queued;
    struct ina_link_item *item = at(&link->waiting, link->waiting.count - 1);
    item->due = start;
    item->handle = occupy(link, bytes, start);
    *arrival = later(link->free_at, link->config.delay_ps);
    return queued;
}

void ina_link_settle(struct ina_link *link, uint64_t now)
{
    while (link->waiting.count && at(&link->waiting, 0)->due <= now) {
        struct ina_link_item item;
        count_queue(link, at(&link->waiting, 0)->due);
        pop(&link->waiting, &item);
        link->backlog -= item.bytes;
        link->stats.waited_ps += item.due - item.enq_time;
        count_sent(link, item.bytes, item.handle);
    }
}

int ina_link_deliver(struct ina_link *link, uint64_t now, struct ina_link_item *item)
{
    if (!link->flying.count || now < at(&link->flying, 0)->due)
        return 0;
    pop(&link->flying, item);
    return 1;
}

uint64_t ina_link_next_due(const struct ina_link *link)
{
    uint64_t due = UINT64_MAX;
    if (link->waiting.count)
        due = max_u64(link->free_at, at(&link->waiting, 0)->enq_time);
    if (link->flying.count) {
        uint64_t arrival = at(&link->flying, 0)->due;
        due = arrival < due ? arrival : due;
    }
    return due;
}

uint64_t ina_link_head_due(const struct ina_link *link)
{
    return link->waiting.count ? at(&link->waiting, 0)->due : UINT64_MAX;
}

uint64_t ina_link_waiting(const struct ina_link *link, uint32_t place)
{
    return at(&link->waiting, place)->handle;
}

uint32_t ina_link_depth(const struct ina_link *link)
{
    return link->waiting.count;
}

uint64_t ina_link_backlog(const struct ina_link *link)
{
    return link->backlog;
}

const struct ina_link_stats *ina_link_get_stats(const struct ina_link *link)
{
    return &link->stats;
}

uint64_t ina_link_serialisation(uint64_t rate_bps, uint32_t bytes)
{
    if (!rate_bps)
        return 0;
    if (bytes < 1u << 20 && rate_bps < 1ull << 62) /* fits 64 bits, whose division is much quicker */
        return ((uint64_t)bytes * 8000000000000u + rate_bps - 1) / rate_bps;
    u128 ps = ((u128)bytes * 8u * 1000000000000u + rate_bps - 1) / rate_bps;
    return ps < LATEST ? (uint64_t)ps : LATEST;
}
