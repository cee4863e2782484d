/* Port: frames in and out, in batches; the port owns the memory and lends it.
 *
 *   receive:  n = rx(port, pkts, max, now);  use pkts in place (may be rewritten);  rx_done(port, n)
 *   send:     n = tx_get(port, pkts, want);  fill data/len (headroom is there to use);  tx_put(port, pkts, k <= n)
 *   sleep:    if (!arm(port)) poll(fd);  drain(port);  the peer signals `fd` only while the port is armed
 *
 * rx and tx_get fill data, len, wire_len, headroom and tailroom; every other field of the descriptor is the caller's
 * and stays as it was. tx_get may lend fewer than asked (back-pressure, never a wait); calling it again before tx_put
 * lends the same frames anew. tx_put wants the lent frames in the order in which they were lent: it sends the first k
 * and takes the rest back; a frame whose len is 0 is not sent, and a wire_len below len means len.
 * rx lends each frame once, in order, until rx_done returns the n oldest.
 * A bell's owner drains it after poll and before the next rx and arm; rx never reads it.
 * Faults and capture (fault.h), and tags (tag.h), are ports that wrap a port. One thread drives a port.
 */
#ifndef INA_PORT_H
#define INA_PORT_H

#include <stdint.h>

#include "packet.h"

/* Limits of a port: bytes of a frame, frames per direction; and the headroom that it lends with a frame: whole
 * cache lines, so that a line begins behind 64 bytes of headers (Ethernet, IPv4, UDP and SwitchML's 22). Vectors of values that
 * lie across lines would take twice as many loads and stores. */
enum { INA_PORT_MIN_FRAME = 64, INA_PORT_MAX_FRAME = 9728, INA_PORT_MAX_FRAMES = 1 << 20, INA_PORT_HEADROOM = 128 };

struct ina_port_stats {
    uint64_t rx_packets, rx_bytes, tx_packets, tx_bytes;
    uint64_t rx_malformed;  /* frame the port itself could not accept (length out of range, bad CRC) */
    uint64_t rx_foreign;    /* datagram from another address than the peer's */
    uint64_t rx_forged;     /* frame without a right tag (tag.h) */
    uint64_t rx_replayed;   /* frame whose tag has been taken before, or is too old to know */
    uint64_t tx_full;       /* tx_get lent fewer frames than asked; frames that a full socket lost */
    uint64_t tx_malformed;  /* tx_put of a frame that cannot be sent: too long, not as lent, not UDP on a UDP port */
    uint64_t errors;        /* system calls that failed and were survived, frames to a peer not known yet */
    uint64_t wakeups;       /* times this side signalled its peer */
};

struct ina_port;

struct ina_port_ops {
    int (*rx)(struct ina_port *port, struct ina_packet *pkts, int max, uint64_t now);
    void (*rx_done)(struct ina_port *port, int n);
    int (*tx_get)(struct ina_port *port, struct ina_packet *pkts, int want);
    void (*tx_put)(struct ina_port *port, struct ina_packet *pkts, int n, uint64_t now);
    int (*arm)(struct ina_port *port);               /* 1: frames are waiting, do not sleep. NULL: nothing is to be armed */
    uint64_t (*next_due)(const struct ina_port *port); /* delayed frames (wrappers); UINT64_MAX: none. NULL: it delays none */
    /* Between tx_get and tx_put: the kth lent frame becomes the ith of those that `from`, a port with the same ops, has lent by
     * rx, and `from` gets the other for it: 1. `data` lies in that frame; 0: it does not, or the frame cannot be had; nothing
     * was done. NULL: such ports only copy. */
    int (*take)(struct ina_port *port, uint32_t k, struct ina_port *from, uint32_t i, const uint8_t *data);
    void (*close)(struct ina_port *port);            /* releases everything, the struct too */
};

enum ina_bell_kind { INA_NO_BELL, INA_BELL_OF_SWITCH, INA_BELL_OF_HOST };

struct ina_port {
    const struct ina_port_ops *ops;
    int fd;               /* readable when frames wait and the port was armed; -1: must be polled */
    enum ina_bell_kind bell; /* fd is a bell, readable until its owner drains it; none: a socket with messages */
    uint32_t max_frame;   /* longest frame, bytes */
    struct ina_port_stats stats;
};

/* Wall clock for real-time worlds: CLOCK_MONOTONIC in ps (64 bits last for 213 days of uptime). */
uint64_t ina_now(void);

/* Same calls as the ops, as functions (for bindings). */
int ina_port_rx(struct ina_port *port, struct ina_packet *pkts, int max, uint64_t now);
void ina_port_rx_done(struct ina_port *port, int n);
int ina_port_tx_get(struct ina_port *port, struct ina_packet *pkts, int want);
void ina_port_tx_put(struct ina_port *port, struct ina_packet *pkts, int n, uint64_t now);
int ina_port_arm(struct ina_port *port);
uint64_t ina_port_next_due(const struct ina_port *port);
void ina_port_close(struct ina_port *port);

/* Makes a bell silent again; does nothing for sockets. */
void ina_port_drain(struct ina_port *port);
/* For the owner of a single port: sleeps until frames wait, a delayed frame is due, or `timeout_ps` has passed.
 * 1: look (rx), 0: timed out, -errno. */
int ina_port_wait(struct ina_port *port, uint64_t timeout_ps);

/* ---- shared memory (port_shm.c): two single-producer single-consumer rings in one memfd -------------------------
 * Nothing has a name in a file system: the memfd and the bells travel over a Unix socket, so nothing is left behind
 * however a process ends. Side 0 is the switch, side 1 the host. The memfd is sealed against shrinking, and what the peer
 * writes into it is checked: a wrong length, offset or index is counted as rx_malformed. The switch looks at copies of frames,
 * which the host can change no more. Nor does anything that the host
 * does to its descriptors make the switch wait (bell.h). */
int ina_shm_create(uint32_t frames, uint32_t max_frame); /* memfd or -errno; frames: power of two per direction */
/* `of_switch` wakes side 0, and side 1 rings it; `of_host` wakes side 1, which side 0 rings by `to_host`. A host is given the
 * first and the last. */
struct ina_bells {
    int of_switch, to_host, of_host;
};
int ina_bells_create(struct ina_bells *bells); /* 0 or -errno */
void ina_bells_close(struct ina_bells *bells); /* -1 is none */
/* Maps `memfd` (the descriptors are dup'ed inside; the caller keeps and closes its own). `bell` wakes this side, by
 * `peer_bell` it wakes the other; -1: none. NULL + errno (EPROTO: not such a segment; EOPNOTSUPP, ENOTSOCK, EINVAL: not the
 * bell of this side, or a kernel before Linux 5.8). */
struct ina_port *ina_port_shm_open(int memfd, int side, int bell, int peer_bell);

/* ---- UDP (port_udp.c): strips and adds Ethernet + IPv4 + UDP, 42 bytes ------------------------------------------
 * Beside its frames it takes 64 KiB for what it receives, and up to 1 MiB after bursts of many messages. */
struct ina_udp_config {
    uint32_t bind_ip;       /* socket addresses, host byte order */
    uint32_t peer_ip;       /* the only peer to receive from and send to */
    uint16_t bind_port;
    uint16_t peer_port;
    /* addresses in the synthesised headers of received frames */
    uint32_t src_ip, dst_ip;
    uint16_t src_port, dst_port;
    uint8_t src_mac[6], dst_mac[6];
    uint32_t max_frame;
    uint32_t frames;        /* batch buffers */
};
struct ina_port *ina_port_udp_open(const struct ina_udp_config *config); /* NULL + errno; EDESTADDRREQ: no peer */
/* Two sockets on loopback that receive from each other only. 0 or -errno. */
int ina_udp_pair(int fds[2]);
/* As above over a socket that is bound and connected (it is dup'ed); bind and peer of `config` are ignored. */
struct ina_port *ina_port_udp_adopt(const struct ina_udp_config *config, int fd);
/* Makes the source port of received frames src_port + the byte at `job_at` of their payload (0: src_port): a peer sends frames
 * of all its jobs from one address, but each job has a source port of its own. `port` is none that wraps another. */
void ina_port_udp_jobs(struct ina_port *port, uint32_t job_at);
uint16_t ina_port_udp_bound(const struct ina_port *port); /* the socket's own port number (bind_port 0: any) */

/* ---- network interface (port_packet.c): an AF_PACKET socket; needs CAP_NET_RAW in the interface's network namespace ---
 * `frames`: lent at once per direction, rounded up to a power of two. NULL + errno (ENODEV, EPERM, EINVAL). */
struct ina_port *ina_port_packet_open(const char *interface, uint32_t max_frame, uint32_t frames);

/* ---- memory (port_mem.c): two cross-connected ports in one process, for tests and in-process worlds -------------- */
int ina_port_mem_pair(uint32_t frames, uint32_t max_frame, struct ina_port *pair[2]); /* 0 or -errno */

#endif
