/* A port that loses, doubles, delays and damages the frames of another one, independently in each direction.
 * Every frame of a faulted direction passes a delay line, ordered by the time at which it is due. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fault.h"
#include "segment.h"

enum { FCS = 4, BATCH = 64, MAX_HELD = 1 << 16 };
enum { ROUNDS = 8 }; /* a flood of lost frames must not keep rx from returning */

struct held {
    uint64_t due, order;     /* order: frames due at the same time leave as they came */
    struct held *next;       /* in the free list, or among the lent ones */
    uint8_t *data;
    uint32_t len, wire_len;
    int delayed;
    _Alignas(16) uint8_t buffer[]; /* headroom, frame, FCS */
};

struct line {
    int faulted;             /* 0: this direction is left alone */
    struct ina_fault fault;
    struct held **heap;      /* heap[0] is due first */
    struct held *free;
    uint64_t order, overflow, crc_errors;
    uint32_t count, room;    /* frames in the heap, and how many fit */
    uint32_t delayed, limit; /* of these, delayed ones, and how many may be */
};

struct fault_port {
    struct ina_port port;
    struct ina_port *inner;
    uint64_t now;            /* the latest time of a caller */
    uint32_t buffer_size;
    struct line rx, tx;
    struct held *lent, **lent_end; /* received frames that the user has */
    uint32_t lent_count;
    struct held **staged;    /* frames that tx_get has lent */
    uint32_t staged_count;
    uint64_t tx_malformed;
};

/* ---- delay line ------------------------------------------------------------------------------------------------ */

static int before(const struct held *a, const struct held *b)
{
    return a->due < b->due || (a->due == b->due && a->order < b->order);
}

static int line_push(struct line *line, struct held *frame)
{
    if (line->count == line->room) {
        uint32_t room = line->room ? 2 * line->room : BATCH;
        struct held **heap = realloc(line->heap, room * sizeof(struct held *));
        if (!heap)
            return 0;
        line->heap = heap;
        line->room = room;
    }
    uint32_t i = line->count++;
    for (; i && before(frame, line->heap[(i - 1) / 2]); i = (i - 1) / 2)
        line->heap[i] = line->heap[(i - 1) / 2];
    line->heap[i] = frame;
    line->delayed += frame->delayed != 0;
    return 1;
}

static uint64_t line_due(const struct line *line)
{
    return line->count ? line->heap[0]->due : UINT64_MAX;
}

/* The first frame that is due by `now`, or NULL. */
static struct held *line_pop(struct line *line, uint64_t now)
{
    if (line_due(line) > now)
        return NULL;
    struct held *first = line->heap[0], *last = line->heap[--line->count];
    uint32_t i = 0, child;
    for (; (child = 2 * i + 1) < line->count; i = child) {
        if (child + 1 < line->count && before(line->heap[child + 1], line->heap[child]))
            child++;
        if (!before(line->heap[child], last))
            break;
        line->heap[i] = line->heap[child];
    }
    line->heap[i] = last;
    line->delayed -= first->delayed != 0;
    return first;
}

static struct held *take(struct fault_port *p, struct line *line)
{
    struct held *frame = line->free;
    if (frame)
        line->free = frame->next;
    else
        frame = malloc(sizeof *frame + p->buffer_size);
    if (frame) {
        frame->data = frame->buffer + INA_PORT_HEADROOM;
        frame->len = frame->wire_len = 0;
        frame->delayed = 0;
        frame->next = NULL;
    }
    return frame;
}

static void give_back(struct line *line, struct held *frame)
{
    frame->next = line->free;
    line->free = frame;
}

static struct held *copy_of(struct fault_port *p, struct line *line, const uint8_t *data, uint32_t len,
                            uint32_t wire_len)
{
    struct held *frame = take(p, line);
    if (frame) {
        memcpy(frame->data, data, len);
        frame->len = len;
        frame->wire_len = wire_len;
    }
    return frame;
}

static void lose(struct line *line, struct held *frame)
{
    line->overflow++;
    if (frame)
        give_back(line, frame);
}

static void line_hold(struct line *line, struct held *frame, uint64_t now, uint64_t delay)
{
    if (!frame || (delay && line->delayed >= line->limit)) {
        lose(line, frame);
        return;
    }
    frame->due = delay < UINT64_MAX - 1 - now ? now + delay : UINT64_MAX - 1;
    frame->order = line->order++;
    frame->delayed = delay != 0;
    if (!line_push(line, frame))
        lose(line, frame);
}

/* Checks a damaged frame as the receiving network card would: 1 if its CRC still fits (once in 2^32). */
static int passes_crc(struct ina_fault *fault, struct held *frame)
{
    uint32_t fcs = ina_crc32(frame->data, frame->len);
    memcpy(frame->data + frame->len, &fcs, FCS);
    ina_fault_flip(fault, frame->data, frame->len + FCS);
    memcpy(&fcs, frame->data + frame->len, FCS);
    return fcs == ina_crc32(frame->data, frame->len);
}

/* Decides a frame's fate and puts its copies into the line, which owns them from here on. */
static void line_enter(struct fault_port *p, struct line *line, struct held *frame, uint64_t now)
{
    uint64_t delay[2], corrupted = line->fault.corrupted;
    int copies = ina_fault_decide(&line->fault, delay);
    if (line->fault.corrupted != corrupted) {
        copies = passes_crc(&line->fault, frame);
        line->crc_errors += !copies;
    }
    if (!copies) {
        give_back(line, frame);
        return;
    }
    struct held *second = copies == 2 ? copy_of(p, line, frame->data, frame->len, frame->wire_len) : NULL;
    line_hold(line, frame, now, delay[0]);
    if (copies == 2)
        line_hold(line, second, now, delay[1]);
}

/* ---- the port -------------------------------------------------------------------------------------------------- */

/* Counters for the user: the inner port's for the network, this one's for frames passed on. */
static void share_stats(struct fault_port *p)
{
    const struct ina_port_stats *inner = &p->inner->stats;
    struct ina_port_stats *stats = &p->port.stats;
    if (!p->rx.faulted) {
        stats->rx_packets = inner->rx_packets;
        stats->rx_bytes = inner->rx_bytes;
    }
    if (!p->tx.faulted) {
        stats->tx_packets = inner->tx_packets;
        stats->tx_bytes = inner->tx_bytes;
        stats->tx_full = inner->tx_full;
    }
    stats->rx_malformed = inner->rx_malformed + p->rx.crc_errors;
    stats->tx_malformed = inner->tx_malformed + p->tx_malformed;
    stats->rx_foreign = inner->rx_foreign;
    stats->rx_forged = inner->rx_forged;
    stats->rx_replayed = inner->rx_replayed;
    stats->errors = inner->errors;
    stats->wakeups = inner->wakeups;
}

/* Hands due frames to the inner port; those without room stay. */
static void send_due(struct fault_port *p)
{
    while (line_due(&p->tx) <= p->now) {
        struct held *batch[BATCH];
        struct ina_packet pkts[BATCH];
        int due = 0;
        while (due < BATCH && (batch[due] = line_pop(&p->tx, p->now)))
            due++;
        memset(pkts, 0, (size_t)due * sizeof *pkts);
        int room = ina_port_tx_get(p->inner, pkts, due);
        for (int i = 0; i < room && i < due; i++) {
            memcpy(pkts[i].data, batch[i]->data, batch[i]->len);
            pkts[i].len = batch[i]->len;
            pkts[i].wire_len = batch[i]->wire_len;
            give_back(&p->tx, batch[i]);
        }
        ina_port_tx_put(p->inner, pkts, room, p->now);
        for (int i = room; i < due; i++)
            if (!line_push(&p->tx, batch[i]))
                lose(&p->tx, batch[i]);
        if (room < due)
            return;
    }
}

static int lend_due(struct fault_port *p, struct ina_packet *pkts, int n, int max)
{
    struct held *frame;
    while (n < max && (frame = line_pop(&p->rx, p->now))) {
        frame->next = NULL;
        *p->lent_end = frame;
        p->lent_end = &frame->next;
        p->lent_count++;
        pkts[n].data = frame->data;
        pkts[n].len = frame->len;
        pkts[n].wire_len = frame->wire_len;
        pkts[n].headroom = INA_PORT_HEADROOM;
        pkts[n].tailroom = p->port.max_frame - frame->len;
        p->port.stats.rx_packets++;
        p->port.stats.rx_bytes += frame->len;
        n++;
    }
    return n;
}

/* Takes up to `max` frames from the inner port and decides the fate of each; returns how many there were. */
static int pull(struct fault_port *p, struct ina_packet *scratch, int max)
{
    int got = ina_port_rx(p->inner, scratch, max, p->now);
    for (int i = 0; i < got; i++) {
        struct held *frame = copy_of(p, &p->rx, scratch[i].data, scratch[i].len, scratch[i].wire_len);
        if (frame)
            line_enter(p, &p->rx, frame, p->now);
        else
            lose(&p->rx, NULL);
    }
    ina_port_rx_done(p->inner, got);
    return got;
}

static int fault_rx(struct ina_port *port, struct ina_packet *pkts, int max, uint64_t now)
{
    struct fault_port *p = (struct fault_port *)port;
    int n = 0;
    p->now = now;
    send_due(p);
    if (!p->rx.faulted) {
        n = ina_port_rx(p->inner, pkts, max, now);
    } else {
        if (max > (int)(p->rx.limit - p->lent_count)) /* the user keeps frames: no more than `limit` */
            max = (int)(p->rx.limit - p->lent_count);
        n = lend_due(p, pkts, 0, max);
        for (int round = 0; round < ROUNDS && n < max && pull(p, pkts + n, max - n); round++)
            n = lend_due(p, pkts, n, max);
    }
    share_stats(p);
    return n;
}

static void fault_rx_done(struct ina_port *port, int n)
{
    struct fault_port *p = (struct fault_port *)port;
    if (!p->rx.faulted) {
        ina_port_rx_done(p->inner, n);
        return;
    }
    for (; n > 0 && p->lent; n--) {
        struct held *frame = p->lent;
        p->lent = frame->next;
        if (!p->lent)
            p->lent_end = &p->lent;
        p->lent_count--;
        give_back(&p->rx, frame);
    }
}

static void unstage(struct fault_port *p)
{
    for (uint32_t i = 0; i < p->staged_count; i++)
        if (p->staged[i])
            give_back(&p->tx, p->staged[i]);
    p->staged_count = 0;
}

static int fault_tx_get(struct ina_port *port, struct ina_packet *pkts, int want)
{
    struct fault_port *p = (struct fault_port *)port;
    if (!p->tx.faulted) {
        int lent = ina_port_tx_get(p->inner, pkts, want);
        share_stats(p);
        return lent;
    }
    unstage(p);
    send_due(p);
    int n = 0, room = line_due(&p->tx) <= p->now ? 0 : (int)p->tx.limit; /* the inner port is full: so are we */
    for (; n < want && n < room && (p->staged[n] = take(p, &p->tx)); n++) {
        pkts[n].data = p->staged[n]->data;
        pkts[n].len = pkts[n].wire_len = 0;
        pkts[n].headroom = INA_PORT_HEADROOM;
        pkts[n].tailroom = port->max_frame;
    }
    p->staged_count = (uint32_t)n;
    port->stats.tx_full += n < want;
    return n;
}

/* The frame as its sender left it in the buffer: 1 if it can be sent. */
static int filled(struct fault_port *p, struct held *frame, const struct ina_packet *pkt)
{
    uintptr_t offset = (uintptr_t)pkt->data - (uintptr_t)frame->buffer;
    if (!pkt->len)
        return 0;
    if (pkt->len > p->port.max_frame || pkt->wire_len > p->port.max_frame
        || offset > INA_PORT_HEADROOM + p->port.max_frame - pkt->len) {
        p->tx_malformed++;
        return 0;
    }
    frame->data = pkt->data;
    frame->len = pkt->len;
    frame->wire_len = pkt->wire_len > pkt->len ? pkt->wire_len : pkt->len;
    return 1;
}

static void fault_tx_put(struct ina_port *port, struct ina_packet *pkts, int n, uint64_t now)
{
    struct fault_port *p = (struct fault_port *)port;
    p->now = now;
    if (!p->tx.faulted) {
        ina_port_tx_put(p->inner, pkts, n, now);
    } else {
        for (int i = 0; i < n && i < (int)p->staged_count; i++) {
            struct held *frame = p->staged[i];
            if (!filled(p, frame, &pkts[i]))
                continue;
            port->stats.tx_packets++;
            port->stats.tx_bytes += frame->len;
            p->staged[i] = NULL;
            line_enter(p, &p->tx, frame, now);
        }
        unstage(p);
        send_due(p);
    }
    share_stats(p);
}

static int fault_arm(struct ina_port *port)
{
    struct fault_port *p = (struct fault_port *)port;
    return line_due(&p->rx) <= p->now || ina_port_arm(p->inner);
}

static uint64_t fault_next_due(const struct ina_port *port)
{
    const struct fault_port *p = (const struct fault_port *)port;
    uint64_t due = ina_port_next_due(p->inner), rx = line_due(&p->rx), tx = line_due(&p->tx);
    due = rx < due ? rx : due;
    return tx < due ? tx : due;
}

static void line_free(struct line *line)
{
    for (uint32_t i = 0; i < line->count; i++)
        free(line->heap[i]);
    free(line->heap);
    for (struct held *next; line->free; line->free = next) {
        next = line->free->next;
        free(line->free);
    }
}

static void fault_close(struct ina_port *port)
{
    struct fault_port *p = (struct fault_port *)port;
    fault_rx_done(port, (int)p->lent_count);
    unstage(p);
    line_free(&p->rx);
    line_free(&p->tx);
    free(p->staged);
    ina_port_close(p->inner);
    free(p);
}

static const struct ina_port_ops FAULT_OPS = {
    .rx = fault_rx,
    .rx_done = fault_rx_done,
    .tx_get = fault_tx_get,
    .tx_put = fault_tx_put,
    .arm = fault_arm,
    .next_due = fault_next_due,
    .close = fault_close,
};

static int probability(double p)
{
    return p >= 0 && p <= 1; /* false for NaN */
}

static int line_init(struct line *line, const struct ina_fault_config *config, uint32_t held)
{
    line->limit = held;
    if (!config)
        return 1;
    line->faulted = 1;
    ina_fault_init(&line->fault, config);
    return probability(config->loss) && probability(config->duplicate) && probability(config->reorder)
        && probability(config->corrupt);
}

struct ina_port *ina_port_fault_wrap(struct ina_port *inner, const struct ina_fault_config *rx_faults,
                                     const struct ina_fault_config *tx_faults, uint32_t held)
{
    struct fault_port *p = calloc(1, sizeof *p);
    struct held **staged = calloc(held ? held : 1, sizeof(struct held *));
    int error = !p || !staged ? ENOMEM : 0;
    if (!error && (!held || held > MAX_HELD || !line_init(&p->rx, rx_faults, held)
                   || !line_init(&p->tx, tx_faults, held)))
        error = EINVAL;
    if (error) {
        free(p);
        free(staged);
        errno = error;
        return NULL;
    }
    p->port = (struct ina_port){
        .ops = &FAULT_OPS, .fd = inner->fd, .bell = inner->bell, .max_frame = inner->max_frame};
    p->inner = inner;
    p->buffer_size = INA_PORT_HEADROOM + inner->max_frame + FCS;
    p->lent_end = &p->lent;
    p->staged = staged;
    return &p->port;
}

void ina_port_fault_report(const struct ina_port *port, struct ina_fault_report *report)
{
    const struct fault_port *p = (const struct fault_port *)port;
    *report = (struct ina_fault_report){
        .rx = p->rx.fault, .tx = p->tx.fault, .rx_overflow = p->rx.overflow, .tx_overflow = p->tx.overflow};
}
