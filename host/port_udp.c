/* A port over a UDP socket. Its user sees Ethernet frames; the socket carries what follows the first 42 bytes:
 *
 *     Ethernet 14 | IPv4 20 | UDP 8 | payload
 *
 * Received frames get headers with the addresses that the configuration names, whatever the socket's own are.
 * Frames of equal length that are sent together go to the kernel as one message, which it cuts up again (UDP_SEGMENT, udp(7)): a
 * third of the time for each. On the wire they are the same.
 * UDP may lose: a socket buffer that is full loses frames as a full queue would, and no error ends the port. */
#define _GNU_SOURCE 1 /* struct mmsghdr */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "port_socket.h"

enum { ETHERNET = 14, IPV4 = 20, UDP = 8, HEADERS = ETHERNET + IPV4 + UDP };
enum { SOCKET_BUFFER = 8 << 20, MOST_SEGMENTS = 64 /* as the oldest kernels that can */, LONGEST = 65507 /* bytes over IPv4 */ };
#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

union segment;

struct udp_port {
    struct ina_socket_port socket;
    struct sockaddr_in peer;     /* zero address or port: not learned yet */
    uint8_t headers[HEADERS];    /* of received frames; lengths and IPv4 checksum are filled in for each */
    uint32_t header_sum;         /* of the IPv4 words that do not change */
    uint32_t segments;           /* frames in one message at most */
    union segment *controls;     /* one for each message */
};

union segment { /* says how long the frames in a message are */
    struct cmsghdr head;
    uint8_t space[CMSG_SPACE(sizeof(uint16_t))];
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
    uint32_t first, got = ina_socket_receive(&p->socket, max, &first);
    int n = 0;
    (void)now;
    for (uint32_t slot = first; slot < first + got; slot++) {
        const struct mmsghdr *msg = &p->socket.rx_msgs[slot];
        if (msg->msg_hdr.msg_namelen != sizeof p->peer || !from_peer(p, &p->socket.senders[slot])) {
            port->stats.rx_foreign++;
            ina_lend_skip(&p->socket.lend);
        } else if (msg->msg_hdr.msg_flags & MSG_TRUNC) {
            port->stats.rx_malformed++;
            ina_lend_skip(&p->socket.lend);
        } else {
            ina_socket_lend(&p->socket, slot, &pkts[n]);
            write_headers(p, pkts[n++].data, msg->msg_len);
        }
    }
    return ina_socket_received(&p->socket, n);
}

/* ---- send ------------------------------------------------------------------------------------------------------ */

/* The payload of a frame that lies in lent buffer i: its length, or -1 if it is not IPv4 without options over UDP.
 * The UDP length says where it ends: short frames are padded to 60 bytes on Ethernet. */
static int payload_of(const struct udp_port *p, uint32_t i, const struct ina_packet *pkt)
{
    if (!ina_socket_fits(&p->socket, i, pkt))
        return -1;
    const uint8_t *ip = pkt->data + ETHERNET;
    uint32_t length = get16(ip + IPV4 + 4);
    if (get16(pkt->data + 12) != 0x0800 || ip[0] != 0x45 || ip[9] != IPPROTO_UDP || length < UDP
        || length > pkt->len - ETHERNET - IPV4)
        return -1;
    return (int)length - UDP;
}

/* Makes messages of the payloads tx_iovs[from..to): all but the last of one are of one length. Returns how many. */
static uint32_t make_messages(struct udp_port *p, uint32_t from, uint32_t to)
{
    struct iovec *iovs = p->socket.tx_iovs;
    uint32_t n = 0;
    for (uint32_t end; from < to; from = end) {
        struct msghdr *msg = &p->socket.tx_msgs[n].msg_hdr;
        const size_t length = iovs[from].iov_len;
        size_t total = length;
        for (end = from + 1; end < to && end - from < p->segments && iovs[end - 1].iov_len == length; end++) {
            if (!iovs[end].iov_len || iovs[end].iov_len > length || total + iovs[end].iov_len > LONGEST)
                break;
            total += iovs[end].iov_len;
        }
        msg->msg_iov = &iovs[from];
        msg->msg_iovlen = end - from;
        msg->msg_control = NULL;
        msg->msg_controllen = 0;
        if (end - from > 1) {
            union segment *control = &p->controls[n];
            const uint16_t size = (uint16_t)length;
            control->head = (struct cmsghdr){
                .cmsg_len = CMSG_LEN(sizeof size), .cmsg_level = IPPROTO_UDP, .cmsg_type = UDP_SEGMENT};
            memcpy(CMSG_DATA(&control->head), &size, sizeof size);
            msg->msg_control = control;
            msg->msg_controllen = sizeof *control;
        }
        n++;
    }
    return n;
}

/* Sends the payloads tx_iovs[0..n). */
static void send_payloads(struct udp_port *p, uint32_t n)
{
    uint32_t messages = make_messages(p, 0, n), done = ina_socket_send(&p->socket, messages);
    if (done == messages)
        return;
    p->segments = 1; /* this kernel does not, or not on this way: from now on one by one */
    uint32_t from = (uint32_t)(p->socket.tx_msgs[done].msg_hdr.msg_iov - p->socket.tx_iovs);
    ina_socket_send(&p->socket, make_messages(p, from, n));
}

static void udp_tx_put(struct ina_port *port, struct ina_packet *pkts, int n, uint64_t now)
{
    struct udp_port *p = (struct udp_port *)port;
    uint32_t messages = 0;
    (void)now;
    if (n > (int)p->socket.tx_lent)
        n = (int)p->socket.tx_lent;
    p->socket.tx_lent = 0;
    for (int i = 0; i < n; i++) {
        if (!pkts[i].len)
            continue;
        int payload = payload_of(p, (uint32_t)i, &pkts[i]);
        if (payload < 0) {
            port->stats.tx_malformed++;
        } else if (!p->peer.sin_addr.s_addr || !p->peer.sin_port) {
            port->stats.errors++;
        } else {
            p->socket.tx_iovs[messages++] = (struct iovec){pkts[i].data + HEADERS, (size_t)payload};
        }
    }
    send_payloads(p, messages);
}

/* ---- open ------------------------------------------------------------------------------------------------------- */

static void udp_close(struct ina_port *port)
{
    free(((struct udp_port *)port)->controls);
    ina_socket_close(port);
}

static const struct ina_port_ops UDP_OPS = {
    .rx = udp_rx,
    .rx_done = ina_socket_rx_done,
    .tx_get = ina_socket_tx_get,
    .tx_put = udp_tx_put,
    .arm = ina_socket_arm,
    .next_due = ina_socket_next_due,
    .close = udp_close,
};

static int open_socket(const struct ina_udp_config *config)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    ina_socket_buffers(fd, SOCKET_BUFFER);
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
    struct udp_port *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->socket.before = HEADERS;
    p->peer = (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(config->peer_port), .sin_addr.s_addr = htonl(config->peer_ip)};
    make_headers(p, config);
    p->segments = MOST_SEGMENTS;
    int error = -ina_socket_init(&p->socket, &UDP_OPS, config->max_frame, config->frames, 1);
    if (!error && !(p->controls = calloc(p->socket.frames, sizeof *p->controls)))
        error = ENOMEM;
    if (!error) {
        for (uint32_t i = 0; i < p->socket.frames; i++) {
            p->socket.tx_msgs[i].msg_hdr.msg_name = &p->peer;
            p->socket.tx_msgs[i].msg_hdr.msg_namelen = sizeof p->peer;
        }
        p->socket.port.fd = open_socket(config);
        error = p->socket.port.fd < 0 ? errno : 0;
    }
    if (!error)
        return &p->socket.port;
    udp_close(&p->socket.port);
    errno = error;
    return NULL;
}

uint16_t ina_port_udp_bound(const struct ina_port *port)
{
    struct sockaddr_in address = {0};
    socklen_t size = sizeof address;
    return getsockname(port->fd, (struct sockaddr *)&address, &size) < 0 ? 0 : ntohs(address.sin_port);
}
