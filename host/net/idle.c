#include "idle.h"

#include <sched.h>

#include "port.h"

static const uint64_t LONG = 300000000u;             /* 0.3 ms: more than a burst of packets, less than a time slice */
static const uint64_t FIRST_PENALTY = 10000000000u;  /* 10 ms */
static const uint64_t LAST_PENALTY = 1000000000000u; /* 1 s: then a long yield is lost 0.3 % of the time */

void ina_idle_init(struct ina_idle *idle, uint32_t yields)
{
    *idle = (struct ina_idle){.yields = yields, .left = yields, .penalty = FIRST_PENALTY};
}

void ina_idle_busy(struct ina_idle *idle)
{
    idle->left = idle->yields;
    idle->since = 0;
}

int ina_idle_yield(struct ina_idle *idle)
{
    uint64_t before = ina_now();
    if (!idle->since)
        idle->since = before;
    if ((!idle->left && before - idle->since >= idle->span) || before < idle->not_before)
        return 0;
    idle->left -= idle->left != 0;
    sched_yield();
    uint64_t after = ina_now();
    if (after - before > LONG) {
        idle->not_before = after + idle->penalty;
        idle->penalty = idle->penalty < LAST_PENALTY / 2 ? 2 * idle->penalty : LAST_PENALTY;
    } else if (idle->penalty > FIRST_PENALTY && after > idle->not_before + idle->penalty) {
        idle->penalty = FIRST_PENALTY; /* yields have been short for as long as the penalty lasted */
    }
    return 1;
}
