/* Shared switch: a switch in one memfd that the processes at its ports map, and that whichever of them waits runs. No other
 * process has to be scheduled between a frame that is sent and the copies that come of it.
 *
 *     header | control plane: tables, groups | lock, counters | state of the program | a segment (segment.h) for each seat
 *
 * A seat is a port of the switch, and the process at it. That process sends a frame into its segment, takes the lock if it is
 * free, runs the program on all that lies in all segments, and finds what is for it in its own. Who finds the lock taken leaves
 * `pending` set, and the holder looks again: nobody waits for the lock, and no frame is left without a process that runs it.
 *
 *     sender:  publish frames; pending = 1; try the lock         holder:  pending = 0; run; unlock; pending? try again
 *
 * The control plane is fixed when the memory is made: its maker runs nothing and never touches the lock, in which the C library
 * trusts whoever can write to it. The lock is robust: a process that ends while it holds it (perhaps in the middle of a packet) leaves it dead for ever, and with it this
 * switch: a state that nobody can vouch for is never used again.
 *
 * Every process at a seat can write to all of it: it is for processes that may spoil each other's results anyway. Each works on
 * its own copy of the control plane, and lengths, offsets and indices in the segments are checked as for any port.
 */
#ifndef INA_SHARED_H
#define INA_SHARED_H

#include <stdint.h>

#include "port.h"
#include "program.h"
#include "switch.h"

enum { INA_SHARED_SEATS = 64 /* most: ports 0, 1, ... of the switch */ };

struct ina_shared_config {
    uint32_t seats;
    uint32_t frames, max_frame;  /* of each segment: frames per direction, a power of two; bytes */
    const uint64_t *table_bytes; /* of each table's image, in the order of the switch's tables */
};

struct ina_shared_turns {        /* of one seat */
    uint64_t turns;              /* times that its process took the lock and found frames */
    uint64_t packets;            /* frames that it ran the program on */
};

struct ina_shared_own {          /* what the process at a seat sees itself */
    struct ina_shared_turns turns;
    uint64_t kept_by;            /* the seat that had the lock when this process last wanted it, plus one; 0: it got it */
};

/* ---- the maker --------------------------------------------------------------------------------------------------
 * Puts the tables and groups of `sw`, a switch of a v1model program, into new memory, with fresh state: a memfd, or -errno
 * (-EINVAL: config; -ENOTSUP: the switch is of another architecture or has clone sessions; -EMFILE, -ENOMEM). */
int ina_shared_create(const struct ina_switch *sw, const struct ina_shared_config *config);

/* The memory as its maker sees it: it reads, and runs nothing. */
struct ina_shared;
struct ina_shared *ina_shared_map(int memfd); /* NULL + errno (EPROTO: no such memory, or of another version) */
void ina_shared_unmap(struct ina_shared *shared);
void *ina_shared_state(struct ina_shared *shared); /* for ina_switch_use_state */
/* As of the last time that each process slept. 0, -EINVAL: no such seat. */
int ina_shared_read(const struct ina_shared *shared, uint32_t seat, struct ina_shared_turns *turns,
                    struct ina_switch_port_stats *stats);
/* The seat whose process runs the switch, or ran it when it ended; -1: none. */
int ina_shared_holder(const struct ina_shared *shared);

/* ---- a process at a seat ----------------------------------------------------------------------------------------
 * The port at `seat`: its rx, tx_put and arm run the switch as well. `bell` wakes this process, `to_hosts` wake those at each
 * seat (bell.h); they and `memfd` are dup'ed. `own`: the caller's, kept up to date as long as the port is open. NULL + errno (EPROTO:
 * no such memory, of another program, or without that seat; EBADF: a seat of it has no bell). */
struct ina_port *ina_port_shared_open(int memfd, const struct ina_program *program, uint32_t seat, int bell,
                                      const int *to_hosts, struct ina_shared_own *own);

#endif
