/* A port over a network interface: an AF_PACKET socket (packet(7)) that takes every frame and sends any.
 *
 * Batched system calls, no checksums computed, no queueing discipline in between: what the kernel cannot send at once is
 * lost and counted, as in a full queue. What this machine sends out of the interface by other ways is not received here.
 * Frames must have their checksums and be no longer than the port's longest: switch the peer's offloads off
 * (`ethtool -K IF tx off tso off gso off`). The kernel takes the outer VLAN tag out of each frame; it is put back. */
#define _GNU_SOURCE 1 /* struct mmsghdr */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>

#include "port_socket.h"

enum { SOCKET_BUFFER = 16 << 20, TAG = 4, TAG_AT = 2 * ETH_ALEN }; /* bytes of a VLAN tag; its place in a frame (802.1Q) */

union control { /* of one received message */
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(struct tpacket_auxdata))];
};

struct packet_port {
    struct ina_socket_port socket;
    struct mmsghdr *messages; /* one for each slot, received right into it */
    struct iovec *iovs;       /* likewise */
};

/* The VLAN tag that the kernel took out of a message: type and value, as on the wire; 0: none. */
static uint32_t tag_of(struct msghdr *message)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        struct tpacket_auxdata aux;
        if (c->cmsg_level != SOL_PACKET || c->cmsg_type != PACKET_AUXDATA || c->cmsg_len < CMSG_LEN(sizeof aux))
            continue;
        memcpy(&aux, CMSG_DATA(c), sizeof aux);
        if (aux.tp_status & TP_STATUS_VLAN_VALID) {
            const uint32_t type = aux.tp_status & TP_STATUS_VLAN_TPID_VALID ? aux.tp_vlan_tpid : ETHERTYPE_VLAN;
            return htonl(type << 16 | aux.tp_vlan_tci);
        }
    }
    return 0;
}

/* Puts the tag that the kernel took out of the frame in `slot` back. 0: the frame is too long for it. */
static int put_tag_back(struct packet_port *p, uint32_t slot)
{
    struct mmsghdr *message = &p->messages[slot];
    const uint32_t tag = tag_of(&message->msg_hdr), len = message->msg_len;
    message->msg_hdr.msg_controllen = sizeof(union control); /* for the next one */
    if (!tag || len < TAG_AT)
        return 1;
    if (len > p->socket.port.max_frame - TAG)
        return 0;
    uint8_t *at = ina_socket_message(&p->socket, slot) + TAG_AT;
    memmove(at + TAG, at, len - TAG_AT);
    memcpy(at, &tag, TAG);
    message->msg_len += TAG;
    return 1;
}

static int packet_rx(struct ina_port *port, struct ina_packet *pkts, int max, uint64_t now)
{
    struct packet_port *p = (struct packet_port *)port;
    struct ina_lend *lend = &p->socket.lend;
    ina_socket_begin(&p->socket);
    const uint32_t first = lend->next & lend->mask, room = ina_socket_room(&p->socket), row = p->socket.frames - first;
    uint32_t want = max > 0 ? (uint32_t)max : 0;
    int n = 0;
    (void)now;
    want = want < room ? want : room;
    want = want < row ? want : row;
    const uint32_t got = ina_socket_receive(&p->socket, &p->messages[first], want);
    for (uint32_t slot = first; slot < first + got; slot++) {
        const int fits = put_tag_back(p, slot);
        if (!fits || p->messages[slot].msg_hdr.msg_flags & MSG_TRUNC || !p->messages[slot].msg_len) {
            port->stats.rx_malformed++;
            ina_lend_skip(lend);
        } else {
            ina_socket_lend(&p->socket, p->messages[slot].msg_len, &pkts[n++]);
        }
    }
    ina_lend_return(lend, 0); /* what was skipped before the first that is lent */
    return n;
}

static int message_of(const struct ina_socket_port *p, uint32_t i, const struct ina_packet *pkt)
{
    return pkt->len < sizeof(struct ether_header) || !ina_socket_fits(p, i, pkt) ? -1 : (int)pkt->len;
}

static void send_messages(struct ina_socket_port *p, uint32_t n)
{
    ina_socket_send(p, n);
}

static void packet_close(struct ina_port *port)
{
    struct packet_port *p = (struct packet_port *)port;
    free(p->messages);
    free(p->iovs);
    ina_socket_close(port);
}

static const struct ina_port_ops PACKET_OPS = {
    .rx = packet_rx,
    .rx_done = ina_socket_rx_done,
    .tx_get = ina_socket_tx_get,
    .tx_put = ina_socket_tx_put,
    .close = packet_close,
};

static int make_messages(struct packet_port *p)
{
    const uint32_t n = p->socket.frames;
    p->messages = calloc(n, sizeof *p->messages);
    p->iovs = calloc(n, sizeof *p->iovs);
    if (!p->messages || !p->iovs)
        return ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        p->iovs[i] = (struct iovec){ina_socket_message(&p->socket, i), p->socket.port.max_frame};
        p->messages[i].msg_hdr = (struct msghdr){.msg_iov = &p->iovs[i], .msg_iovlen = 1,
            .msg_control = (union control *)p->socket.controls + i, .msg_controllen = sizeof(union control)};
    }
    return 0;
}

static int configure(int fd, unsigned index)
{
    int on = 1;
    struct packet_mreq promiscuous = {.mr_ifindex = (int)index, .mr_type = PACKET_MR_PROMISC};
    struct sockaddr_ll address = {
        .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = (int)index};

    ina_socket_buffers(fd, SOCKET_BUFFER);
    if (setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) < 0
        || setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof on) < 0
        || setsockopt(fd, SOL_PACKET, PACKET_AUXDATA, &on, sizeof on) < 0
        || setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous, sizeof promiscuous) < 0)
        return -1;
    return bind(fd, (struct sockaddr *)&address, sizeof address); /* frames come from here on: none of other interfaces */
}

struct ina_port *ina_port_packet_open(const char *interface, uint32_t max_frame, uint32_t frames)
{
    unsigned index = if_nametoindex(interface);
    struct packet_port *p = index ? calloc(1, sizeof *p) : NULL;
    if (!p)
        return NULL;
    struct ina_port *port = &p->socket.port;
    p->socket.control = sizeof(union control);
    p->socket.message_of = message_of;
    p->socket.send = send_messages;
    int error = -ina_socket_init(&p->socket, &PACKET_OPS, max_frame, frames);
    error = error ? error : make_messages(p);
    if (!error) {
        port->fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        error = port->fd < 0 || configure(port->fd, index) < 0 ? errno : 0;
    }
    if (!error)
        return port;
    packet_close(port);
    errno = error;
    return NULL;
}
