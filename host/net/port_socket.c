#define _GNU_SOURCE 1 /* recvmmsg, sendmmsg */
#include "port_socket.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "segment.h"

enum { MAX_BATCH_FRAMES = 4096 };

/* ---- receive --------------------------------------------------------------------------------------------------- */

uint32_t ina_socket_receive(struct ina_socket_port *p, struct mmsghdr *messages, uint32_t want)
{
    int got = want ? recvmmsg(p->port.fd, messages, want, MSG_DONTWAIT, NULL) : 0;
    if (got < 0) {
        p->port.stats.errors += errno != EAGAIN && errno != EINTR; /* such as: the interface went down, or away */
        return 0;
    }
    return (uint32_t)got;
}

void ina_socket_begin(struct ina_socket_port *p)
{
    if (p->lend.next == p->lend.done)
        p->lend.next = p->lend.done = 0;
}

uint32_t ina_socket_room(const struct ina_socket_port *p)
{
    return p->frames - (p->lend.next - p->lend.done);
}

uint8_t *ina_socket_message(const struct ina_socket_port *p, uint32_t slot)
{
    return p->rx_frames + (size_t)slot * p->stride + INA_PORT_HEADROOM + p->before;
}

void ina_socket_lend(struct ina_socket_port *p, uint32_t bytes, struct ina_packet *pkt)
{
    pkt->data = ina_socket_message(p, p->lend.next++ & p->lend.mask) - p->before;
    pkt->len = pkt->wire_len = p->before + bytes;
    pkt->headroom = INA_PORT_HEADROOM;
    pkt->tailroom = p->area - INA_PORT_HEADROOM - pkt->len;
    p->port.stats.rx_packets++;
    p->port.stats.rx_bytes += pkt->len;
}

void ina_socket_rx_done(struct ina_port *port, int n)
{
    if (n > 0)
        ina_lend_return(&((struct ina_socket_port *)port)->lend, (uint32_t)n);
}

/* ---- send ------------------------------------------------------------------------------------------------------ */

int ina_socket_tx_get(struct ina_port *port, struct ina_packet *pkts, int want)
{
    struct ina_socket_port *p = (struct ina_socket_port *)port;
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

int ina_socket_fits(const struct ina_socket_port *p, uint32_t i, const struct ina_packet *pkt)
{
    uintptr_t offset = (uintptr_t)pkt->data - (uintptr_t)(p->tx_frames + (size_t)i * p->stride);
    return pkt->len >= p->before && pkt->len <= p->port.max_frame && offset <= p->area - pkt->len;
}

void ina_socket_tx_put(struct ina_port *port, struct ina_packet *pkts, int n, uint64_t now)
{
    struct ina_socket_port *p = (struct ina_socket_port *)port;
    uint32_t messages = 0;
    (void)now;
    if (n > (int)p->tx_lent)
        n = (int)p->tx_lent;
    p->tx_lent = 0;
    for (int i = 0; i < n; i++) {
        if (!pkts[i].len)
            continue;
        const int bytes = p->message_of(p, (uint32_t)i, &pkts[i]);
        if (bytes < 0)
            port->stats.tx_malformed++;
        else
            p->tx_iovs[messages++] = (struct iovec){pkts[i].data + p->before, (size_t)bytes};
    }
    p->send(p, messages);
}

uint32_t ina_socket_send(struct ina_socket_port *p, uint32_t n)
{
    struct ina_port_stats *stats = &p->port.stats;
    uint32_t at = 0, refused = 0;
    while (at < n) {
        int sent = sendmmsg(p->port.fd, &p->tx_msgs[at], n - at, MSG_DONTWAIT);
        for (uint32_t i = at; (int)(i - at) < sent; i++) {
            const size_t frames = p->tx_msgs[i].msg_hdr.msg_iovlen;
            stats->tx_packets += frames;
            stats->tx_bytes += frames * p->before + p->tx_msgs[i].msg_len;
        }
        if (sent > 0) {
            at += (uint32_t)sent;
        } else if (errno == EAGAIN || errno == ENOBUFS) {
            for (; at < n; at++)
                stats->tx_full += p->tx_msgs[at].msg_hdr.msg_iovlen; /* lost, as in a full queue */
        } else if (p->tx_msgs[at].msg_hdr.msg_iovlen > 1 && (errno == EIO || errno == EINVAL || errno == EMSGSIZE)) {
            return at;
        } else if (errno == EINTR || (errno == ECONNREFUSED && refused < n)) {
            stats->errors += errno == ECONNREFUSED; /* an earlier message's error: this one has not been tried */
            refused += errno == ECONNREFUSED;
        } else if (errno == EMSGSIZE) {
            stats->tx_malformed++; /* longer than the interface's MTU */
            at++;
        } else {
            stats->errors++; /* the interface is down, or away: this one is lost */
            at++;
        }
    }
    return n;
}

/* ---- open and close -------------------------------------------------------------------------------------------- */

void ina_socket_buffers(int fd, int bytes)
{
    /* Beyond the system's limit if we may, else up to it (the kernel clips; it is not an error). */
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) < 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes) < 0)
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

int ina_socket_init(struct ina_socket_port *p, const struct ina_port_ops *ops, uint32_t max_frame, uint32_t frames)
{
    p->port = (struct ina_port){.ops = ops, .fd = -1, .max_frame = max_frame};
    if (!frames || frames > MAX_BATCH_FRAMES || max_frame < INA_PORT_MIN_FRAME || max_frame > INA_PORT_MAX_FRAME)
        return -EINVAL;
    for (p->frames = 1; p->frames < frames;)
        p->frames *= 2;
    const uint32_t n = p->frames;
    p->lend.mask = n - 1;
    p->stride = ina_segment_stride(max_frame);
    p->area = INA_PORT_HEADROOM + max_frame;
    p->lend.skip = calloc(n, 1);
    p->tx_msgs = calloc(n, sizeof *p->tx_msgs);
    p->tx_iovs = calloc(n, sizeof *p->tx_iovs);
    p->controls = calloc(n, p->control);
    p->rx_frames = calloc(n, p->stride);
    p->tx_frames = calloc(n, p->stride);
    if (!p->lend.skip || !p->tx_msgs || !p->tx_iovs || !p->controls || !p->rx_frames || !p->tx_frames)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++)
        p->tx_msgs[i].msg_hdr = (struct msghdr){.msg_iov = &p->tx_iovs[i], .msg_iovlen = 1};
    return 0;
}

void ina_socket_close(struct ina_port *port)
{
    struct ina_socket_port *p = (struct ina_socket_port *)port;
    if (port->fd >= 0)
        close(port->fd);
    free(p->lend.skip);
    free(p->tx_msgs);
    free(p->tx_iovs);
    free(p->controls);
    free(p->rx_frames);
    free(p->tx_frames);
    free(p);
}
