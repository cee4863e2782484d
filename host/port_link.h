/* A port at the far end of a link: what it receives has been queued, serialised and delayed first (link.h). What it sends
 * goes straight on: a sender has its own link. */
#ifndef INA_PORT_LINK_H
#define INA_PORT_LINK_H

#include "link.h"
#include "port.h"

/* Takes ownership of `inner` (not when it fails). `held`: frames on the link at once, a power of two and no more than
 * `inner` can lend; frames that find no place wait in `inner`. Frames are not copied. NULL + errno (EINVAL). */
struct ina_port *ina_port_link_wrap(struct ina_port *inner, const struct ina_link_config *config, uint32_t held);
void ina_port_link_report(const struct ina_port *port, struct ina_link_stats *stats);

#endif
