/* Bells: what wakes the sleeping side of a shared-memory port. Not for Python, but for their making (port.h).
 *
 * Side 0 is a switch, whose data plane serves all jobs; side 1 a host, which may be hostile. Who is given a descriptor shares its
 * file description, and with it the flags: O_NONBLOCK, once set, may be cleared by the other side at any time. So no call here
 * depends on flags, and nothing that a host does to its descriptors makes the switch wait:
 *
 *   host -> switch  an eventfd. The switch only reads it, with RWF_NOWAIT. No socket: file descriptors that a peer passes over a
 *                   Unix socket are closed by who receives, and closing a TCP socket takes as long as its SO_LINGER says.
 *   switch -> host  a pair of datagram sockets, shut in the other direction. The switch only sends, with MSG_DONTWAIT. */
#ifndef INA_BELL_H
#define INA_BELL_H

/* A bell of `side` rings. 0 or -errno; that it rings already is no error. */
int ina_bell_ring(int fd, int side);
/* Makes the bell of `side` silent, and has no effect if it is. 0 or -errno. A host's keeps what rang while it was awake, so that
 * it may wake up in vain; looking for more each time would cost more than that. */
int ina_bell_hush(int fd, int side);
#endif
