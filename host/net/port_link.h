/* A port at the far end of a link: received frames have been queued, serialised and delayed first (link.h). Sent frames
 * are not: a sender has its own link. */
#ifndef INA_PORT_LINK_H
#define INA_PORT_LINK_H

#include "link.h"
#include "port.h"

/* Takes ownership of `inner` (not when it fails). Frames are copied onto the link whenever the port is polled. NULL + errno. */
struct ina_port *ina_port_link_wrap(struct ina_port *inner, const struct ina_link_config *config);
/* Changes rate and delay, from any thread, for frames that are polled from now on. */
void ina_port_link_set(struct ina_port *port, uint64_t rate_bps, uint64_t delay_ps);
void ina_port_link_report(const struct ina_port *port, struct ina_link_stats *stats);

#endif
