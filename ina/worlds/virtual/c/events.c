/* The two queues of virtual time: a calendar of events that happen once (arrivals of frames, checks of queues), and one timer a
 * machine (an indexed heap, so that a timer that changes is moved, not left behind).
 *
 * The calendar (R. Brown, "Calendar queues", CACM 31(10), 1988): buckets of 2^shift ps, of which the next `buckets` are arrays;
 * a bucket is sorted when its time has come. Later events wait in a heap, `far`. Events of one instant keep the order in which
 * they were added: buckets are appended to and sorted stably, and far events enter their bucket as soon as it is one of the
 * arrays, so before any event can be added to it directly. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"

enum { LEAST_BUCKETS = 1024, FIRST_SHIFT = 16, MOST_SPARE = 64, PERIOD = 4096 /* pushes, at first, between two checks of the sizes */ };

struct ina_bucket {
    struct ina_timed_event *item;
    uint32_t count, capacity;
};

static uint64_t number_of(const struct ina_calendar *c, uint64_t time)
{
    return time >> c->shift;
}

static struct ina_bucket *bucket_at(const struct ina_calendar *c, uint64_t number)
{
    return &c->bucket[number & (c->buckets - 1)];
}

/* ---- the heap of far events */

static int far_before(const struct ina_far *a, const struct ina_far *b)
{
    return a->event.time != b->event.time ? a->event.time < b->event.time : a->number < b->number;
}

static int far_push(struct ina_calendar *c, const struct ina_timed_event *event)
{
    if (c->far_count == c->far_capacity) {
        uint32_t capacity = c->far_capacity ? 2 * c->far_capacity : 256;
        struct ina_far *heap = realloc(c->far, (size_t)capacity * sizeof *heap);
        if (!heap)
            return -ENOMEM;
        c->far = heap;
        c->far_capacity = capacity;
    }
    struct ina_far entry = {*event, c->far_number++};
    uint32_t i = c->far_count++;
    for (; i && far_before(&entry, &c->far[(i - 1) / 2]); i = (i - 1) / 2)
        c->far[i] = c->far[(i - 1) / 2];
    c->far[i] = entry;
    return 0;
}

static void far_pop(struct ina_calendar *c, struct ina_timed_event *out)
{
    *out = c->far[0].event;
    struct ina_far entry = c->far[--c->far_count];
    uint32_t i = 0, child;
    for (; (child = 2 * i + 1) < c->far_count; i = child) {
        if (child + 1 < c->far_count && far_before(&c->far[child + 1], &c->far[child]))
            child++;
        if (!far_before(&c->far[child], &entry))
            break;
        c->far[i] = c->far[child];
    }
    c->far[i] = entry;
}

/* ---- buckets */

/* Arrays of 4, 8, 16, ... events are reused by other buckets: empty buckets hold no memory. */
static struct ina_timed_event *take_array(struct ina_calendar *c, uint32_t capacity)
{
    struct ina_timed_event **spare = &c->spare[__builtin_ctz(capacity)], *array = capacity > MOST_SPARE ? NULL : *spare;
    if (!array) {
        c->arrays += (size_t)capacity * sizeof *array;
        return malloc((size_t)capacity * sizeof *array);
    }
    memcpy(spare, array, sizeof(struct ina_timed_event *));
    return array;
}

static void give_array(struct ina_calendar *c, struct ina_bucket *b)
{
    if (b->capacity > MOST_SPARE) {
        c->arrays -= b->capacity * sizeof *b->item;
        free(b->item);
    } else if (b->capacity) {
        struct ina_timed_event **spare = &c->spare[__builtin_ctz(b->capacity)];
        memcpy(b->item, spare, sizeof(struct ina_timed_event *));
        *spare = b->item;
    }
    b->item = NULL;
    b->capacity = 0;
}

/* Adds an event at its place if the bucket is the sorted one, else at the end. */
static int put_in(struct ina_calendar *c, uint64_t number, const struct ina_timed_event *event)
{
    struct ina_bucket *b = bucket_at(c, number);
    if (b->count == b->capacity) {
        uint32_t capacity = b->capacity ? 2 * b->capacity : 4;
        struct ina_timed_event *item = take_array(c, capacity);
        if (!item)
            return -ENOMEM;
        if (b->count)
            memcpy(item, b->item, b->count * sizeof *item);
        give_array(c, b);
        b->item = item;
        b->capacity = capacity;
    }
    uint32_t i = b->count++;
    if (number == c->sorted)
        /* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): in a new array i is 0, so there is no item before */
        for (; i > c->next && b->item[i - 1].time > event->time; i--)
            b->item[i] = b->item[i - 1];
    b->item[i] = *event;
    c->occupied[(number & (c->buckets - 1)) / 64] |= 1ull << number % 64;
    return 0;
}

/* Moves events that are no longer far into their buckets. */
static int bring_near(struct ina_calendar *c)
{
    int bad = 0;
    while (c->far_count && number_of(c, c->far[0].event.time) - c->base < c->buckets && !bad) {
        struct ina_timed_event event;
        far_pop(c, &event);
        bad = put_in(c, number_of(c, event.time), &event);
    }
    return bad;
}

/* Sorts events stably; fast if they are nearly in order. */
static void sort(struct ina_timed_event *item, uint32_t n, struct ina_timed_event *spare)
{
    if (n <= 24) {
        for (uint32_t i = 1; i < n; i++) {
            struct ina_timed_event one = item[i];
            uint32_t at = i;
            for (; at && item[at - 1].time > one.time; at--)
                item[at] = item[at - 1];
            item[at] = one;
        }
        return;
    }
    uint32_t half = n / 2, left = 0, right = half, out = 0;
    sort(item, half, spare);
    sort(item + half, n - half, spare);
    if (item[half - 1].time <= item[half].time)
        return;
    memcpy(spare, item, half * sizeof *item);
    while (left < half && right < n)
        item[out++] = item[right].time < spare[left].time ? item[right++] : spare[left++];
    memcpy(item + out, spare + left, (half - left) * sizeof *item);
}

static int open_bucket(struct ina_calendar *c, uint64_t number)
{
    struct ina_bucket *b = bucket_at(c, number);
    if (b->count > c->merging_capacity) {
        struct ina_timed_event *merging = realloc(c->merging, (size_t)b->count * sizeof *merging);
        if (!merging)
            return -ENOMEM;
        c->merging = merging;
        c->merging_capacity = b->count;
    }
    sort(b->item, b->count, c->merging);
    c->sorted = number;
    c->next = 0;
    return 0;
}

/* Turns the sorted bucket into an ordinary one: removes the events that have been taken out of it. */
static void close_bucket(struct ina_calendar *c)
{
    if (c->sorted == UINT64_MAX)
        return;
    struct ina_bucket *b = bucket_at(c, c->sorted);
    b->count -= c->next;
    if (b->count) {
        memmove(b->item, b->item + c->next, b->count * sizeof *b->item);
    } else {
        give_array(c, b);
        c->occupied[(c->sorted & (c->buckets - 1)) / 64] &= ~(1ull << c->sorted % 64);
    }
    c->sorted = UINT64_MAX;
    c->next = 0;
}

/* Returns the first bucket from `base` on that has events; there is one. */
static uint64_t first_bucket(const struct ina_calendar *c)
{
    const uint32_t words = c->buckets / 64, start = (uint32_t)(c->base & (c->buckets - 1));
    uint64_t bits = c->occupied[start / 64] & ~0ull << start % 64;
    for (uint32_t i = 0, word = start / 64;; i++) {
        if (bits) {
            const uint32_t place = word * 64 + (uint32_t)__builtin_ctzll(bits);
            return c->base + ((place - start) & (c->buckets - 1));
        }
        word = word + 1 < words ? word + 1 : 0;
        bits = c->occupied[word];
        if (i + 1 == words) /* wrapped: the bits before `start` in its word */
            bits &= ~(~0ull << start % 64);
    }
}

/* ---- sizes */

static int allocate(struct ina_calendar *c, uint32_t buckets, uint32_t shift)
{
    struct ina_bucket *bucket = calloc(buckets, sizeof *bucket);
    uint64_t *occupied = calloc(buckets / 64, sizeof *occupied);
    if (!bucket || !occupied) {
        free(bucket);
        free(occupied);
        return -ENOMEM;
    }
    c->bucket = bucket;
    c->occupied = occupied;
    c->buckets = buckets;
    c->shift = shift;
    return 0;
}

static void release(struct ina_bucket *bucket, uint64_t *occupied, uint32_t buckets)
{
    for (uint32_t i = 0; i < buckets; i++)
        free(bucket[i].item);
    free(bucket);
    free(occupied);
}

/* Moves all events into new buckets, in the order of time. */
static int rebuild(struct ina_calendar *c, uint32_t buckets, uint32_t shift, uint64_t now)
{
    close_bucket(c);
    struct ina_calendar old = *c;
    if (allocate(c, buckets, shift))
        return -ENOMEM;
    c->base = number_of(c, now);
    int bad = 0;
    for (uint32_t i = 0; i < old.buckets; i++) {
        const struct ina_bucket *b = bucket_at(&old, old.base + i);
        for (uint32_t k = 0; k < b->count && !bad; k++) {
            const uint64_t number = number_of(c, b->item[k].time);
            bad = number - c->base < c->buckets ? put_in(c, number, &b->item[k]) : far_push(c, &b->item[k]);
        }
        c->arrays -= b->capacity * sizeof *b->item;
    }
    release(old.bucket, old.occupied, old.buckets);
    return bad ? bad : bring_near(c);
}

/* Chooses sizes: at least a bucket for two events, over four times the average time that they are added ahead. */
static int adapt(struct ina_calendar *c, uint64_t now)
{
    const uint64_t ahead = 4 * (c->ahead / c->pushes);
    uint32_t buckets = c->buckets, shift = 0;
    while (buckets < c->count / 2)
        buckets *= 2;
    while (shift < 40 && ahead >> shift > buckets)
        shift++;
    c->ahead = c->pushes = 0;
    c->period = c->period < UINT64_C(16) * PERIOD ? 2 * c->period : c->period;
    if (buckets == c->buckets && shift + 1 >= c->shift && shift <= c->shift + 1)
        return 0;
    return rebuild(c, buckets, shift, now);
}

/* ---- interface */

int ina_calendar_push(struct ina_calendar *c, const struct ina_timed_event *event, uint64_t now)
{
    if (!c->buckets) {
        if (allocate(c, LEAST_BUCKETS, FIRST_SHIFT))
            return -ENOMEM;
        c->period = PERIOD;
        c->sorted = UINT64_MAX;
    }
    c->ahead += event->time - now;
    if (++c->pushes == c->period && adapt(c, now))
        return -ENOMEM;
    if (!c->count) { /* empty: the calendar may move to any time */
        close_bucket(c);
        c->base = number_of(c, now);
    }
    const uint64_t number = number_of(c, event->time);
    int bad;
    if (number - c->base >= c->buckets) {
        bad = far_push(c, event);
    } else {
        if (c->sorted != UINT64_MAX && number < c->sorted)
            close_bucket(c);
        bad = put_in(c, number, event);
    }
    c->count += !bad;
    return bad;
}

/* Sorts the next bucket. */
static int find(struct ina_calendar *c)
{
    close_bucket(c);
    return open_bucket(c, first_bucket(c));
}

uint64_t ina_calendar_first(struct ina_calendar *c)
{
    if (!c->count)
        return UINT64_MAX;
    if (c->sorted != UINT64_MAX && c->next < bucket_at(c, c->sorted)->count)
        return bucket_at(c, c->sorted)->item[c->next].time;
    if (c->far_count == c->count)
        return c->far[0].event.time;
    return find(c) ? 0 : bucket_at(c, c->sorted)->item[0].time; /* 0: pop returns the error */
}

int ina_calendar_pop(struct ina_calendar *c, struct ina_timed_event *out)
{
    int bad = 0;
    if (c->far_count == c->count) { /* only far events are left: skip to the first */
        close_bucket(c);
        c->base = number_of(c, c->far[0].event.time);
        bad = bring_near(c);
    }
    if (!bad && (c->sorted == UINT64_MAX || c->next == bucket_at(c, c->sorted)->count))
        bad = find(c);
    if (bad)
        return bad;
    *out = bucket_at(c, c->sorted)->item[c->next++];
    c->count--;
    if (c->base == c->sorted)
        return 0;
    c->base = c->sorted;
    return bring_near(c);
}

uint32_t ina_calendar_ahead(const struct ina_calendar *c, uint32_t ahead)
{
    const struct ina_bucket *b = bucket_at(c, c->sorted);
    return c->next + ahead < b->count ? b->item[c->next + ahead].frame : UINT32_MAX;
}

int ina_calendar_next_is(const struct ina_calendar *c, uint64_t time, uint32_t place, uint32_t mask)
{
    const struct ina_bucket *b = bucket_at(c, c->sorted); /* all of one instant are in one bucket */
    return c->next < b->count && b->item[c->next].time == time && (b->item[c->next].place & ~mask) == place;
}

uint64_t ina_calendar_memory(const struct ina_calendar *c)
{
    return c->buckets * sizeof *c->bucket + c->buckets / 8 + c->far_capacity * sizeof *c->far + c->arrays;
}

void ina_calendar_destroy(struct ina_calendar *c)
{
    release(c->bucket, c->occupied, c->buckets);
    for (unsigned i = 0; i < 32; i++)
        for (struct ina_timed_event *array = c->spare[i], *next; array; array = next) {
            memcpy(&next, array, sizeof(struct ina_timed_event *));
            free(array);
        }
    free(c->far);
    free(c->merging);
}

/* ---- timers: a postponed timer keeps its place in the heap, and moves when its old time is reached */

static int timer_before(const struct ina_timer *a, const struct ina_timer *b)
{
    return a->key != b->key ? a->key < b->key : a->timer < b->timer;
}

static void put(struct ina_timers *timers, uint32_t place, struct ina_timer timer)
{
    timers->heap[place] = timer;
    timers->place[timer.timer] = place;
}

static void sift_down(struct ina_timers *timers, uint32_t i, struct ina_timer timer)
{
    for (uint32_t child; (child = 2 * i + 1) < timers->count; i = child) {
        if (child + 1 < timers->count && timer_before(&timers->heap[child + 1], &timers->heap[child]))
            child++;
        if (!timer_before(&timers->heap[child], &timer))
            break;
        put(timers, i, timers->heap[child]);
    }
    put(timers, i, timer);
}

int ina_timers_add(struct ina_timers *timers)
{
    if (timers->count == timers->capacity) {
        uint32_t capacity = timers->capacity ? 2 * timers->capacity : 64;
        uint64_t *due = realloc(timers->due, capacity * sizeof *due);
        if (due)
            timers->due = due;
        struct ina_timer *heap = realloc(timers->heap, capacity * sizeof *heap);
        if (heap)
            timers->heap = heap;
        uint32_t *place = realloc(timers->place, capacity * sizeof *place);
        if (place)
            timers->place = place;
        if (!due || !heap || !place)
            return -ENOMEM;
        timers->capacity = capacity;
    }
    uint32_t timer = timers->count++;
    timers->due[timer] = UINT64_MAX; /* the latest of all, so its place at the end is right */
    put(timers, timer, (struct ina_timer){UINT64_MAX, timer});
    return (int)timer;
}

void ina_timers_move(struct ina_timers *timers, uint32_t timer)
{
    uint32_t i = timers->place[timer];
    const struct ina_timer moved = {timers->due[timer], timer};
    for (; i && timer_before(&moved, &timers->heap[(i - 1) / 2]); i = (i - 1) / 2)
        put(timers, i, timers->heap[(i - 1) / 2]);
    put(timers, i, moved);
}

uint64_t ina_timers_settle(struct ina_timers *timers)
{
    while (timers->heap[0].key != timers->due[timers->heap[0].timer]) {
        const uint32_t timer = timers->heap[0].timer;
        sift_down(timers, 0, (struct ina_timer){timers->due[timer], timer});
    }
    return timers->heap[0].key;
}
