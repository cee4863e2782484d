/* Completion rules: when a phase is complete, that is, whose values its sum has. A job has one, the same at its switches (as parameters
 * of its table entries), workers and parameter server. ina/aggregation/completion/ has the same rules by name, a file for each.
 */
#ifndef INA_COMPLETION_H
#define INA_COMPLETION_H

#include <stdint.h>

enum ina_rule_kind { INA_RULE_ALL = 0 /* every worker, once */, INA_RULES };

struct ina_rule {
    uint32_t kind;           /* enum ina_rule_kind */
};

#ifndef INA_CDEF
/* 1: there is such a rule. */
static inline int ina_rule_valid(struct ina_rule rule)
{
    return rule.kind < INA_RULES;
}

/* 1: a sum of the workers in `bitmap` is complete. `full`: the bitmap of all workers. */
static inline int ina_rule_complete(struct ina_rule rule, uint64_t bitmap, uint64_t full)
{
    (void)rule;
    return bitmap == full;
}

/* How many workers' values are in each complete sum of a job of so many. */
static inline uint32_t ina_rule_contributions(struct ina_rule rule, uint32_t workers)
{
    (void)rule;
    return workers;
}
#endif

#endif
