/* Jobs of one parameter server: one state for each (ps.h), selected by the job's number in a frame.
 * Sans-IO: the emulator drives it through `ina_ps_machine`; ps_server.h drives it over a port.
 */
#ifndef INA_PS_JOBS_H
#define INA_PS_JOBS_H

#include "protocol.h"
#include "ps.h"

struct ina_ps_jobs;

struct ina_ps_jobs *ina_ps_jobs_create(void);                       /* NULL: out of memory */
void ina_ps_jobs_destroy(struct ina_ps_jobs *jobs);
/* 0, -EINVAL (bad configuration), -EEXIST (there is a job of this number), -ENOMEM. */
int ina_ps_jobs_add(struct ina_ps_jobs *jobs, const struct ina_ps_config *config, uint64_t now);
int ina_ps_jobs_remove(struct ina_ps_jobs *jobs, uint32_t job);     /* 0 or -ENOENT */
int ina_ps_jobs_stats(const struct ina_ps_jobs *jobs, uint32_t job, struct ina_ps_stats *stats); /* 0 or -ENOENT */
uint64_t ina_ps_jobs_strangers(const struct ina_ps_jobs *jobs);     /* frames of no job */

/* receive, frames_to_send, next_timer, next_handle, submit and events over a struct ina_ps_jobs; it takes no tensors. */
extern const struct ina_protocol ina_ps_machine;

#endif
