/* Idle: yields of a polling thread before it sleeps. Not for Python.
 *
 * A wake-up costs a sender microseconds and a sleeper tens of them; giving the processor away (sched_yield) and looking again
 * costs less than one, as long as the others on this processor are polling threads like this one. It is the wrong thing
 * beside a thread that computes: that one keeps the processor for its whole time slice, milliseconds, whereas a sleeper
 * that is woken gets it at once. So yields are timed, and after a long one this thread only sleeps for a while.
 *
 *     if (work()) ina_idle_busy(&idle);
 *     else if (!ina_idle_yield(&idle)) sleep();
 */
#ifndef INA_IDLE_H
#define INA_IDLE_H

#include <stdint.h>

struct ina_idle {
    uint32_t yields;     /* before sleeping, at least */
    uint32_t left;
    uint64_t span;       /* ps: and for so long, as long as they are short */
    uint64_t since;      /* ps: of the first yield after work; 0: none yet */
    uint64_t not_before; /* ps: no yields until then */
    uint64_t penalty;    /* ps: how long the next long yield forbids them */
};

void ina_idle_init(struct ina_idle *idle, uint32_t yields); /* span: 0 */
void ina_idle_busy(struct ina_idle *idle);
int ina_idle_yield(struct ina_idle *idle); /* 1: look again; 0: sleep */

#endif
