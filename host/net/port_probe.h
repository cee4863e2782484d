/* One end of a link that is watched, and can be cut: probes between its two ends, below everything that uses the port.
 *
 * Each end of a link between switches sends a probe every interval and notes what it hears; whoever sees both ends' boards decides
 * (ina/worlds/testbed/link_detector.py). A probe is a frame to 01:80:c2:00:00:0e, which no bridge forwards (IEEE 802.1Q §8.6.3),
 * of the local experimental EtherType 88b6. Such frames are neither lent to the port's user nor sent for it, so that no host can
 * have a program send one: they count as `foreign`, as do probes that are not this link's.
 */
#ifndef INA_PORT_PROBE_H
#define INA_PORT_PROBE_H

#include "port.h"

enum { INA_CUT_RECEIVE = 1, INA_CUT_SEND = 2 };

/* Memory that a port and its controller share, perhaps of two processes: all zero at first, aligned to 8 bytes; each word is read
 * and written at once. */
struct ina_probe_board {
    /* the controller's */
    uint64_t interval_ps; /* between probes that this end sends; 0: none */
    uint64_t cut;         /* INA_CUT_*: frames that way are lost */
    /* the port's; times are ina_now's, those of `rx` its caller's */
    uint64_t sent;        /* probes; each has its number, from 1 on */
    uint64_t sent_at;     /* the last one, or later */
    uint64_t heard;       /* number of the last probe from the far end */
    uint64_t heard_at;    /* any frame came */
    uint64_t looked_at;   /* nothing was waiting */
    uint64_t foreign;     /* frames like probes that were none: dropped */
    uint64_t lost;        /* frames that were cut */
    uint64_t reserved[7];
};

struct ina_probe_config {
    uint64_t session; /* the same at both ends, hard to guess */
    uint32_t link, side; /* the link's number; 0 or 1 */
};

/* Takes ownership of `inner` (not when it fails). `board` must outlive the port. NULL + errno. */
struct ina_port *ina_port_probe_wrap(struct ina_port *inner, const struct ina_probe_config *config, struct ina_probe_board *board);

#endif
