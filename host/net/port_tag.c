/* A port that adds a tag to each frame that it sends, and takes only frames with right ones. */
#include <errno.h>
#include <stdlib.h>

#include "internet.h"
#include "lend.h"
#include "tag.h"

enum { UDP = INA_INTERNET_SIZE - INA_INTERNET_UDP };
enum { LENT = 1 << 12 }; /* frames at most, each way: as many as a socket's port lends */
enum { CHECKED = 64 };   /* whose tags are checked, or written, at once */

struct room { /* of a lent frame */
    uint8_t *first, *end;
};

struct tag_port {
    struct ina_port port;
    struct ina_port *inner;
    uint64_t rx_key[2], tx_key[2];
    uint64_t sent;                  /* number of the last frame */
    struct ina_tag_window window;
    struct ina_lend lend;           /* frames of the inner port, some of which are lent on */
    uint8_t skip[LENT];
    struct room staged[LENT];       /* of the frames that tx_get has lent, without their tags */
    int staged_count;
    uint64_t tx_malformed;
    uint64_t untagged;              /* frames that the inner port had sent before */
};

/* The inner port's counters, but received frames and all bytes are those of frames without tags, as this port's user sees them.
 * Other threads read them meanwhile: each is written once, with its new value. */
static void share_stats(struct tag_port *p)
{
    const struct ina_port_stats *inner = &p->inner->stats;
    struct ina_port_stats *stats = &p->port.stats;
    stats->tx_packets = inner->tx_packets;
    stats->tx_bytes = inner->tx_bytes - INA_TAG_SIZE * (inner->tx_packets - p->untagged);
    stats->rx_malformed = inner->rx_malformed;
    stats->rx_foreign = inner->rx_foreign;
    stats->tx_full = inner->tx_full;
    stats->tx_malformed = inner->tx_malformed + p->tx_malformed;
    stats->errors = inner->errors;
    stats->wakeups = inner->wakeups;
}

static void set_payload(struct ina_packet *pkt, uint32_t payload)
{
    struct ina_internet *h = (struct ina_internet *)pkt->data;
    h->total_len = htons((uint16_t)(INA_INTERNET_SIZE - INA_INTERNET_IP + payload));
    h->udp_len = htons((uint16_t)(UDP + payload));
    h->udp_checksum = 0;
    ina_internet_sum_up(h);
    pkt->len = pkt->wire_len = INA_INTERNET_SIZE + payload;
}

/* ---- receive --------------------------------------------------------------------------------------------------- */

/* The payload of a received frame, with its tag; none: it can have no right one. */
static struct ina_tag_payload received_payload(struct ina_packet *pkt)
{
    const int bytes = pkt->len < INA_INTERNET_SIZE ? -1 : ina_internet_payload((const struct ina_internet *)pkt->data, pkt->len);
    return (struct ina_tag_payload){pkt->data + INA_INTERNET_SIZE, bytes > 0 ? (uint32_t)bytes : 0};
}

/* Checks received frames, up to CHECKED. verdicts: of each. Those that are right lose their tags. */
static void open_frames(struct tag_port *p, struct ina_packet *pkts, int n, uint8_t *verdicts)
{
    struct ina_tag_payload payloads[CHECKED] = {0};
    for (int i = 0; i < n; i++)
        payloads[i] = received_payload(&pkts[i]);
    ina_tag_check(p->rx_key, &p->window, payloads, (uint32_t)n, verdicts);
    for (int i = 0; i < n; i++) {
        p->port.stats.rx_forged += verdicts[i] == INA_TAG_FORGED;
        p->port.stats.rx_replayed += verdicts[i] == INA_TAG_REPLAYED;
        if (verdicts[i] != INA_TAG_RIGHT)
            continue;
        const uint32_t before = pkts[i].len;
        set_payload(&pkts[i], payloads[i].length - INA_TAG_SIZE);
        pkts[i].tailroom += before - pkts[i].len;
    }
}

/* Takes back the n oldest frames that are lent, with those that were dropped between them. */
static void give_back(struct tag_port *p, int n)
{
    const uint32_t before = p->lend.done;
    ina_lend_return(&p->lend, n > 0 ? (uint32_t)n : 0);
    ina_port_rx_done(p->inner, (int)(p->lend.done - before));
}

static int tag_rx(struct ina_port *port, struct ina_packet *pkts, int max, uint64_t now)
{
    struct tag_port *p = (struct tag_port *)port;
    const int room = (int)(LENT - (p->lend.next - p->lend.done)), got = ina_port_rx(p->inner, pkts, max < room ? max : room, now);
    uint8_t verdicts[CHECKED];
    int n = 0;
    for (int i = 0; i < got; i++) {
        struct ina_packet *pkt = &pkts[i];
        if (i % CHECKED == 0)
            open_frames(p, pkt, got - i < CHECKED ? got - i : CHECKED, verdicts);
        if (verdicts[i % CHECKED] != INA_TAG_RIGHT) {
            ina_lend_skip(&p->lend);
            continue;
        }
        pkts[n].data = pkt->data;
        pkts[n].len = pkt->len;
        pkts[n].wire_len = pkt->wire_len;
        pkts[n].headroom = pkt->headroom;
        pkts[n].tailroom = pkt->tailroom;
        port->stats.rx_bytes += pkts[n++].len;
        p->lend.next++;
    }
    port->stats.rx_packets += (uint64_t)n;
    give_back(p, 0); /* what was dropped before the first that is lent */
    share_stats(p);
    return n;
}

static void tag_rx_done(struct ina_port *port, int n)
{
    give_back((struct tag_port *)port, n);
}

/* ---- send ------------------------------------------------------------------------------------------------------ */

static int tag_tx_get(struct ina_port *port, struct ina_packet *pkts, int want)
{
    struct tag_port *p = (struct tag_port *)port;
    p->staged_count = ina_port_tx_get(p->inner, pkts, want < LENT ? want : LENT);
    for (int i = 0; i < p->staged_count; i++) {
        pkts[i].tailroom -= INA_TAG_SIZE;
        p->staged[i] = (struct room){pkts[i].data - pkts[i].headroom, pkts[i].data + pkts[i].tailroom};
    }
    share_stats(p);
    return p->staged_count;
}

/* The payload of a frame, which was lent with `room`, in which a tag may follow it. `bytes` NULL: it is none that can have one. */
static struct ina_tag_payload sent_payload(const struct tag_port *p, struct room room, const struct ina_packet *pkt)
{
    const struct ina_tag_payload none = {0};
    const uintptr_t offset = (uintptr_t)pkt->data - (uintptr_t)room.first, area = (uintptr_t)(room.end - room.first);
    if (pkt->len < INA_INTERNET_SIZE || pkt->len > p->port.max_frame || offset > area - pkt->len)
        return none;
    const struct ina_internet *h = (const struct ina_internet *)pkt->data;
    const uint32_t length = ntohs(h->udp_len);
    if (h->ethertype != htons(INA_INTERNET_ETHERTYPE_IPV4) || h->version_ihl != INA_INTERNET_VERSION_IHL
        || h->protocol != INA_INTERNET_PROTOCOL_UDP || length < UDP || length > pkt->len - INA_INTERNET_UDP)
        return none;
    return (struct ina_tag_payload){pkt->data + INA_INTERNET_SIZE, length - UDP};
}

/* Adds tags to frames, up to CHECKED; those that can have none are left out of the batch. */
static void close_frames(struct tag_port *p, const struct room *rooms, struct ina_packet *pkts, int n)
{
    struct ina_tag_payload payloads[CHECKED] = {0};
    struct ina_packet *tagged[CHECKED];
    uint32_t count = 0;
    for (int i = 0; i < n; i++) {
        if (!pkts[i].len)
            continue;
        payloads[count] = sent_payload(p, rooms[i], &pkts[i]);
        if (payloads[count].bytes) {
            tagged[count++] = &pkts[i];
        } else {
            pkts[i].len = 0;
            p->tx_malformed++;
        }
    }
    ina_tag_write(p->tx_key, p->sent + 1, payloads, count);
    p->sent += count;
    for (uint32_t i = 0; i < count; i++)
        set_payload(tagged[i], payloads[i].length + INA_TAG_SIZE);
}

static void tag_tx_put(struct ina_port *port, struct ina_packet *pkts, int n, uint64_t now)
{
    struct tag_port *p = (struct tag_port *)port;
    const int count = n < p->staged_count ? n : p->staged_count;
    for (int i = 0; i < count; i += CHECKED)
        close_frames(p, &p->staged[i], &pkts[i], count - i < CHECKED ? count - i : CHECKED);
    p->staged_count = 0;
    ina_port_tx_put(p->inner, pkts, n, now);
    share_stats(p);
}

/* ---- the port -------------------------------------------------------------------------------------------------- */

static int tag_arm(struct ina_port *port)
{
    return ina_port_arm(((struct tag_port *)port)->inner);
}

static uint64_t tag_next_due(const struct ina_port *port)
{
    return ina_port_next_due(((const struct tag_port *)port)->inner);
}

static void tag_close(struct ina_port *port)
{
    struct tag_port *p = (struct tag_port *)port;
    ina_port_close(p->inner);
    free(p);
}

static const struct ina_port_ops TAG_OPS = {
    .rx = tag_rx,
    .rx_done = tag_rx_done,
    .tx_get = tag_tx_get,
    .tx_put = tag_tx_put,
    .arm = tag_arm,
    .next_due = tag_next_due,
    .close = tag_close,
};

struct ina_port *ina_port_tag_wrap(struct ina_port *inner, const uint8_t rx_key[INA_TAG_KEY], const uint8_t tx_key[INA_TAG_KEY])
{
    const int fits = inner->max_frame >= INA_PORT_MIN_FRAME + INA_TAG_SIZE;
    struct tag_port *p = fits ? calloc(1, sizeof *p) : NULL;
    if (!p) {
        errno = fits ? ENOMEM : EINVAL;
        return NULL;
    }
    p->port = (struct ina_port){
        .ops = &TAG_OPS, .fd = inner->fd, .bell = inner->bell, .max_frame = inner->max_frame - INA_TAG_SIZE};
    p->port.stats = inner->stats;
    p->untagged = inner->stats.tx_packets;
    p->inner = inner;
    p->lend = (struct ina_lend){.skip = p->skip, .mask = LENT - 1};
    ina_tag_key(p->rx_key, rx_key);
    ina_tag_key(p->tx_key, tx_key);
    return &p->port;
}
