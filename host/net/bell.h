/* Bells: descriptors that wake the sleeping side of a shared-memory port. Python only creates them (port.h).
 *
 * Side 0 is a switch, whose data plane serves all jobs; side 1 a host, which may be hostile. Both ends share a
 * descriptor's file description, and with it the flags: either side may clear O_NONBLOCK at any time. So no call here
 * depends on flags, and nothing that a host does to its descriptors makes the switch wait:
 *
 *   host -> switch  an eventfd. The switch only reads it, with RWF_NOWAIT. No socket: file descriptors that a peer passes over a
 *                   Unix socket are closed by the receiver, and closing a TCP socket blocks for its SO_LINGER.
 *   switch -> host  a pair of datagram sockets, shut in the other direction. The switch only sends, with MSG_DONTWAIT. */
#ifndef INA_BELL_H
#define INA_BELL_H

/* A bell of `side` rings. 0 or -errno; that it rings already is no error. */
int ina_bell_ring(int fd, int side);
/* Makes the bell of `side` silent, and has no effect if it is. 0 or -errno. A host's keeps rings from
 * while it was awake, so that it may wake up in vain; draining them each time would cost more. */
int ina_bell_hush(int fd, int side);
#endif
