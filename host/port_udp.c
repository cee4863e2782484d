/* A port over a UDP socket. Its user sees Ethernet frames; the socket carries what follows the first 42 bytes:
 *
 *     Ethernet 14 | IPv4 20 | UDP 8 | payload
 *
 * Received frames get headers with the addresses that the configuration names, whatever the socket's own are.
 * UDP may lose: a socket buffer that is full loses frames as a full queue would, and no error ends the port. */
#define _GNU_SOURCE 1 /* recvmmsg, sendmmsg */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lend.h"
#include "port.h"
#include "segment.h"

enum { ETHERNET = 14, IPV4 = 20, UDP = 8, HEADERS = ETHERNET + IPV4 + UDP };
enum { MAX_BATCH_FRAMES = 4096, SOCKET_BUFFER = 8 << 20 };

struct udp_port {
    struct ina_port port;
    struct sockaddr_in peer;     /* zero address or port: not learned yet */
    uint8_t headers[HEADERS];    /* of received frames; lengths and IPv4 checksum are filled in for each */
    uint32_t header_sum;         /* of the IPv4 words that do not change */
    uint32_t frames, stride, area;
    uint32_t tx_lent;
    struct ina_lend lend;
    struct mmsghdr *rx_msgs, *tx_msgs; /* `frames` each, as all arrays below */
    struct iovec *rx_iovs, *tx_iovs;
    struct sockaddr_in *senders;
    uint8_t *rx_frames, *tx_frames;
};

static void put16(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static void put32(uint8_t *at, uint32_t value)
{
    put16(at, value >> 16);
    put16(at + 2, value & 0xffff);
}

static uint32_t get16(const uint8_t *at)
{
    return (uint32_t)at[0] << 8 | at[1];
}

/* ---- receive --------------------------------------------------------------------------------------------------- */

static void make_headers(struct udp_port *p, const struct ina_udp_config *config)
{
    uint8_t *ip = p->headers + ETHERNET, *udp = ip + IPV4;
    memcpy(p->headers, config->dst_mac, 6);
    memcpy(p->headers + 6, config->src_mac, 6);
    put16(p->headers + 12, 0x0800);
    ip[0] = 0x45; /* version 4, 5 words */
    ip[8] = 64;   /* TTL */
    ip[9] = IPPROTO_UDP;
    put32(ip + 12, config->src_ip);
    put32(ip + 16, config->dst_ip);
    put16(udp, config->src_port);
    put16(udp + 2, config->dst_port);
    for (int i = 0; i < IPV4; i += 2)
        p->header_sum += get16(ip + i);
}

static void write_headers(const struct udp_port *p, uint8_t *frame, uint32_t payload)
{
    uint8_t *ip = frame + ETHERNET;
    uint32_t total = IPV4 + UDP + payload, sum = p->header_sum + total; /* RFC 1071: ones' complement of the sum */
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    memcpy(frame, p->headers, HEADERS);
    put16(ip + 2, total);
    put16(ip + 10, ~sum & 0xffff);
    put16(ip + IPV4 + 4, UDP + payload);
}

static int from_peer(struct udp_port *p, const struct sockaddr_in *sender)
{
    struct sockaddr_in *peer = &p->peer;
    if ((peer->sin_addr.s_addr && peer->sin_addr.s_addr != sender->sin_addr.s_addr)
        || (peer->sin_port && peer->sin_port != sender->sin_port))
        return 0;
    peer->sin_addr = sender->sin_addr;
    peer->sin_port = sender->sin_port;
    return 1;
}

static int udp_rx(struct ina_port *port, struct ina_packet *pkts, int max, uint64_t now)
{
    struct udp_port *p = (struct udp_port *)port;
    uint32_t first = p->lend.next & p->lend.mask, room = p->frames - (p->lend.next - p->lend.done);
    uint32_t want = max > 0 ? (uint32_t)max : 0;
    int n = 0;
    (void)now;
    want = want < room ? want : room;
    want = want < p->frames - first ? want : p->frames - first;
    if (!want)
        return 0;
    for (uint32_t i = first; i < first + want; i++)
        p->rx_msgs[i].msg_hdr.msg_namelen = sizeof *p->senders;
    int got = recvmmsg(port->fd, &p->rx_msgs[first], want, MSG_DONTWAIT, NULL);
    if (got < 0) {
        port->stats.errors += errno != EAGAIN && errno != EINTR;
        return 0;
    }
    for (uint32_t slot = first; slot < first + (uint32_t)got; slot++) {
        const struct mmsghdr *msg = &p->rx_msgs[slot];
        if (msg->msg_hdr.msg_namelen != sizeof *p->senders || !from_peer(p, &p->senders[slot])) {
            port->stats.rx_foreign++;
            ina_lend_skip(&p->lend);
            continue;
        }
        if (msg->msg_hdr.msg_flags & MSG_TRUNC) {
            port->stats.rx_malformed++;
            ina_lend_skip(&p->lend);
            continue;
        }
        struct ina_packet *pkt = &pkts[n++];
        pkt->data = p->rx_frames + (size_t)slot * p->stride + INA_PORT_HEADROOM;
        write_headers(p, pkt->data, msg->msg_len);
        pkt->len = pkt->wire_len = HEADERS + msg->msg_len;
        pkt->headroom = INA_PORT_HEADROOM;
        pkt->tailroom = p->area - INA_PORT_HEADROOM - pkt->len;
        port->stats.rx_bytes += pkt->len;
        p->lend.next++;
    }
    port->stats.rx_packets += (uint64_t)n;
    ina_lend_return(&p->lend, 0);
    return n;
}

static void udp_rx_done(struct ina_port *port, int n)
{
    if (n > 0)
        ina_lend_return(&((struct udp_port *)port)->lend, (uint32_t)n);
}

static int udp_arm(struct ina_port *port)
{
    (void)port;
    return 0; /* a socket with datagrams is readable: poll returns at once */
}

/* ---- send ------------------------------------------------------------------------------------------------------ */

static int udp_tx_get(struct ina_port *port, struct ina_packet *pkts, int want)
{
    struct udp_port *p = (struct udp_port *)port;
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

/* The payload of a frame that lies in lent buffer i: its length, or -1 if it is not IPv4 without options over UDP.
 * The UDP length says where it ends: short frames are padded to 60 bytes on Ethernet. */
static int payload_of(const struct udp_port *p, uint32_t i, const struct ina_packet *pkt)
{
    uintptr_t offset = (uintptr_t)pkt->data - (uintptr_t)(p->tx_frames + (size_t)i * p->stride);
    if (pkt->len < HEADERS || pkt->len > p->port.max_frame || offset > p->area - pkt->len)
        return -1;
    const uint8_t *ip = pkt->data + ETHERNET;
    uint32_t length = get16(ip + IPV4 + 4);
    if (get16(pkt->data + 12) != 0x0800 || ip[0] != 0x45 || ip[9] != IPPROTO_UDP || length < UDP
        || length > pkt->len - ETHERNET - IPV4)
        return -1;
    return (int)length - UDP;
}

/* Sends msgs[0..n), all of them or as many as the socket takes; counts each frame once. */
static void send_all(struct udp_port *p, uint32_t n)
{
    struct ina_port_stats *stats = &p->port.stats;
    uint32_t at = 0, refused = 0;
    while (at < n) {
        int sent = sendmmsg(p->port.fd, &p->tx_msgs[at], n - at, MSG_DONTWAIT);
        for (int i = 0; i < sent; i++)
            stats->tx_bytes += HEADERS + p->tx_msgs[at + (uint32_t)i].msg_len;
        if (sent > 0) {
            stats->tx_packets += (uint64_t)sent;
            at += (uint32_t)sent;
        } else if (errno == EAGAIN || errno == ENOBUFS) {
            stats->tx_full += n - at; /* lost, as in a full queue */
            return;
        } else if (errno == EINTR || (errno == ECONNREFUSED && refused < n)) {
            stats->errors += errno == ECONNREFUSED; /* an earlier datagram's error: this one has not been tried */
            refused += errno == ECONNREFUSED;
        } else {
            stats->errors++; /* this datagram's own */
            at++;
        }
    }
}

static void udp_tx_put(struct ina_port *port, struct ina_packet *pkts, int n, uint64_t now)
{
    struct udp_port *p = (struct udp_port *)port;
    uint32_t messages = 0;
    (void)now;
    if (n > (int)p->tx_lent)
        n = (int)p->tx_lent;
    p->tx_lent = 0;
    for (int i = 0; i < n; i++) {
        if (!pkts[i].len)
            continue;
        int payload = payload_of(p, (uint32_t)i, &pkts[i]);
        if (payload < 0) {
            port->stats.tx_malformed++;
        } else if (!p->peer.sin_addr.s_addr || !p->peer.sin_port) {
            port->stats.errors++;
        } else {
            p->tx_iovs[messages++] = (struct iovec){pkts[i].data + HEADERS, (size_t)payload};
        }
    }
    send_all(p, messages);
}

static uint64_t udp_next_due(const struct ina_port *port)
{
    (void)port;
    return UINT64_MAX;
}

/* ---- open and close -------------------------------------------------------------------------------------------- */

static void udp_close(struct ina_port *port)
{
    struct udp_port *p = (struct udp_port *)port;
    if (port->fd >= 0)
        close(port->fd);
    free(p->lend.skip);
    free(p->rx_msgs);
    free(p->tx_msgs);
    free(p->rx_iovs);
    free(p->tx_iovs);
    free(p->senders);
    free(p->rx_frames);
    free(p->tx_frames);
    free(p);
}

static const struct ina_port_ops UDP_OPS = {
    .rx = udp_rx,
    .rx_done = udp_rx_done,
    .tx_get = udp_tx_get,
    .tx_put = udp_tx_put,
    .arm = udp_arm,
    .next_due = udp_next_due,
    .close = udp_close,
};

static int allocate(struct udp_port *p)
{
    uint32_t n = p->frames;
    p->lend.skip = calloc(n, 1);
    p->rx_msgs = calloc(n, sizeof *p->rx_msgs);
    p->tx_msgs = calloc(n, sizeof *p->tx_msgs);
    p->rx_iovs = calloc(n, sizeof *p->rx_iovs);
    p->tx_iovs = calloc(n, sizeof *p->tx_iovs);
    p->senders = calloc(n, sizeof *p->senders);
    p->rx_frames = calloc(n, p->stride);
    p->tx_frames = calloc(n, p->stride);
    if (!p->lend.skip || !p->rx_msgs || !p->tx_msgs || !p->rx_iovs || !p->tx_iovs || !p->senders || !p->rx_frames
        || !p->tx_frames)
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        uint8_t *payload = p->rx_frames + (size_t)i * p->stride + INA_PORT_HEADROOM + HEADERS;
        p->rx_iovs[i] = (struct iovec){payload, p->port.max_frame - HEADERS};
        p->rx_msgs[i].msg_hdr = (struct msghdr){
            .msg_name = &p->senders[i], .msg_iov = &p->rx_iovs[i], .msg_iovlen = 1};
        p->tx_msgs[i].msg_hdr = (struct msghdr){
            .msg_name = &p->peer, .msg_namelen = sizeof p->peer, .msg_iov = &p->tx_iovs[i], .msg_iovlen = 1};
    }
    return 1;
}

static int open_socket(const struct ina_udp_config *config)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    int size = SOCKET_BUFFER;
    /* Beyond the system's limit if we may, else up to it (the kernel clips; it is not an error). */
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size) < 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size) < 0)
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(config->bind_port), .sin_addr.s_addr = htonl(config->bind_ip)};
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

struct ina_port *ina_port_udp_open(const struct ina_udp_config *config)
{
    if (!config->frames || config->frames > MAX_BATCH_FRAMES || config->max_frame < INA_PORT_MIN_FRAME
        || config->max_frame > INA_PORT_MAX_FRAME) {
        errno = EINVAL;
        return NULL;
    }
    struct udp_port *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->port = (struct ina_port){.ops = &UDP_OPS, .fd = -1, .max_frame = config->max_frame};
    p->frames = 1;
    while (p->frames < config->frames)
        p->frames *= 2;
    p->lend.mask = p->frames - 1;
    p->stride = ina_segment_stride(config->max_frame);
    p->area = INA_PORT_HEADROOM + config->max_frame;
    p->peer = (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(config->peer_port), .sin_addr.s_addr = htonl(config->peer_ip)};
    make_headers(p, config);
    if (!allocate(p) || (p->port.fd = open_socket(config)) < 0) {
        int error = errno;
        udp_close(&p->port);
        errno = error;
        return NULL;
    }
    return &p->port;
}

uint16_t ina_port_udp_bound(const struct ina_port *port)
{
    struct sockaddr_in address = {0};
    socklen_t size = sizeof address;
    return getsockname(port->fd, (struct sockaddr *)&address, &size) < 0 ? 0 : ntohs(address.sin_port);
}
