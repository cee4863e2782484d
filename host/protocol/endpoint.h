/* Endpoint: the I/O shell of a protocol. One protocol state on one port, driven by one thread at a time: by a caller that begins
 * a tensor or waits for one (a small one then costs no hand-off between threads), or by the endpoint's own, which goes on with what
 * nobody waits for, and else sleeps. Callers submit tensors and wait. A process that is forked from the one that has started it
 * cannot use it: its calls return -ECHILD, or do nothing. No lock is held while packets move, no Python
 * is called: bindings release the GIL around every call.
 */
#ifndef INA_ENDPOINT_H
#define INA_ENDPOINT_H

#include "port.h"
#include "protocol.h"

enum { INA_TICKETS = 4096 /* latest tensors whose results an endpoint keeps */ };

struct ina_endpoint;

/* Takes ownership of `port` (not when it fails). `alive_fd`: a socket to the switch process; its hang-up fails the job (INA_ERR_PEER);
 * -1: none (dup'ed inside; its data are not read). NULL + errno. */
struct ina_endpoint *ina_endpoint_start(const struct ina_protocol *protocol, const struct ina_worker_config *config,
                                        struct ina_port *port, int alive_fd);
/* The driver polls the port for so long after the last frame before it sleeps: for ports without a descriptor to
 * wait on, on machines with a processor to spare. 0 (at first): it does not. */
void ina_endpoint_spin(struct ina_endpoint *endpoint, uint64_t spin_ps);
/* Before it sleeps, the driver gives its processor away and looks again for so long (idle.h), as long as it comes back at once: where
 * processors sleep, which takes tens of microseconds to end, or others of the job wait for this one. 0 (at first): a few times. To be
 * called before the first tensor. */
void ina_endpoint_yield(struct ina_endpoint *endpoint, uint64_t span_ps);
/* Ticket (> 0) or -errno (-EPIPE: the job has failed; -EINVAL). Sends the first frames. Blocks while INA_MAX_OPS are in flight (bounded
 * by the deadline of the oldest). Buffers must stay valid until the ticket is done. */
int64_t ina_endpoint_submit(struct ina_endpoint *endpoint, const struct ina_tensor *tensor);
/* Says more of a chosen tensor's offer (struct ina_tensor: part, offer; the endpoint makes the offer that it needs): `in` is valid from now on
 * until the ticket is done, if the offer says GIVE. 0; 1: too late, the ticket is done; -EINVAL: no such ticket, or no such change. */
int ina_endpoint_amend(struct ina_endpoint *endpoint, int64_t ticket, const struct ina_offer *offer, const void *in);
/* 1: done, with the result in *event; 0: not within timeout_ns (0: poll); -EINVAL: no such ticket, or UINT64_MAX;
 * -ESTALE: INA_TICKETS ago. */
int ina_endpoint_wait(struct ina_endpoint *endpoint, int64_t ticket, uint64_t timeout_ns, struct ina_event *event);
/* Submits, and drives the protocol in this thread until the tensor is done: submit and wait for callers that have nothing
 * else to do. Ticket: done, or not within timeout_ns (event->type is 0: wait for it); -errno as submit. */
int64_t ina_endpoint_run(struct ina_endpoint *endpoint, const struct ina_tensor *tensor, uint64_t timeout_ns,
                         struct ina_event *event);
/* Next completed ticket in completion order, for one completion thread: ticket, 0 on time-out, -EPIPE once stopped. */
int64_t ina_endpoint_next(struct ina_endpoint *endpoint, uint64_t timeout_ns, struct ina_event *event);
/* 1: the job has failed, with the reason in *event; 0: it lives. */
int ina_endpoint_failure(struct ina_endpoint *endpoint, struct ina_event *event);
void ina_endpoint_abort(struct ina_endpoint *endpoint);    /* fails tensors in flight with INA_ERR_ABORTED, and the job */
/* As of the last completion or the last time the driver went to sleep. Either may be NULL. */
void ina_endpoint_stats(struct ina_endpoint *endpoint, struct ina_worker_stats *stats, struct ina_port_stats *port);
/* Fails tensors in flight, joins the thread, closes the port; waiting callers return. Later calls return -EPIPE. */
void ina_endpoint_close(struct ina_endpoint *endpoint);
void ina_endpoint_stop(struct ina_endpoint *endpoint); /* closes and frees: no caller may be inside any more */

#endif
