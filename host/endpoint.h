/* Endpoint: the I/O shell of a protocol. One native thread drives one protocol state over one port; callers submit
 * tensors and wait. No lock is held while packets move, no Python is called: bindings release the GIL around wait.
 */
#ifndef INA_ENDPOINT_H
#define INA_ENDPOINT_H

#include "port.h"
#include "protocol.h"

struct ina_endpoint;

/* Takes ownership of `port`. `alive_fd`: a socket to the switch process; its hang-up fails the job (INA_ERR_PEER);
 * -1: none (dup'ed inside). NULL + errno. */
struct ina_endpoint *ina_endpoint_start(const struct ina_protocol *protocol, const struct ina_worker_config *config,
                                        struct ina_port *port, int alive_fd);
/* Ticket (> 0) or -errno (-EPIPE: the job has failed; -EINVAL). Blocks while INA_MAX_OPS are in flight (bounded by the
 * deadline of the oldest). Buffers must stay valid until the ticket is done. */
int64_t ina_endpoint_submit(struct ina_endpoint *endpoint, const struct ina_tensor *tensor);
/* 1: done, *event says how; 0: not within timeout_ns (0: poll; UINT64_MAX is refused with -EINVAL). */
int ina_endpoint_wait(struct ina_endpoint *endpoint, int64_t ticket, uint64_t timeout_ns, struct ina_event *event);
/* Next completed ticket in completion order, for a completion thread: ticket, 0 on time-out, -EPIPE once stopped. */
int64_t ina_endpoint_next(struct ina_endpoint *endpoint, uint64_t timeout_ns, struct ina_event *event);
void ina_endpoint_abort(struct ina_endpoint *endpoint);    /* fails what is in flight with INA_ERR_ABORTED */
void ina_endpoint_stats(struct ina_endpoint *endpoint, struct ina_worker_stats *stats, struct ina_port_stats *port);
void ina_endpoint_stop(struct ina_endpoint *endpoint);     /* joins the thread, closes the port, frees */

#endif
