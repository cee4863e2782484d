/* One direction of a link, sans-IO. Items wait in one ring and fly in another; both are first in, first out. */
#include "link.h"

#include <string.h>

__extension__ typedef unsigned __int128 u128;

struct fifo {
    uint32_t first, count;
};

struct ina_link {
    struct ina_link_config config;
    uint64_t free_at;       /* when the transmitter has sent its last bit */
    uint64_t backlog;       /* bytes waiting */
    uint64_t looked_at;     /* when queue_ps was brought up to date */
    struct fifo waiting, flying;
    uint32_t capacity;
    uint32_t reserved;
    struct ina_link_stats stats;
    struct ina_link_item items[]; /* `capacity` waiting ones, then `capacity` flying ones */
};

_Static_assert(sizeof(struct ina_link_item) == 32, "no padding: links are compared with memcmp");
_Static_assert(sizeof(struct ina_link) % sizeof(uint64_t) == 0, "link");

static const uint64_t LATEST = UINT64_MAX - 1; /* UINT64_MAX means never */

static uint64_t later(uint64_t t, uint64_t by)
{
    return by < LATEST - (t < LATEST ? t : LATEST) ? t + by : LATEST;
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint32_t place_of(const struct ina_link *link, const struct fifo *fifo, uint32_t i) /* i <= capacity */
{
    const uint64_t place = (uint64_t)fifo->first + i;
    return (uint32_t)(place < link->capacity ? place : place - link->capacity);
}

static struct ina_link_item *waiting_at(struct ina_link *link, uint32_t i)
{
    return &link->items[place_of(link, &link->waiting, i)];
}

static struct ina_link_item *flying_at(struct ina_link *link, uint32_t i)
{
    return &link->items[(size_t)link->capacity + place_of(link, &link->flying, i)];
}

/* Takes the head out and leaves zeroes, so that links with the same past are the same bytes. */
static void pop(struct fifo *fifo, uint32_t capacity, struct ina_link_item *head, struct ina_link_item *item)
{
    *item = *head;
    memset(head, 0, sizeof *head);
    fifo->count--;
    fifo->first = fifo->count && fifo->first + 1 < capacity ? fifo->first + 1 : 0; /* an empty one begins anew: few pages */
}

static void count_queue(struct ina_link *link, uint64_t now)
{
    if (now > link->looked_at) {
        link->stats.queue_ps += link->waiting.count * (now - link->looked_at);
        link->looked_at = now;
    }
}

size_t ina_link_size(uint32_t capacity)
{
    return sizeof(struct ina_link) + 2 * (size_t)capacity * sizeof(struct ina_link_item);
}

void ina_link_init(struct ina_link *link, const struct ina_link_config *config, uint32_t capacity)
{
    memset(link, 0, ina_link_size(capacity));
    ina_link_start(link, config, capacity);
}

void ina_link_start(struct ina_link *link, const struct ina_link_config *config, uint32_t capacity)
{
    link->config = *config;
    link->capacity = capacity;
}

int ina_link_enqueue(struct ina_link *link, uint64_t handle, uint32_t bytes, uint64_t now)
{
    const struct ina_link_config *config = &link->config;
    if ((uint64_t)link->waiting.count + link->flying.count >= link->capacity
        || (config->queue_bytes && bytes > config->queue_bytes - link->backlog)) {
        link->stats.tail_drops++;
        return INA_TAIL_DROP;
    }
    count_queue(link, now);
    int marked = config->ecn_bytes && link->backlog > config->ecn_bytes;
    *waiting_at(link, link->waiting.count) = (struct ina_link_item){
        .handle = handle, .enq_time = now, .bytes = bytes, .enq_qdepth = link->waiting.count};
    link->waiting.count++;
    link->backlog += bytes;
    link->stats.max_queue_bytes = max_u64(link->stats.max_queue_bytes, link->backlog);
    link->stats.ecn_marks += (uint64_t)marked;
    return marked ? INA_ENQUEUED_MARKED : INA_ENQUEUED;
}

int ina_link_dequeue(struct ina_link *link, uint64_t now, struct ina_link_item *item)
{
    if (!link->waiting.count || now < link->free_at || now < waiting_at(link, 0)->enq_time)
        return 0;
    count_queue(link, now);
    pop(&link->waiting, link->capacity, waiting_at(link, 0), item);
    link->backlog -= item->bytes;
    link->stats.waited_ps += now - item->enq_time;
    return 1;
}

/* The transmitter sends from `now`, or after what is being sent: how long. */
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
    if (link->flying.count == link->capacity) { /* its place was given away between dequeue and transmit */
        link->stats.tail_drops++;
        return UINT64_MAX;
    }
    struct ina_link_item sent = *item;
    sent.due = ina_link_send(link, item->bytes, now);
    *flying_at(link, link->flying.count++) = sent;
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
    if (queued == INA_TAIL_DROP)
        return queued;
    struct ina_link_item *item = waiting_at(link, link->waiting.count - 1);
    item->due = start;
    item->handle = occupy(link, bytes, start);
    *arrival = later(link->free_at, link->config.delay_ps);
    return queued;
}

void ina_link_settle(struct ina_link *link, uint64_t now)
{
    while (link->waiting.count && waiting_at(link, 0)->due <= now) {
        struct ina_link_item item;
        count_queue(link, waiting_at(link, 0)->due);
        pop(&link->waiting, link->capacity, waiting_at(link, 0), &item);
        link->backlog -= item.bytes;
        link->stats.waited_ps += item.due - item.enq_time;
        count_sent(link, item.bytes, item.handle);
    }
}

int ina_link_deliver(struct ina_link *link, uint64_t now, struct ina_link_item *item)
{
    if (!link->flying.count || now < flying_at(link, 0)->due)
        return 0;
    pop(&link->flying, link->capacity, flying_at(link, 0), item);
    return 1;
}

uint64_t ina_link_next_due(const struct ina_link *link)
{
    uint64_t due = UINT64_MAX;
    if (link->waiting.count)
        due = max_u64(link->free_at, link->items[link->waiting.first].enq_time);
    if (link->flying.count) {
        uint64_t arrival = link->items[link->capacity + link->flying.first].due;
        due = arrival < due ? arrival : due;
    }
    return due;
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
