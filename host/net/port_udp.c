/* A port over a UDP socket. Its user sees Ethernet frames; the socket carries what follows their headers (internet.h).
 *
 * Received frames get headers with the addresses that the configuration names, whatever the socket's own are.
 * Frames of equal length that are sent together go to the kernel as one message, which it cuts up again (UDP_SEGMENT, udp(7)), and
 * those that come together arrive as one (UDP_GRO); between sockets of one machine they need not be cut at all. That takes a quarter
 * of the time for each. On the wire they are the same.
 * Messages are received into a buffer and copied from there, for a frame needs room in front for its headers; to scatter them over
 * the slots takes the kernel as long as the copy. What a message has beyond `max` frames waits here, where poll does not see it: arm.
 * A socket has one peer, to which it is connected: the kernel keeps everybody else's datagrams away.
 * UDP may lose: a socket buffer that is full loses frames as a full queue would, and no error ends the port. */
#define _GNU_SOURCE 1 /* struct mmsghdr */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internet.h"
#include "memory.h"
#include "port_socket.h"

enum { UDP = INA_INTERNET_SIZE - INA_INTERNET_UDP };
enum { SOCKET_BUFFER = 8 << 20, MOST_SEGMENTS = 64 /* as the oldest kernels that can */, LONGEST = 65507 /* bytes over IPv4 */ };
enum { MESSAGES = 16, MESSAGE_BUFFER = 1 << 16 /* no message over IPv4 is longer, of however many datagrams */ };
#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

union segment { /* says how long the frames in a message are: those sent */
    struct cmsghdr head;
    uint8_t space[CMSG_SPACE(sizeof(uint16_t))];
};

union segments { /* those received */
    struct cmsghdr head;
    uint8_t space[CMSG_SPACE(sizeof(int))];
};

struct run { /* frames of one message that are not lent yet */
    const uint8_t *at;
    uint32_t left, segment; /* bytes: of all, and of each but the last, which may have fewer */
};

struct udp_port {
    struct ina_socket_port socket;
    struct sockaddr_in peer;
    struct ina_internet headers; /* of received frames; lengths and IPv4 checksum are filled in for each */
    uint32_t job_at;             /* byte of a payload, which is added to the source port; 0: none */
    uint32_t segments;           /* frames in one message at most */

    uint8_t *buffers;            /* MESSAGES of MESSAGE_BUFFER bytes, of which those that are used take memory */
    struct mmsghdr messages[MESSAGES];
    struct iovec iovs[MESSAGES];
    struct sockaddr_in senders[MESSAGES];
    union segments controls[MESSAGES];
    struct run runs[MESSAGES];   /* runs[next..end) wait to be lent */
    uint32_t next, end;
    uint32_t usual;              /* frames in a message, lately */
};

/* ---- receive --------------------------------------------------------------------------------------------------- */

static void make_headers(struct udp_port *p, const struct ina_udp_config *config)
{
    struct ina_address from = {.ip = config->src_ip, .port = config->src_port}, to = {.ip = config->dst_ip, .port = config->dst_port};
    memcpy(from.mac, config->src_mac, sizeof from.mac);
    memcpy(to.mac, config->dst_mac, sizeof to.mac);
    ina_internet_write(&p->headers, &from, &to, 0);
    p->headers.flags_fragment = 0; /* the kernel does not tell */
}

static void write_headers(const struct udp_port *p, uint8_t *frame, uint32_t payload)
{
    struct ina_internet *h = (struct ina_internet *)frame;
    *h = p->headers;
    h->total_len = htons((uint16_t)(INA_INTERNET_SIZE - INA_INTERNET_IP + payload));
    h->udp_len = htons((uint16_t)(UDP + payload));
    ina_internet_sum_up(h);
    if (p->job_at && p->job_at < payload)
        h->src_port = htons((uint16_t)(ntohs(p->headers.src_port) + frame[INA_INTERNET_SIZE + p->job_at]));
}

/* Others' datagrams may wait from before the socket was connected. */
static int from_peer(const struct udp_port *p, const struct sockaddr_in *sender)
{
    return p->peer.sin_addr.s_addr == sender->sin_addr.s_addr && p->peer.sin_port == sender->sin_port;
}

/* Bytes of each frame in a received message but the last. */
static uint32_t segment_of(struct msghdr *message, uint32_t length)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        int size;
        if (c->cmsg_level != IPPROTO_UDP || c->cmsg_type != UDP_GRO || c->cmsg_len < CMSG_LEN(sizeof size))
            continue;
        memcpy(&size, CMSG_DATA(c), sizeof size);
        if (size > 0)
            return (uint32_t)size;
    }
    return length;
}

/* Receives messages with about `want` frames. */
static void receive(struct udp_port *p, uint32_t want)
{
    struct ina_port_stats *stats = &p->socket.port.stats;
    uint32_t messages = want / p->usual, frames = 0;
    messages = !messages ? 1 : messages < MESSAGES ? messages : MESSAGES;
    for (uint32_t i = 0; i < messages; i++) {
        p->messages[i].msg_hdr.msg_namelen = sizeof p->senders[i];
        p->messages[i].msg_hdr.msg_controllen = sizeof p->controls[i];
    }
    const uint32_t got = ina_socket_receive(&p->socket, p->messages, messages);
    p->next = p->end = 0;
    for (uint32_t i = 0; i < got; i++) {
        struct msghdr *message = &p->messages[i].msg_hdr;
        const uint32_t length = p->messages[i].msg_len, segment = segment_of(message, length);
        const uint32_t n = length ? (length + segment - 1) / segment : 1;
        frames += n;
        if (message->msg_namelen != sizeof p->peer || !from_peer(p, &p->senders[i]))
            stats->rx_foreign += n;
        else if (message->msg_flags & (MSG_TRUNC | MSG_CTRUNC))
            stats->rx_malformed += n;
        else
            p->runs[p->end++] = (struct run){p->iovs[i].iov_base, length, segment};
    }
    if (got)
        p->usual = frames / got;
}

/* Lends frames of received messages, at most `room`; the next ones wait. */
static int lend(struct udp_port *p, struct ina_packet *pkts, uint32_t room)
{
    const uint32_t longest = p->socket.port.max_frame - INA_INTERNET_SIZE;
    uint32_t n = 0;
    while (n < room && p->next < p->end) {
        struct run *run = &p->runs[p->next];
        const uint32_t length = run->left < run->segment ? run->left : run->segment;
        if (length <= longest) {
            ina_socket_lend(&p->socket, length, &pkts[n]);
            memcpy(pkts[n].data + INA_INTERNET_SIZE, run->at, length);
            write_headers(p, pkts[n++].data, length);
        } else {
            p->socket.port.stats.rx_malformed++;
        }
        run->at += length;
        run->left -= length;
        p->next += !run->left;
    }
    return (int)n;
}

static int udp_rx(struct ina_port *port, struct ina_packet *pkts, int max, uint64_t now)
{
    struct udp_port *p = (struct udp_port *)port;
    ina_socket_begin(&p->socket);
    uint32_t room = ina_socket_room(&p->socket);
    (void)now;
    if (max <= 0)
        return 0;
    room = room < (uint32_t)max ? room : (uint32_t)max;
    int n = lend(p, pkts, room);
    if ((uint32_t)n == room)
        return n;
    receive(p, room - (uint32_t)n);
    return n + lend(p, pkts + n, room - (uint32_t)n);
}

static int udp_arm(struct ina_port *port)
{
    const struct udp_port *p = (struct udp_port *)port;
    return p->next < p->end;
}

/* ---- send ------------------------------------------------------------------------------------------------------ */

/* The payload of a frame that lies in lent buffer i: its length, or -1 if it is not IPv4 without options over UDP.
 * The UDP length says where it ends: short frames are padded to 60 bytes on Ethernet. */
static int payload_of(const struct ina_socket_port *p, uint32_t i, const struct ina_packet *pkt)
{
    if (!ina_socket_fits(p, i, pkt))
        return -1;
    const struct ina_internet *h = (const struct ina_internet *)pkt->data;
    const uint32_t length = ntohs(h->udp_len);
    if (h->ethertype != htons(INA_INTERNET_ETHERTYPE_IPV4) || h->version_ihl != INA_INTERNET_VERSION_IHL
        || h->protocol != INA_INTERNET_PROTOCOL_UDP || length < UDP || length > pkt->len - INA_INTERNET_UDP)
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
            union segment *control = (union segment *)p->socket.controls + n;
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
static void send_payloads(struct ina_socket_port *socket, uint32_t n)
{
    struct udp_port *p = (struct udp_port *)socket;
    uint32_t messages = make_messages(p, 0, n), done = ina_socket_send(socket, messages);
    if (done == messages)
        return;
    p->segments = 1; /* this kernel does not, or not on this route: from now on one by one */
    uint32_t from = (uint32_t)(socket->tx_msgs[done].msg_hdr.msg_iov - socket->tx_iovs);
    ina_socket_send(socket, make_messages(p, from, n));
}

/* ---- open ------------------------------------------------------------------------------------------------------- */

static void udp_close(struct ina_port *port)
{
    ina_release(((struct udp_port *)port)->buffers, (size_t)MESSAGES * MESSAGE_BUFFER);
    ina_socket_close(port);
}

static const struct ina_port_ops UDP_OPS = {
    .rx = udp_rx,
    .rx_done = ina_socket_rx_done,
    .tx_get = ina_socket_tx_get,
    .tx_put = ina_socket_tx_put,
    .arm = udp_arm,
    .close = udp_close,
};

static int bound_socket(uint32_t ip, uint16_t port)
{
    const struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(ip)};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && bind(fd, (const struct sockaddr *)&address, sizeof address) < 0) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

int ina_udp_pair(int fds[2])
{
    struct sockaddr_in address[2];
    int error = 0;
    for (int i = 0; i < 2; i++) {
        socklen_t size = sizeof address[i];
        fds[i] = bound_socket(INADDR_LOOPBACK, 0);
        if (fds[i] < 0 || getsockname(fds[i], (struct sockaddr *)&address[i], &size) < 0)
            error = errno;
    }
    for (int i = 0; i < 2 && !error; i++)
        if (connect(fds[i], (struct sockaddr *)&address[!i], sizeof address[!i]) < 0)
            error = errno;
    for (int i = 0; i < 2 && error; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return -error;
}

/* Owns the socket in any case, also on errors; -1: opens one. */
static int take_socket(struct udp_port *p, const struct ina_udp_config *config, int fd)
{
    socklen_t size = sizeof p->peer;
    if (fd >= 0) {
        p->socket.port.fd = fd;
        if (getpeername(fd, (struct sockaddr *)&p->peer, &size) < 0)
            return errno;
        if (p->peer.sin_family != AF_INET)
            return EAFNOSUPPORT;
    } else {
        p->peer = (struct sockaddr_in){
            .sin_family = AF_INET, .sin_port = htons(config->peer_port), .sin_addr.s_addr = htonl(config->peer_ip)};
        if (!config->peer_ip || !config->peer_port)
            return EDESTADDRREQ;
        p->socket.port.fd = bound_socket(config->bind_ip, config->bind_port);
        if (p->socket.port.fd < 0 || connect(p->socket.port.fd, (struct sockaddr *)&p->peer, size) < 0)
            return errno;
    }
    const int on = 1;
    ina_socket_buffers(p->socket.port.fd, SOCKET_BUFFER);
    (void)setsockopt(p->socket.port.fd, IPPROTO_UDP, UDP_GRO, &on, sizeof on); /* before Linux 5.0 each message is a frame */
    return 0;
}

static int make_buffers(struct udp_port *p)
{
    p->buffers = ina_zeroed((size_t)MESSAGES * MESSAGE_BUFFER);
    p->usual = 1;
    for (uint32_t i = 0; i < MESSAGES && p->buffers; i++) {
        p->iovs[i] = (struct iovec){p->buffers + (size_t)i * MESSAGE_BUFFER, MESSAGE_BUFFER};
        p->messages[i].msg_hdr = (struct msghdr){
            .msg_name = &p->senders[i], .msg_iov = &p->iovs[i], .msg_iovlen = 1, .msg_control = &p->controls[i]};
    }
    return p->buffers ? 0 : ENOMEM;
}

static struct ina_port *open_port(const struct ina_udp_config *config, int fd)
{
    struct udp_port *p = calloc(1, sizeof *p);
    if (!p) {
        if (fd >= 0)
            close(fd);
        errno = ENOMEM;
        return NULL;
    }
    p->socket.before = INA_INTERNET_SIZE;
    p->socket.control = sizeof(union segment);
    p->socket.message_of = payload_of;
    p->socket.send = send_payloads;
    make_headers(p, config);
    p->segments = MOST_SEGMENTS;
    int error = -ina_socket_init(&p->socket, &UDP_OPS, config->max_frame, config->frames);
    error = error ? error : make_buffers(p);
    const int refused = take_socket(p, config, fd);
    error = error ? error : refused;
    if (!error)
        return &p->socket.port;
    udp_close(&p->socket.port);
    errno = error;
    return NULL;
}

struct ina_port *ina_port_udp_open(const struct ina_udp_config *config)
{
    return open_port(config, -1);
}

struct ina_port *ina_port_udp_adopt(const struct ina_udp_config *config, int fd)
{
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return own < 0 ? NULL : open_port(config, own);
}

void ina_port_udp_jobs(struct ina_port *port, uint32_t job_at)
{
    ((struct udp_port *)port)->job_at = job_at;
}

uint16_t ina_port_udp_bound(const struct ina_port *port)
{
    struct sockaddr_in address = {0};
    socklen_t size = sizeof address;
    return getsockname(port->fd, (struct sockaddr *)&address, &size) < 0 ? 0 : ntohs(address.sin_port);
}
