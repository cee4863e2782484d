/* Inside host/: common part of ports over sockets (port_udp.c, port_packet.c): buffers that are lent, messages that are sent in
 * batches, one system call for each, and no error that ends the port. Each kind receives in its own way.
 *
 * A message is a frame without its first `before` bytes: 0, or the headers that the kernel makes. What the two kinds do in their own
 * ways is set before ina_socket_init. */
#ifndef INA_PORT_SOCKET_H
#define INA_PORT_SOCKET_H

#include <sys/socket.h>

#include "lend.h"
#include "port.h"

struct ina_socket_port {
    struct ina_port port;
    uint32_t before;                   /* bytes */
    uint32_t control;                  /* bytes of one of `controls` */
    /* Bytes of the message of a frame in lent buffer i; -1: it cannot be sent. */
    int (*message_of)(const struct ina_socket_port *p, uint32_t i, const struct ina_packet *pkt);
    void (*send)(struct ina_socket_port *p, uint32_t n); /* the messages tx_iovs[0..n) */
    uint32_t frames, stride, area;     /* buffers each way; bytes of one, and of its part that is used */
    uint32_t tx_lent;
    struct ina_lend lend;
    struct mmsghdr *tx_msgs;           /* `frames`, as of all arrays below */
    struct iovec *tx_iovs;
    void *controls;                    /* control messages, for the kind's own use */
    uint8_t *rx_frames, *tx_frames;
};

/* Buffers for batches of `frames` in `p`, which is zeroed but for what the kind sets; its descriptor is -1, until the caller has one. 0, or
 * -errno (-EINVAL: numbers out of range); ina_socket_close frees what is there in any case. */
int ina_socket_init(struct ina_socket_port *p, const struct ina_port_ops *ops, uint32_t max_frame, uint32_t frames);
void ina_socket_buffers(int fd, int bytes); /* as large as the system allows, both ways */

/* Messages at sockets: up to `want` into `messages`, each prepared for it. Returns how many came; errors are counted. */
uint32_t ina_socket_receive(struct ina_socket_port *p, struct mmsghdr *messages, uint32_t want);
/* Before each batch: while no frame is lent, the first slots are used again, which lie in the processor's caches; a walk over the whole
 * ring would find none of them there. */
void ina_socket_begin(struct ina_socket_port *p);
uint32_t ina_socket_room(const struct ina_socket_port *p); /* slots that are not lent */
uint8_t *ina_socket_message(const struct ina_socket_port *p, uint32_t slot); /* where a received message lies in it */
/* Lends the frame in the next slot, with a message of `bytes`; its first `before` bytes are the caller's to write. */
void ina_socket_lend(struct ina_socket_port *p, uint32_t bytes, struct ina_packet *pkt);

/* 1: the frame lies in lent buffer i and is no longer than the port's longest. */
int ina_socket_fits(const struct ina_socket_port *p, uint32_t i, const struct ina_packet *pkt);
/* Sends tx_msgs[0..n), all or as many as the socket takes; counts each frame once (a message has one in each of its iovs). Returns
 * how many it is done with: fewer than n, if the kernel does not take messages of several frames. */
uint32_t ina_socket_send(struct ina_socket_port *p, uint32_t n);

/* Operations that need nothing more. For messages in the socket there is nothing to arm: it is readable, so poll returns at once. */
void ina_socket_rx_done(struct ina_port *port, int n);
int ina_socket_tx_get(struct ina_port *port, struct ina_packet *pkts, int want);
void ina_socket_tx_put(struct ina_port *port, struct ina_packet *pkts, int n, uint64_t now);
void ina_socket_close(struct ina_port *port);

#endif
