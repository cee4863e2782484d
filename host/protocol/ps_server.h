/* A parameter server on a port: one native thread drives the states of all its jobs, which come and go. */
#ifndef INA_PS_SERVER_H
#define INA_PS_SERVER_H

#include "port.h"
#include "ps_jobs.h"

struct ina_ps_server;

/* Takes ownership of `port` (not when it fails). NULL + errno. */
struct ina_ps_server *ina_ps_server_start(struct ina_port *port);
/* As ina_ps_jobs_...; -EMSGSIZE: the port's frames are too short for this job's. Any thread may call. */
int ina_ps_server_add(struct ina_ps_server *server, const struct ina_ps_config *config);
int ina_ps_server_remove(struct ina_ps_server *server, uint32_t job);
int ina_ps_server_stats(struct ina_ps_server *server, uint32_t job, struct ina_ps_stats *stats);
/* Counters of the port, and frames of no job; either may be NULL. */
void ina_ps_server_port_stats(struct ina_ps_server *server, struct ina_port_stats *port, uint64_t *strangers);
void ina_ps_server_stop(struct ina_ps_server *server); /* joins the thread, closes the port, frees everything */

#endif
