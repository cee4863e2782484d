/* The calendar of virtual time against a list that is searched: the same events in the same order, whatever their times.
 *
 *     calendar SEED STEPS: exits with 0, or says what differs.
 */
#include <stdio.h>
#include <stdlib.h>

#include "ina/worlds/virtual/c/core.h"

enum { MOST = 1 << 14 };

static struct ina_timed_event list[MOST]; /* in the order in which they were added */
static int count;

static uint64_t random_below(uint64_t *state, uint64_t most)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state % most;
}

static int first(void)
{
    int found = 0;
    for (int i = 1; i < count; i++)
        if (list[i].time < list[found].time)
            found = i;
    return found;
}

int main(int argc, char **argv)
{
    uint64_t state = argc > 1 ? strtoull(argv[1], NULL, 10) * 2 + 1 : 1, now = 0, most = 1000;
    const long steps = argc > 2 ? atol(argv[2]) : 20000;
    struct ina_calendar calendar = {0};
    uint32_t number = 0;
    for (long step = 0; step < steps; step++) {
        if (step % 1000 == 0) /* how far ahead: from all at one instant to a second */
            most = 1ull << random_below(&state, 41);
        const int crowd = (int)random_below(&state, 200);
        if (count < MOST && random_below(&state, 4) + (count > crowd) < 3) {
            const struct ina_timed_event what = {now + random_below(&state, most), number++, 0};
            list[count++] = what;
            if (ina_calendar_push(&calendar, &what, now))
                return fprintf(stderr, "out of memory\n"), 1;
        } else if (random_below(&state, 8) == 0) { /* a look; and time passes, but not beyond what comes next */
            const uint64_t next = ina_calendar_first(&calendar), right = count ? list[first()].time : UINT64_MAX;
            if (next != right)
                return fprintf(stderr, "step %ld: first at %llu, not %llu\n", step, (unsigned long long)next,
                               (unsigned long long)right), 1;
            if (count && right > now)
                now += random_below(&state, right - now + 1);
        } else if (count) {
            struct ina_timed_event got;
            const int right = first();
            ina_calendar_first(&calendar);
            if (ina_calendar_pop(&calendar, &got))
                return fprintf(stderr, "out of memory\n"), 1;
            if (got.time != list[right].time || got.frame != list[right].frame)
                return fprintf(stderr, "step %ld: %u at %llu, not %u at %llu\n", step, got.frame,
                               (unsigned long long)got.time, list[right].frame, (unsigned long long)list[right].time), 1;
            now = got.time;
            for (int i = right; i + 1 < count; i++)
                list[i] = list[i + 1];
            count--;
        }
    }
    ina_calendar_destroy(&calendar);
    return 0;
}
