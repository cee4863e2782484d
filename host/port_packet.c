/* A port over a network interface: an AF_PACKET socket (packet(7)) that takes every frame and sends any.
 *
 * Batched system calls, no checksums computed, no queueing discipline in between: what the kernel cannot send at once is
 * lost and counted, as in a full queue. What this machine sends out of the interface by other ways is not received here.
 * Frames must have their checksums and be no longer than the port's longest: switch the peer's offloads off
 * (`ethtool -K IF tx off tso off gso off`). VLAN tags that the kernel takes out of frames are lost. */
#define _GNU_SOURCE 1 /* recvmmsg, sendmmsg */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lend.h"
#include "port.h"
#include "segment.h"

enum { MAX_BATCH_FRAMES = 4096, SOCKET_BUFFER = 16 << 20 };

struct packet_port {
    struct ina_port port;
    uint32_t frames, stride, area;
    uint32_t tx_lent;
    struct ina_lend lend;
    struct mmsghdr *rx_msgs, *tx_msgs; /* `frames` each, as all arrays below */
    struct iovec *rx_iovs, *tx_iovs;
    uint8_t *rx_frames, *tx_frames;
};

/* ---- receive --------------------------------------------------------------------------------------------------- */

static int packet_rx(struct ina_port *port, struct ina_packet *pkts, int max, uint64_t now)
{
    struct packet_port *p = (struct packet_port *)port;
    uint32_t first = p->lend.next & p->lend.mask, room = p->frames - (p->lend.next - p->lend.done);
    uint32_t want = max > 0 ? (uint32_t)max : 0;
    int n = 0;
    (void)now;
    want = want < room ? want : room;
    want = want < p->frames - first ? want : p->frames - first;
    if (!want)
        return 0;
    int got = recvmmsg(port->fd, &p->rx_msgs[first], want, MSG_DONTWAIT, NULL);
    if (got < 0) {
        port->stats.errors += errno != EAGAIN && errno != EINTR; /* the interface went down, or away */
        return 0;
    }
    for (uint32_t slot = first; slot < first + (uint32_t)got; slot++) {
        const struct mmsghdr *msg = &p->rx_msgs[slot];
        if (msg->msg_hdr.msg_flags & MSG_TRUNC || !msg->msg_len) {
            port->stats.rx_malformed++;
            ina_lend_skip(&p->lend);
            continue;
        }
        struct ina_packet *pkt = &pkts[n++];
        pkt->data = p->rx_frames + (size_t)slot * p->stride + INA_PORT_HEADROOM;
        pkt->len = pkt->wire_len = msg->msg_len;
        pkt->headroom = INA_PORT_HEADROOM;
        pkt->tailroom = p->area - INA_PORT_HEADROOM - pkt->len;
        port->stats.rx_bytes += pkt->len;
        p->lend.next++;
    }
    port->stats.rx_packets += (uint64_t)n;
    ina_lend_return(&p->lend, 0);
    return n;
}

static void packet_rx_done(struct ina_port *port, int n)
{
    if (n > 0)
        ina_lend_return(&((struct packet_port *)port)->lend, (uint32_t)n);
}

static int packet_arm(struct ina_port *port)
{
    (void)port;
    return 0; /* a socket with frames is readable: poll returns at once */
}

/* ---- send ------------------------------------------------------------------------------------------------------ */

static int packet_tx_get(struct ina_port *port, struct ina_packet *pkts, int want)
{
    struct packet_port *p = (struct packet_port *)port;
    uint32_t n = want > 0 ? (uint32_t)want : 0;
    if (n > p->frames) {
        port->stats.tx_full++;
        n = p->frames;
    }
    p->tx_lent = n;
    for (uint32_t i = 0; i < n; i++) {
        pkts[i].data = p->tx_frames + (size_t)i * p->stride + INA_PORT_HEADROOM;
        pkts[i].len = pkts[i].wire_len = 0;
        pkts[i].headroom = INA_PORT_HEADROOM;
        pkts[i].tailroom = p->area - INA_PORT_HEADROOM;
    }
    return (int)n;
}

/* Sends msgs[0..n); counts each frame once. */
static void send_all(struct packet_port *p, uint32_t n)
{
    struct ina_port_stats *stats = &p->port.stats;
    uint32_t at = 0;
    while (at < n) {
        int sent = sendmmsg(p->port.fd, &p->tx_msgs[at], n - at, MSG_DONTWAIT);
        for (int i = 0; i < sent; i++)
            stats->tx_bytes += p->tx_msgs[at + (uint32_t)i].msg_len;
        if (sent > 0) {
            stats->tx_packets += (uint64_t)sent;
            at += (uint32_t)sent;
        } else if (errno == EAGAIN || errno == ENOBUFS) {
            stats->tx_full += n - at; /* lost, as in a full queue */
            return;
        } else if (errno == EMSGSIZE || errno == EINVAL) {
            stats->tx_malformed++; /* longer than the interface's MTU, or shorter than an Ethernet header */
            at++;
        } else if (errno != EINTR) {
            stats->errors++; /* the interface is down, or away: this frame is lost */
            at++;
        }
    }
}

static void packet_tx_put(struct ina_port *port, struct ina_packet *pkts, int n, uint64_t now)
{
    struct packet_port *p = (struct packet_port *)port;
    uint32_t messages = 0;
    (void)now;
    if (n > (int)p->tx_lent)
        n = (int)p->tx_lent;
    p->tx_lent = 0;
    for (int i = 0; i < n; i++) {
        uintptr_t offset = (uintptr_t)pkts[i].data - (uintptr_t)(p->tx_frames + (size_t)i * p->stride);
        if (!pkts[i].len)
            continue;
        if (pkts[i].len > port->max_frame || offset > p->area - pkts[i].len)
            port->stats.tx_malformed++;
        else
            p->tx_iovs[messages++] = (struct iovec){pkts[i].data, pkts[i].len};
    }
    send_all(p, messages);
}

static uint64_t packet_next_due(const struct ina_port *port)
{
    (void)port;
    return UINT64_MAX;
}

/* ---- open and close -------------------------------------------------------------------------------------------- */

static void packet_close(struct ina_port *port)
{
    struct packet_port *p = (struct packet_port *)port;
    if (port->fd >= 0)
        close(port->fd);
    free(p->lend.skip);
    free(p->rx_msgs);
    free(p->tx_msgs);
    free(p->rx_iovs);
    free(p->tx_iovs);
    free(p->rx_frames);
    free(p->tx_frames);
    free(p);
}

static const struct ina_port_ops PACKET_OPS = {
    .rx = packet_rx,
    .rx_done = packet_rx_done,
    .tx_get = packet_tx_get,
    .tx_put = packet_tx_put,
    .arm = packet_arm,
    .next_due = packet_next_due,
    .close = packet_close,
};

static int allocate(struct packet_port *p)
{
    uint32_t n = p->frames;
    p->lend.skip = calloc(n, 1);
    p->rx_msgs = calloc(n, sizeof *p->rx_msgs);
    p->tx_msgs = calloc(n, sizeof *p->tx_msgs);
    p->rx_iovs = calloc(n, sizeof *p->rx_iovs);
    p->tx_iovs = calloc(n, sizeof *p->tx_iovs);
    p->rx_frames = calloc(n, p->stride);
    p->tx_frames = calloc(n, p->stride);
    if (!p->lend.skip || !p->rx_msgs || !p->tx_msgs || !p->rx_iovs || !p->tx_iovs || !p->rx_frames || !p->tx_frames)
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        p->rx_iovs[i] = (struct iovec){p->rx_frames + (size_t)i * p->stride + INA_PORT_HEADROOM, p->port.max_frame};
        p->rx_msgs[i].msg_hdr = (struct msghdr){.msg_iov = &p->rx_iovs[i], .msg_iovlen = 1};
        p->tx_msgs[i].msg_hdr = (struct msghdr){.msg_iov = &p->tx_iovs[i], .msg_iovlen = 1};
    }
    return 1;
}

static int configure(int fd, unsigned index)
{
    int on = 1, size = SOCKET_BUFFER;
    struct packet_mreq promiscuous = {.mr_ifindex = (int)index, .mr_type = PACKET_MR_PROMISC};
    struct sockaddr_ll address = {
        .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = (int)index};

    /* Beyond the system's limit if we may, else up to it (the kernel clips; it is not an error). */
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size) < 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size) < 0)
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    if (setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) < 0
        || setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof on) < 0
        || setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous, sizeof promiscuous) < 0)
        return -1;
    return bind(fd, (struct sockaddr *)&address, sizeof address); /* frames come from here on: none of other interfaces */
}

struct ina_port *ina_port_packet_open(const char *interface, uint32_t max_frame, uint32_t frames)
{
    if (!frames || frames > MAX_BATCH_FRAMES || max_frame < INA_PORT_MIN_FRAME || max_frame > INA_PORT_MAX_FRAME) {
        errno = EINVAL;
        return NULL;
    }
    unsigned index = if_nametoindex(interface);
    struct packet_port *p = index ? calloc(1, sizeof *p) : NULL;
    if (!p)
        return NULL;
    p->port = (struct ina_port){.ops = &PACKET_OPS, .fd = -1, .max_frame = max_frame};
    p->frames = 1;
    while (p->frames < frames)
        p->frames *= 2;
    p->lend.mask = p->frames - 1;
    p->stride = ina_segment_stride(max_frame);
    p->area = INA_PORT_HEADROOM + max_frame;
    if (!allocate(p) || (p->port.fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) < 0
        || configure(p->port.fd, index) < 0) {
        int error = errno;
        packet_close(&p->port);
        errno = error;
        return NULL;
    }
    return &p->port;
}
