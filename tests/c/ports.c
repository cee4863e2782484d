/* Drives link, faults and every kind of port for the sanitizers, and checks what comes out. Argument: a folder for the
 * capture file. Exit status 0: all well. */
#define _GNU_SOURCE 1
#include <arpa/inet.h>
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fault.h"
#include "link.h"
#include "port_link.h"
#include "segment.h"
#include "traffic.h"

static void memory(void)
{
    struct ina_port *pair[2];
    CHECK(ina_port_mem_pair(48, MAX_FRAME, pair) < 0);
    CHECK(ina_port_mem_pair(FRAMES, MAX_FRAME, pair) == 0);
    CHECK(traffic(pair[0], pair[1], 1) == 5000);
    CHECK(traffic(pair[1], pair[0], 1) == 5000);
    struct ina_packet pkts[FRAMES + 1];
    CHECK(ina_port_tx_get(pair[0], pkts, FRAMES + 1) == FRAMES && pair[0]->stats.tx_full == 1);
    pkts[0].len = MAX_FRAME + 1;       /* too long */
    pkts[1].data = pkts[2].data;       /* not where it was lent */
    pkts[1].len = 60;
    pkts[2].data -= INA_PORT_HEADROOM + 1; /* in front of its buffer */
    pkts[2].len = 60;
    pkts[3].len = MAX_FRAME;
    pkts[3].data[0] = 77;
    ina_port_tx_put(pair[0], pkts, FRAMES, 0);
    CHECK(pair[0]->stats.tx_malformed == 3 && pair[0]->stats.tx_packets == 5001);
    CHECK(ina_port_arm(pair[1]) == 1 && ina_port_wait(pair[1], 0) == 1);
    CHECK(ina_port_rx(pair[1], pkts, FRAMES, 0) == 1 && pkts[0].data[0] == 77 && pkts[0].len == MAX_FRAME);
    CHECK(pair[1]->stats.rx_malformed == 0);
    ina_port_rx_done(pair[1], 1);
    CHECK(ina_port_wait(pair[1], 1000000000) == 0);
    ina_port_close(pair[0]);
    ina_port_close(pair[1]);
}

/* A peer that writes nonsense: what is lent stays inside the frame it is in, and the port does not hang. */
static void hostile(void)
{
    int memfd = ina_shm_create(FRAMES, MAX_FRAME);
    struct ina_bells bells;
    CHECK(memfd >= 0 && ina_bells_create(&bells) == 0);
    struct ina_port *port = ina_port_shm_open(memfd, 1, bells.of_host, bells.of_switch);
    CHECK(port && !ina_port_shm_open(memfd, 2, -1, -1) && !ina_port_shm_open(bells.of_switch, 1, -1, -1));
    CHECK(!ina_port_shm_open(memfd, 1, bells.of_switch, -1) && errno == ENOTSOCK);
    CHECK(ftruncate(memfd, 4096) < 0); /* sealed */
    size_t size = ina_segment_size(FRAMES, MAX_FRAME);
    uint8_t *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
    CHECK(base != MAP_FAILED);
    struct ina_ring_control *control = (struct ina_ring_control *)(base + INA_LINE_PAIR);
    struct ina_ring_desc *desc = (struct ina_ring_desc *)(control + 2);
    struct ina_packet one[BATCH];
    control[0].head = FRAMES + 1; /* more than there are */
    CHECK(ina_port_rx(port, one, BATCH, 0) == 0 && port->stats.rx_malformed == 1 && ina_port_arm(port) == 0);
    control[0].head = UINT32_MAX; /* backwards */
    CHECK(ina_port_rx(port, one, BATCH, 0) == 0 && port->stats.rx_malformed == 3);
    control[0].head = 0;
    CHECK(ina_port_tx_get(port, one, BATCH) == BATCH);
    ina_port_tx_put(port, one, 0, 0);
    control[1].tail = 1; /* given back before it was sent: as if full */
    for (int frames = FRAMES; frames > 0; frames -= BATCH) {
        CHECK(ina_port_tx_get(port, one, BATCH) == BATCH);
        for (int i = 0; i < BATCH; i++)
            one[i].len = 64;
        ina_port_tx_put(port, one, BATCH, 0);
    }
    control[1].tail = FRAMES + 1;
    CHECK(ina_port_tx_get(port, one, BATCH) == 0 && port->stats.tx_full == 1);
    uint32_t seed = 3, lent = 0;
    for (int round = 0; round < 20000; round++) {
        struct ina_packet pkts[BATCH];
        struct ina_ring_desc *wild = &desc[number(&seed, FRAMES)];
        uint32_t values[4] = {number(&seed, MAX_FRAME + 2), UINT32_MAX - number(&seed, 200), number(&seed, 200), 0};
        wild->len = values[number(&seed, 4)];
        wild->wire_len = number(&seed, 2) ? wild->len : values[number(&seed, 4)];
        wild->offset = values[number(&seed, 4)];
        uint32_t tail = control[0].tail;
        control[0].head = number(&seed, 8) ? tail + number(&seed, FRAMES + 1) : number(&seed, UINT32_MAX);
        control[1].tail = number(&seed, 2) ? control[1].head : number(&seed, UINT32_MAX);
        int n = ina_port_rx(port, pkts, BATCH, 0);
        for (int i = 0; i < n; i++, lent++) {
            CHECK(pkts[i].len && pkts[i].len <= MAX_FRAME && pkts[i].wire_len >= pkts[i].len);
            CHECK(pkts[i].headroom + pkts[i].len + pkts[i].tailroom == INA_PORT_HEADROOM + MAX_FRAME);
            memset(pkts[i].data - pkts[i].headroom, 1, INA_PORT_HEADROOM + MAX_FRAME);
        }
        if (number(&seed, 2)) /* or keep them a while */
            ina_port_rx_done(port, n);
        else
            ina_port_rx_done(port, (int)number(&seed, 2 * FRAMES));
        n = ina_port_tx_get(port, pkts, BATCH);
        CHECK(n >= 0 && n <= BATCH);
        for (int i = 0; i < n; i++) {
            memset(pkts[i].data - pkts[i].headroom, 2, INA_PORT_HEADROOM + MAX_FRAME);
            pkts[i].len = 64;
        }
        ina_port_tx_put(port, pkts, n, 0);
    }
    CHECK(port->stats.tx_full > 1 && lent > 1000 && port->stats.rx_malformed > 1000);
    ina_port_close(port);
    *base ^= 1; /* another magic number */
    CHECK(!ina_port_shm_open(memfd, 0, -1, -1));
    munmap(base, size);
    ina_bells_close(&bells);
    close(memfd);
}

static struct ina_port *udp(int fd, uint16_t peer_port)
{
    struct ina_udp_config config = {
        .bind_ip = INADDR_LOOPBACK, .peer_ip = INADDR_LOOPBACK, .peer_port = peer_port,
        .src_ip = 0x0a000001, .dst_ip = 0x0a00fffe, .src_port = 4000, .dst_port = 0xbee0,
        .max_frame = MAX_FRAME, .frames = FRAMES};
    return fd < 0 ? ina_port_udp_open(&config) : ina_port_udp_adopt(&config, fd);
}

static void sockets(void)
{
    int fds[2];
    CHECK(ina_udp_pair(fds) == 0);
    struct ina_port *a = udp(fds[0], 0), *b = udp(fds[1], 0), *c = udp(-1, ina_port_udp_bound(a));
    CHECK(a && b && c && !udp(-1, 0) && errno == EDESTADDRREQ && !udp(STDIN_FILENO, 0));
    close(fds[0]);
    close(fds[1]);
    struct ina_packet pkts[BATCH];
    CHECK(traffic(b, a, 1) == 5000);
    CHECK(traffic(a, b, 1) == 5000);
    CHECK(ina_port_tx_get(c, pkts, 3) == 3);
    fill(&pkts[0], 1, 60);
    fill(&pkts[1], 1, 60);
    pkts[1].data[23] = 6; /* TCP */
    fill(&pkts[2], 1, 60);
    pkts[2].data[39] = 27; /* UDP length one beyond the frame */
    ina_port_tx_put(c, pkts, 3, 0);
    CHECK(c->stats.tx_packets == 1 && c->stats.tx_malformed == 2);
    CHECK(ina_port_rx(a, pkts, BATCH, 0) == 0 && a->stats.rx_packets == 5000); /* a stranger's */
    ina_port_close(a);
    ina_port_close(b);
    ina_port_close(c);
}

/* Datagrams of one length as one message, the last shorter, each with a number and bytes that follow from it. Returns how many are
 * longer than the port takes. */
static uint32_t send_joined(int fd, uint32_t *seed, uint32_t first, uint32_t count)
{
    static uint8_t message[65536];
    union {
        struct cmsghdr head;
        uint8_t space[CMSG_SPACE(sizeof(uint16_t))];
    } control = {.head = {.cmsg_len = CMSG_LEN(sizeof(uint16_t)), .cmsg_level = IPPROTO_UDP, .cmsg_type = 103 /* UDP_SEGMENT */}};
    const uint16_t size = (uint16_t)(8 + number(seed, MAX_FRAME - 42 + 20 - 8));
    const uint32_t last = 8 + number(seed, size - 7u), most = MAX_FRAME - 42;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t n = first + i;
        memset(message + i * size, (int)n, size);
        memcpy(message + i * size, &n, sizeof n);
    }
    memcpy(CMSG_DATA(&control.head), &size, sizeof size);
    struct iovec iov = {message, (count - 1) * size + last};
    struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    CHECK(sendmsg(fd, &header, 0) == (ssize_t)iov.iov_len);
    return (size > most ? count - 1 : 0) + (last > most);
}

/* Messages of several datagrams, taken a few at a time while earlier ones are still lent. */
static void joined(void)
{
    int fds[2];
    CHECK(ina_udp_pair(fds) == 0);
    struct ina_port *port = udp(fds[1], 0);
    struct ina_packet pkts[BATCH];
    uint32_t seed = 11, sent = 0, refused = 0, received = 0, last = 0, lent = 0;
    CHECK(port);
    close(fds[1]);
    for (int round = 0; round < 300; round++) {
        const uint32_t count = 1 + number(&seed, 64);
        refused += send_joined(fds[0], &seed, sent + 1, count);
        sent += count;
        do {
            int got = ina_port_rx(port, pkts, 1 + (int)number(&seed, BATCH), 0);
            CHECK(got >= 0 && got <= BATCH && (got || lent || !ina_port_arm(port)));
            for (int i = 0; i < got; i++, received++) {
                const uint32_t next = number_in(&pkts[i]);
                CHECK(next > last && next <= sent);
                last = next;
                memset(pkts[i].data - pkts[i].headroom, 0xff, pkts[i].headroom + pkts[i].len + pkts[i].tailroom);
            }
            lent += (uint32_t)got;
            const uint32_t back = !got ? lent : number(&seed, lent + 1);
            ina_port_rx_done(port, (int)back);
            lent -= back;
        } while (lent || number(&seed, 4) || (round == 299 && (ina_port_arm(port) || ina_port_wait(port, 1000000000))));
    }
    CHECK(sent == received + refused && refused > 100 && port->stats.rx_malformed == refused && port->stats.rx_packets == received);
    send_joined(fds[0], &seed, sent + 1, 64); /* closed with frames lent and others waiting */
    CHECK(ina_port_wait(port, 600000000000000) == 1 && ina_port_rx(port, pkts, 3, 0) >= 0);
    ina_port_close(port);
    close(fds[0]);
}

static void wrapped(const char *folder)
{
    char path[4096];
    struct ina_port *pair[2], *a, *b;
    struct ina_fault_config faults = {.loss = 0.05, .duplicate = 0.1, .reorder = 0.2, .corrupt = 0.05,
        .duplicate_delay_ps = 50000, .reorder_delay_ps = 20000, .seed = 5}, wrong = {.loss = 1.5};
    snprintf(path, sizeof path, "%s/faults.pcap", folder);
    CHECK(ina_port_mem_pair(FRAMES, MAX_FRAME, pair) == 0);
    CHECK(!ina_port_fault_wrap(pair[0], &wrong, NULL, 100) && !ina_port_fault_wrap(pair[0], NULL, NULL, 0));
    CHECK(!ina_port_pcap_wrap(pair[0], "/nowhere/to/be/found.pcap"));
    a = ina_port_fault_wrap(pair[0], NULL, &faults, 1000);
    faults.seed = 6;
    b = ina_port_fault_wrap(ina_port_pcap_wrap(pair[1], path), &faults, NULL, 1000);
    CHECK(a && b);
    uint32_t received = traffic(a, b, 0);
    struct ina_fault_report ra, rb;
    ina_port_fault_report(a, &ra);
    ina_port_fault_report(b, &rb);
    CHECK(!ra.tx_overflow && !rb.rx_overflow && ra.tx.packets == 5000);
    CHECK(rb.rx.packets == ra.tx.packets - ra.tx.lost - ra.tx.corrupted + ra.tx.duplicated);
    CHECK(received == rb.rx.packets - rb.rx.lost - rb.rx.corrupted + rb.rx.duplicated);
    CHECK(b->stats.rx_malformed == rb.rx.corrupted && b->stats.rx_packets == received);
    CHECK(traffic(b, a, 1) == 5000); /* that way there are no faults */

    struct ina_packet pkts[BATCH];
    CHECK(ina_port_tx_get(a, pkts, BATCH) == BATCH); /* closed with frames lent, delayed and not received */
    for (uint32_t i = 0; i < BATCH; i++)
        fill(&pkts[i], i, 100);
    ina_port_tx_put(a, pkts, BATCH, UINT64_MAX - 60000);
    CHECK(ina_port_rx(b, pkts, 4, UINT64_MAX - 60000) > 0);
    ina_port_tx_get(a, pkts, BATCH);
    ina_port_close(a);
    ina_port_close(b);
}

static void links(void)
{
    struct ina_link_config config = {.rate_bps = 100000000000, .delay_ps = 1000000, .queue_bytes = 20000};
    struct ina_link_item item;
    uint32_t seed = 9, accepted = 0, delivered = 0, discarded = 0;
    struct ina_link *link = ina_link_create(&config);
    CHECK(link);
    for (uint64_t now = 0, due; now < 100000000 || ina_link_next_due(link) != UINT64_MAX; now += number(&seed, 60000)) {
        if (now < 100000000)
            accepted += ina_link_enqueue(link, now, 84 + number(&seed, 1500), now) != INA_TAIL_DROP;
        while ((due = ina_link_next_due(link)) <= now) {
            if (ina_link_dequeue(link, due, &item)) {
                if (number(&seed, 10))
                    CHECK(ina_link_transmit(link, &item, due) >= due + config.delay_ps);
                else
                    discarded++;
            }
            delivered += (uint32_t)ina_link_deliver(link, due, &item);
        }
    }
    CHECK(accepted > 1000 && delivered + discarded == accepted && ina_link_get_stats(link)->tail_drops);
    CHECK(ina_link_serialisation(1, UINT32_MAX) == UINT64_MAX - 1 && ina_link_serialisation(100000000000, 332) == 26560);
    ina_link_destroy(link);
}

/* A link in front of a port: whole with room for everything, and with a queue that refuses frames all the time. */
static void linked(void)
{
    const struct ina_link_config wide = {.rate_bps = 0, .delay_ps = 30000};
    const struct ina_link_config narrow = {.rate_bps = 40000000000000, .queue_bytes = 3000};
    const struct ina_link_config *configs[] = {&wide, &narrow};
    for (int i = 0; i < 2; i++) {
        struct ina_port *pair[2];
        struct ina_link_stats stats;
        CHECK(ina_port_mem_pair(FRAMES, MAX_FRAME, pair) == 0);
        struct ina_port *far = ina_port_link_wrap(pair[1], configs[i]);
        CHECK(far);
        uint32_t received = traffic(pair[0], far, 1);
        ina_port_link_report(far, &stats);
        CHECK(received + stats.tail_drops == 5000 && stats.packets == received && far->stats.rx_packets == received);
        CHECK(i == 0 ? stats.tail_drops == 0 : stats.tail_drops > 100 && received > 100);
        CHECK(traffic(far, pair[0], 1) == 5000); /* the other way is no link */
        ina_port_close(pair[0]);
        ina_port_close(far);
    }
}

int main(int argc, char **argv)
{
    memory();
    hostile();
    sockets();
    joined();
    wrapped(argc > 1 ? argv[1] : ".");
    links();
    linked();
    return 0;
}
