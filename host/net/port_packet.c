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
static int put_tag_back(struct ina_socket_port *p, uint32_t slot)
{
    struct mmsghdr *message = &p->rx_msgs[slot];
    const uint32_t tag = tag_of(&message->msg_hdr), len = message->msg_len;
    message->msg_hdr.msg_controllen = sizeof(union control); /* for the next one */
    if (!tag || len < TAG_AT)
        return 1;
    if (len > p->port.max_frame - TAG)
        return 0;
    uint8_t *at = (uint8_t *)p->rx_iovs[slot].iov_base + TAG_AT;
    memmove(at + TAG, at, len - TAG_AT);
    memcpy(at, &tag, TAG);
    message->msg_len += TAG;
    return 1;
}

static int packet_rx(struct ina_port *port, struct ina_packet *pkts, int max, uint64_t now)
{
    struct ina_socket_port *p = (struct ina_socket_port *)port;
    uint32_t first, got = ina_socket_receive(p, max, &first);
    int n = 0;
    (void)now;
    for (uint32_t slot = first; slot < first + got; slot++) {
        const int fits = put_tag_back(p, slot);
        if (!fits || p->rx_msgs[slot].msg_hdr.msg_flags & MSG_TRUNC || !p->rx_msgs[slot].msg_len) {
            port->stats.rx_malformed++;
            ina_lend_skip(&p->lend);
        } else {
            ina_socket_lend(p, slot, &pkts[n++]);
        }
    }
    return ina_socket_received(p, n);
}

static int message_of(const struct ina_socket_port *p, uint32_t i, const struct ina_packet *pkt)
{
    return pkt->len < sizeof(struct ether_header) || !ina_socket_fits(p, i, pkt) ? -1 : (int)pkt->len;
}

static void send_messages(struct ina_socket_port *p, uint32_t n)
{
    ina_socket_send(p, n);
}

static const struct ina_port_ops PACKET_OPS = {
    .rx = packet_rx,
    .rx_done = ina_socket_rx_done,
    .tx_get = ina_socket_tx_get,
    .tx_put = ina_socket_tx_put,
    .close = ina_socket_close,
};

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
    struct ina_socket_port *p = index ? calloc(1, sizeof *p) : NULL;
    if (!p)
        return NULL;
    p->control = sizeof(union control);
    p->message_of = message_of;
    p->send = send_messages;
    int error = -ina_socket_init(p, &PACKET_OPS, max_frame, frames, 0);
    for (uint32_t i = 0; !error && i < p->frames; i++) {
        p->rx_msgs[i].msg_hdr.msg_control = (union control *)p->controls + i;
        p->rx_msgs[i].msg_hdr.msg_controllen = sizeof(union control);
    }
    if (!error) {
        p->port.fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        error = p->port.fd < 0 || configure(p->port.fd, index) < 0 ? errno : 0;
    }
    if (!error)
        return &p->port;
    ina_socket_close(&p->port);
    errno = error;
    return NULL;
}
