/* The two queues of virtual time: frames on their way (a heap by time, then by the order of sending), and one timer a
 * node and purpose (an indexed heap, so that a timer that moves is moved, not left behind). */
#include <errno.h>
#include <stdlib.h>

#include "core.h"

static int before(const struct ina_arrival *a, const struct ina_arrival *b)
{
    return a->time != b->time ? a->time < b->time : a->number < b->number;
}

int ina_arrivals_push(struct ina_arrivals *arrivals, uint64_t time, uint32_t frame, struct ina_wire_end at)
{
    if (arrivals->count == arrivals->capacity) {
        uint32_t capacity = arrivals->capacity ? 2 * arrivals->capacity : 1024;
        struct ina_arrival *heap = realloc(arrivals->heap, (size_t)capacity * sizeof *heap);
        if (!heap)
            return -ENOMEM;
        arrivals->heap = heap;
        arrivals->capacity = capacity;
    }
    struct ina_arrival event = {.time = time, .number = arrivals->next_number++, .frame = frame, .at = at};
    uint32_t i = arrivals->count++;
    for (; i && before(&event, &arrivals->heap[(i - 1) / 2]); i = (i - 1) / 2)
        arrivals->heap[i] = arrivals->heap[(i - 1) / 2];
    arrivals->heap[i] = event;
    return 0;
}

int ina_arrivals_pop(struct ina_arrivals *arrivals, struct ina_arrival *out)
{
    if (!arrivals->count)
        return 0;
    *out = arrivals->heap[0];
    struct ina_arrival event = arrivals->heap[--arrivals->count];
    uint32_t i = 0, child;
    for (; (child = 2 * i + 1) < arrivals->count; i = child) {
        if (child + 1 < arrivals->count && before(&arrivals->heap[child + 1], &arrivals->heap[child]))
            child++;
        if (!before(&arrivals->heap[child], &event))
            break;
        arrivals->heap[i] = arrivals->heap[child];
    }
    arrivals->heap[i] = event;
    return 1;
}

static int timer_before(const struct ina_timers *timers, uint32_t a, uint32_t b)
{
    return timers->due[a] != timers->due[b] ? timers->due[a] < timers->due[b] : a < b;
}

static void put(struct ina_timers *timers, uint32_t place, uint32_t timer)
{
    timers->heap[place] = timer;
    timers->place[timer] = place;
}

int ina_timers_add(struct ina_timers *timers)
{
    if (timers->count == timers->capacity) {
        uint32_t capacity = timers->capacity ? 2 * timers->capacity : 64;
        uint64_t *due = realloc(timers->due, capacity * sizeof *due);
        if (due)
            timers->due = due;
        uint32_t *heap = realloc(timers->heap, capacity * sizeof *heap);
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
    timers->due[timer] = UINT64_MAX; /* the last of all: its place at the end is right */
    put(timers, timer, timer);
    return (int)timer;
}

void ina_timers_set(struct ina_timers *timers, uint32_t timer, uint64_t due)
{
    if (timers->due[timer] == due)
        return;
    timers->due[timer] = due;
    uint32_t i = timers->place[timer], child;
    for (; i && timer_before(timers, timer, timers->heap[(i - 1) / 2]); i = (i - 1) / 2)
        put(timers, i, timers->heap[(i - 1) / 2]);
    for (; (child = 2 * i + 1) < timers->count; i = child) {
        if (child + 1 < timers->count && timer_before(timers, timers->heap[child + 1], timers->heap[child]))
            child++;
        if (!timer_before(timers, timers->heap[child], timer))
            break;
        put(timers, i, timers->heap[child]);
    }
    put(timers, i, timer);
}

uint64_t ina_timers_first(const struct ina_timers *timers, uint32_t *timer)
{
    if (!timers->count)
        return UINT64_MAX;
    *timer = timers->heap[0];
    return timers->due[*timer];
}
