/* A port that sends probes when it is polled, takes those of the far end out of what it receives, and can be cut. */
#include "port_probe.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { PROBE_BYTES = 60 };

/*  0              6              12      14      18     22     26        34       42      60
 *  | destination  | source       | 88b6  | magic | link | side | session | number | zeros |      in this machine's byte order */
struct __attribute__((packed)) probe {
    uint8_t destination[6], source[6], type[2], magic[4];
    uint32_t link, side;
    uint64_t session, number;
};

static const uint8_t DESTINATION[6] = {0x01, 0x80, 0xc2, 0, 0, 0x0e}, SOURCE[6] = {0x02, 'i', 'n', 'a', 0, 0};
static const uint8_t TYPE[2] = {0x88, 0xb6}, MAGIC[4] = {'p', 'r', 'b', '1'};

struct probe_port {
    struct ina_port port;
    struct ina_port *inner;
    struct ina_probe_config config;
    struct ina_probe_board *board;
    uint64_t next;                   /* probe; ps */
    uint32_t lent, returned, hidden; /* frames of the inner port: the user's, those of them it gave back, and those it never saw */
    uint64_t rx_packets, rx_bytes, tx_packets, tx_bytes; /* that are not the user's */
};

static uint64_t get(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static void set(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static int is_probe(const struct ina_packet *pkt)
{
    return pkt->len >= offsetof(struct probe, magic) && !memcmp(pkt->data + offsetof(struct probe, type), TYPE, sizeof TYPE)
        && !memcmp(pkt->data, DESTINATION, sizeof DESTINATION);
}

static void share_stats(struct probe_port *p)
{
    p->port.stats = p->inner->stats;
    p->port.stats.rx_packets -= p->rx_packets;
    p->port.stats.rx_bytes -= p->rx_bytes;
    p->port.stats.tx_packets -= p->tx_packets;
    p->port.stats.tx_bytes -= p->tx_bytes;
}

/* ---- sending --------------------------------------------------------------------------------------------------- */

static void send_probe(struct probe_port *p, uint64_t now)
{
    struct ina_probe_board *board = p->board;
    const struct ina_port_stats before = p->inner->stats;
    struct ina_packet pkt = {0};
    if (ina_port_tx_get(p->inner, &pkt, 1) != 1)
        return; /* no room: the far end has not looked for long, which is no failure of the link */
    struct probe probe = {.link = p->config.link, .side = p->config.side, .session = p->config.session, .number = board->sent + 1};
    memcpy(probe.destination, DESTINATION, sizeof DESTINATION);
    memcpy(probe.source, SOURCE, sizeof SOURCE);
    memcpy(probe.type, TYPE, sizeof TYPE);
    memcpy(probe.magic, MAGIC, sizeof MAGIC);
    memset(pkt.data, 0, PROBE_BYTES);
    memcpy(pkt.data, &probe, sizeof probe);
    pkt.len = pkt.wire_len = get(&board->cut) & INA_CUT_SEND ? 0 : PROBE_BYTES;
    ina_port_tx_put(p->inner, &pkt, 1, now);
    p->tx_packets += p->inner->stats.tx_packets - before.tx_packets;
    p->tx_bytes += p->inner->stats.tx_bytes - before.tx_bytes;
    set(&board->sent_at, ina_now()); /* not `now`: this thread may have waited for a processor since */
    set(&board->sent, probe.number);
}

static void send_due(struct probe_port *p, uint64_t now)
{
    const uint64_t interval = get(&p->board->interval_ps);
    if (!interval || now < p->next)
        return;
    p->next = (now / interval + 1) * interval; /* all ports at once: one wake-up */
    send_probe(p, now);
}

static int probe_tx_get(struct ina_port *port, struct ina_packet *pkts, int want)
{
    struct probe_port *p = (struct probe_port *)port;
    int n = ina_port_tx_get(p->inner, pkts, want);
    share_stats(p);
    return n;
}

static void probe_tx_put(struct ina_port *port, struct ina_packet *pkts, int n, uint64_t now)
{
    struct probe_port *p = (struct probe_port *)port;
    struct ina_probe_board *board = p->board;
    const int cut = (get(&board->cut) & INA_CUT_SEND) != 0;
    for (int i = 0; i < n; i++) {
        if (!pkts[i].len)
            continue;
        if (is_probe(&pkts[i]))
            set(&board->foreign, board->foreign + 1);
        else if (cut)
            set(&board->lost, board->lost + 1);
        else
            continue;
        pkts[i].len = pkts[i].wire_len = 0;
    }
    ina_port_tx_put(p->inner, pkts, n, now);
    share_stats(p);
}

/* ---- receiving ------------------------------------------------------------------------------------------------- */

static void hear(struct probe_port *p, const struct ina_packet *pkt)
{
    struct ina_probe_board *board = p->board;
    struct probe probe;
    if (pkt->len >= sizeof probe) {
        memcpy(&probe, pkt->data, sizeof probe);
        if (board->interval_ps && !memcmp(probe.magic, MAGIC, sizeof MAGIC) && probe.link == p->config.link
            && probe.side == 1 - p->config.side && probe.session == p->config.session) {
            set(&board->heard, probe.number);
            return;
        }
    }
    set(&board->foreign, board->foreign + 1);
}

/* Gives frames back that only the user's own ones kept, once it has none. */
static void give_back(struct probe_port *p)
{
    if (p->lent == p->returned && p->lent + p->hidden) {
        ina_port_rx_done(p->inner, (int)(p->lent + p->hidden));
        p->lent = p->returned = p->hidden = 0;
    }
}

static int probe_rx(struct ina_port *port, struct ina_packet *pkts, int max, uint64_t now)
{
    struct probe_port *p = (struct probe_port *)port;
    struct ina_probe_board *board = p->board;
    send_due(p, now);
    const int cut = (get(&board->cut) & INA_CUT_RECEIVE) != 0, n = ina_port_rx(p->inner, pkts, max, now);
    int kept = 0;
    for (int i = 0; i < n; i++) {
        const int probe = is_probe(&pkts[i]);
        if (!probe && !cut) {
            if (kept != i)
                pkts[kept] = pkts[i];
            kept++;
            continue;
        }
        if (cut)
            set(&board->lost, board->lost + !probe);
        else
            hear(p, &pkts[i]);
        p->rx_packets++;
        p->rx_bytes += pkts[i].len;
        p->hidden++;
    }
    if (n > 0 && !cut)
        set(&board->heard_at, now);
    if (n <= 0 || cut)
        set(&board->looked_at, now);
    p->lent += (uint32_t)kept;
    give_back(p);
    share_stats(p);
    return kept;
}

static void probe_rx_done(struct ina_port *port, int n)
{
    struct probe_port *p = (struct probe_port *)port;
    if (n <= 0)
        return;
    if (!p->hidden && !p->returned) {
        ina_port_rx_done(p->inner, n);
        p->lent -= (uint32_t)n < p->lent ? (uint32_t)n : p->lent;
        return;
    }
    p->returned += (uint32_t)n < p->lent - p->returned ? (uint32_t)n : p->lent - p->returned;
    give_back(p);
}

/* ---- the rest -------------------------------------------------------------------------------------------------- */

static int probe_arm(struct ina_port *port)
{
    return ina_port_arm(((struct probe_port *)port)->inner);
}

static uint64_t probe_next_due(const struct ina_port *port)
{
    const struct probe_port *p = (const struct probe_port *)port;
    const uint64_t inner = ina_port_next_due(p->inner);
    return get(&p->board->interval_ps) && p->next < inner ? p->next : inner;
}

static void probe_close(struct ina_port *port)
{
    ina_port_close(((struct probe_port *)port)->inner);
    free(port);
}

static const struct ina_port_ops PROBE_OPS = {
    .rx = probe_rx,
    .rx_done = probe_rx_done,
    .tx_get = probe_tx_get,
    .tx_put = probe_tx_put,
    .arm = probe_arm,
    .next_due = probe_next_due,
    .close = probe_close,
};

struct ina_port *ina_port_probe_wrap(struct ina_port *inner, const struct ina_probe_config *config, struct ina_probe_board *board)
{
    struct probe_port *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->port = (struct ina_port){.ops = &PROBE_OPS, .fd = inner->fd, .bell = inner->bell, .max_frame = inner->max_frame};
    p->inner = inner;
    p->config = *config;
    p->board = board;
    return &p->port;
}
