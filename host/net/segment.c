/* Two single-producer single-consumer rings between two ports. See segment.h for the layout. */
#include "segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bell.h"
#include "lend.h"

enum { COPIES = 64 /* frames, a power of two: as many as a switch takes at once */ };
static const uint64_t MAGIC = 0x696e612d72696e67; /* "ina-ring" */

struct ring {
    struct ina_ring_control *control;
    struct ina_ring_desc *desc;
    uint8_t *frames;
};

struct segment_port {
    struct ina_port port;
    struct ina_segment *segment;
    struct ring tx, rx;
    uint32_t mask, stride, area; /* area: headroom and frame, bytes that a frame may lie in */
    uint32_t tx_head, tx_tail, tx_lent; /* published, as last seen, lent by tx_get */
    uint32_t rx_head;            /* as last seen */
    struct ina_lend lend;
    uint8_t *copies;             /* of received frames, where the peer may still write to sent ones; else NULL */
    uint32_t copies_mask;
    int armed;                   /* this side has set its flag since it last received */
    int side, peer_bell;
    uint8_t skip[];
};

/* ---- layout ---------------------------------------------------------------------------------------------------- */

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

uint32_t ina_segment_stride(uint32_t max_frame)
{
    /* An odd number of cache lines: the headers of successive frames fall into different cache sets. */
    return (uint32_t)round_up(INA_PORT_HEADROOM + max_frame, INA_LINE) | INA_LINE;
}

static size_t desc_at(uint32_t frames, int ring)
{
    size_t first = round_up(sizeof(struct ina_segment_header), INA_LINE_PAIR) + 2 * sizeof(struct ina_ring_control);
    return first + (size_t)ring * round_up(frames * sizeof(struct ina_ring_desc), INA_LINE_PAIR);
}

static size_t frames_at(uint32_t frames, uint32_t stride, int ring)
{
    return round_up(desc_at(frames, 2), 4096) + (size_t)ring * round_up((size_t)frames * stride, 4096);
}

size_t ina_segment_size(uint32_t frames, uint32_t max_frame)
{
    if (!frames || (frames & (frames - 1)) || frames > INA_PORT_MAX_FRAMES || max_frame < INA_PORT_MIN_FRAME
        || max_frame > INA_PORT_MAX_FRAME)
        return 0;
    return frames_at(frames, ina_segment_stride(max_frame), 2);
}

void ina_segment_format(uint8_t *base, uint32_t frames, uint32_t max_frame)
{
    struct ina_segment_header header = {
        .magic = MAGIC,
        .abi = INA_SEGMENT_ABI,
        .frames = frames,
        .max_frame = max_frame,
        .stride = ina_segment_stride(max_frame),
        .size = ina_segment_size(frames, max_frame),
    };
    memcpy(base, &header, sizeof header);
}

/* Checks the header and copies its numbers. 0 or EPROTO. */
static int check(struct ina_segment *segment)
{
    struct ina_segment_header header; /* a copy: the peer may write while we look */
    if (segment->size < sizeof header)
        return EPROTO;
    memcpy(&header, segment->base, sizeof header);
    if (header.magic != MAGIC || header.abi != INA_SEGMENT_ABI || header.size != segment->size
        || ina_segment_size(header.frames, header.max_frame) != segment->size
        || header.stride != ina_segment_stride(header.max_frame))
        return EPROTO;
    segment->frames = header.frames;
    segment->max_frame = header.max_frame;
    segment->stride = header.stride;
    return 0;
}

struct ina_segment *ina_segment_map(int memfd, uint64_t at, size_t size)
{
    struct ina_segment *segment = calloc(1, sizeof *segment);
    if (!segment)
        return NULL;
    segment->size = size;
    segment->owners = 1;
    segment->base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, (off_t)at);
    int error = segment->base == MAP_FAILED ? errno : check(segment);
    if (!error)
        return segment;
    if (segment->base != MAP_FAILED)
        munmap(segment->base, size);
    free(segment);
    errno = error;
    return NULL;
}

void ina_segment_release(struct ina_segment *segment)
{
    if (atomic_fetch_sub(&segment->owners, 1) > 1)
        return;
    munmap(segment->base, segment->size);
    free(segment);
}

static struct ring ring_of(const struct ina_segment *segment, int ring)
{
    uint8_t *control = segment->base + round_up(sizeof(struct ina_segment_header), INA_LINE_PAIR);
    return (struct ring){
        .control = (struct ina_ring_control *)control + ring,
        .desc = (struct ina_ring_desc *)(segment->base + desc_at(segment->frames, ring)),
        .frames = segment->base + frames_at(segment->frames, segment->stride, ring),
    };
}

/* ---- receive --------------------------------------------------------------------------------------------------- */

/* Reads the producer's index. One that it cannot have reached is counted and ignored. */
static uint32_t rx_waiting(struct segment_port *p)
{
    uint32_t head = atomic_load_explicit(&p->rx.control->head, memory_order_acquire);
    uint32_t out = p->lend.next - p->lend.done;
    if (head - p->lend.done > p->mask + 1 || head - p->lend.done < out) {
        p->port.stats.rx_malformed++;
        return 0;
    }
    p->rx_head = head;
    return head - p->lend.next;
}

static void rx_release(struct segment_port *p, uint32_t n)
{
    uint32_t before = p->lend.done;
    ina_lend_return(&p->lend, n);
    if (p->lend.done != before)
        atomic_store_explicit(&p->rx.control->tail, p->lend.done, memory_order_release);
}

static int segment_rx(struct ina_port *port, struct ina_packet *pkts, int max, uint64_t now)
{
    struct segment_port *p = (struct segment_port *)port;
    (void)now;
    if (max <= 0 || (p->lend.next == p->rx_head && !rx_waiting(p)))
        return 0;
    if (p->armed) { /* awake: the peer need not ring */
        p->armed = 0;
        atomic_store_explicit(&p->rx.control->armed, 0, memory_order_relaxed);
    }
    const uint32_t mask = p->mask, stride = p->stride, area = p->area, max_frame = port->max_frame;
    struct ina_ring_desc *const descs = p->rx.desc;
    uint8_t *const frames = p->rx.frames, *const copies = p->copies;
    uint32_t head = p->rx_head;
    if (copies && head - p->lend.done > p->copies_mask + 1)
        head = p->lend.done + p->copies_mask + 1;
    struct ina_packet *pkt = pkts, *const full = pkts + max;
    uint32_t next = p->lend.next;
    uint64_t bytes = 0;
    while (pkt != full && next != head) {
        const uint32_t slot = next & mask;
        const struct ina_ring_desc *desc = &descs[slot];
        /* Each field is read once: the checked value is the used one. */
        const uint32_t len = __atomic_load_n(&desc->len, __ATOMIC_RELAXED);
        const uint32_t wire_len = __atomic_load_n(&desc->wire_len, __ATOMIC_RELAXED);
        const uint32_t offset = __atomic_load_n(&desc->offset, __ATOMIC_RELAXED);
        if (__builtin_expect(!len || len > max_frame || offset > area - len || wire_len < len || wire_len > max_frame, 0)) {
            port->stats.rx_malformed += len || wire_len || offset; /* all zero: a frame that its sender gave up */
            p->lend.next = next;
            ina_lend_skip(&p->lend);
            next = p->lend.next;
            continue;
        }
        pkt->data = frames + (size_t)slot * stride + offset;
        if (copies) { /* a program reads a field more than once, and must find the same value */
            uint8_t *copy = copies + (size_t)(next & p->copies_mask) * stride + offset;
            pkt->data = memcpy(copy, pkt->data, len);
        } else {
            __builtin_prefetch(pkt->data, 1);
        }
        pkt->len = len;
        pkt->wire_len = wire_len;
        pkt->headroom = offset;
        pkt->tailroom = area - offset - len;
        bytes += len;
        next++;
        pkt++;
    }
    const int n = (int)(pkt - pkts);
    p->lend.next = next;
    port->stats.rx_bytes += bytes;
    port->stats.rx_packets += (uint64_t)n;
    if (p->lend.skipped)
        rx_release(p, 0);
    return n;
}

static void segment_rx_done(struct ina_port *port, int n)
{
    if (n > 0)
        rx_release((struct segment_port *)port, (uint32_t)n);
}

/* Sleeping and waking, each side's store before its load (Dekker): the consumer sets `armed` and then looks for frames,
 * the producer publishes frames and then looks for `armed`. With both fences at least one of them sees the other. */
static int segment_arm(struct ina_port *port)
{
    struct segment_port *p = (struct segment_port *)port;
    p->armed = 1;
    atomic_store_explicit(&p->rx.control->armed, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    if (p->lend.next == p->rx_head && !rx_waiting(p))
        return 0;
    p->armed = 0;
    atomic_store_explicit(&p->rx.control->armed, 0, memory_order_relaxed);
    return 1;
}

/* ---- send ------------------------------------------------------------------------------------------------------ */

static uint32_t tx_room(struct segment_port *p)
{
    uint32_t used = p->tx_head - p->tx_tail;
    return used <= p->mask + 1 ? p->mask + 1 - used : 0; /* an impossible tail: as if the ring were full */
}

static int segment_tx_get(struct ina_port *port, struct ina_packet *pkts, int want)
{
    struct segment_port *p = (struct segment_port *)port;
    uint32_t n = want > 0 ? (uint32_t)want : 0;
    if (tx_room(p) < n) {
        p->tx_tail = atomic_load_explicit(&p->tx.control->tail, memory_order_acquire);
        if (tx_room(p) < n) {
            port->stats.tx_full++;
            n = tx_room(p);
        }
    }
    p->tx_lent = n;
    const uint32_t head = p->tx_head, mask = p->mask, stride = p->stride, room = p->area - INA_PORT_HEADROOM;
    uint8_t *const first = p->tx.frames + INA_PORT_HEADROOM;
    for (uint32_t i = 0; i < n; i++) {
        pkts[i].data = first + (size_t)((head + i) & mask) * stride;
        pkts[i].len = pkts[i].wire_len = 0;
        pkts[i].headroom = INA_PORT_HEADROOM;
        pkts[i].tailroom = room;
    }
    return (int)n;
}

static void wake_peer(struct segment_port *p)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (p->peer_bell < 0 || !atomic_load_explicit(&p->tx.control->armed, memory_order_relaxed)
        || !atomic_exchange_explicit(&p->tx.control->armed, 0, memory_order_acq_rel))
        return;
    p->port.stats.errors += ina_bell_ring(p->peer_bell, !p->side) < 0;
    p->port.stats.wakeups++;
}

static void segment_tx_put(struct ina_port *port, struct ina_packet *pkts, int n, uint64_t now)
{
    struct segment_port *p = (struct segment_port *)port;
    (void)now;
    if (n > (int)p->tx_lent)
        n = (int)p->tx_lent;
    p->tx_lent = 0;
    while (n > 0 && !pkts[n - 1].len)
        n--;
    if (n <= 0)
        return;
    const uint32_t head = p->tx_head, mask = p->mask, stride = p->stride, area = p->area, max_frame = port->max_frame;
    struct ina_ring_desc *const descs = p->tx.desc;
    const uintptr_t frames = (uintptr_t)p->tx.frames;
    uint64_t packets = 0, bytes = 0;
    for (int i = 0; i < n; i++) {
        const uint32_t slot = (head + (uint32_t)i) & mask, len = pkts[i].len;
        const uint32_t wire_len = pkts[i].wire_len > len ? pkts[i].wire_len : len;
        const uintptr_t offset = (uintptr_t)pkts[i].data - (frames + (size_t)slot * stride);
        struct ina_ring_desc *desc = &descs[slot];
        if (__builtin_expect(!len || wire_len > max_frame || offset > area - len, 0)) {
            port->stats.tx_malformed += len != 0;
            *desc = (struct ina_ring_desc){0};
            continue;
        }
        desc->len = len;
        desc->wire_len = wire_len;
        desc->offset = (uint32_t)offset;
        packets++;
        bytes += len;
    }
    port->stats.tx_packets += packets;
    port->stats.tx_bytes += bytes;
    p->tx_head += (uint32_t)n;
    atomic_store_explicit(&p->tx.control->head, p->tx_head, memory_order_release);
    wake_peer(p);
}

/* ---- open and close -------------------------------------------------------------------------------------------- */

static void segment_close(struct ina_port *port)
{
    struct segment_port *p = (struct segment_port *)port;
    if (port->fd >= 0)
        close(port->fd);
    if (p->peer_bell >= 0)
        close(p->peer_bell);
    ina_segment_release(p->segment);
    free(p->copies);
    free(p);
}

/* Duplicates descriptors; -1 stays. 0 or -errno. */
static int take_bells(struct segment_port *p, int bell, int peer_bell)
{
    if (bell >= 0 && (p->port.fd = fcntl(bell, F_DUPFD_CLOEXEC, 0)) < 0)
        return -errno;
    if (peer_bell >= 0 && (p->peer_bell = fcntl(peer_bell, F_DUPFD_CLOEXEC, 0)) < 0)
        return -errno;
    return bell < 0 ? 0 : ina_bell_hush(p->port.fd, p->side); /* fails if it is none */
}

static const struct ina_port_ops SEGMENT_OPS = {
    .rx = segment_rx,
    .rx_done = segment_rx_done,
    .tx_get = segment_tx_get,
    .tx_put = segment_tx_put,
    .arm = segment_arm,
    .close = segment_close,
};

void ina_segment_resume(struct ina_port *port)
{
    struct segment_port *p = (struct segment_port *)port;
    p->tx_head = atomic_load_explicit(&p->tx.control->head, memory_order_acquire);
    p->tx_tail = atomic_load_explicit(&p->tx.control->tail, memory_order_acquire);
    p->lend.next = p->lend.done = p->rx_head = atomic_load_explicit(&p->rx.control->tail, memory_order_acquire);
}

struct ina_port *ina_segment_port(struct ina_segment *segment, int side, int wary, int bell, int peer_bell)
{
    struct segment_port *p;
    if (side != 0 && side != 1) {
        errno = EINVAL;
        return NULL;
    }
    /* Counters and indices of one side on lines of their own. */
    size_t size = round_up(sizeof *p + segment->frames, INA_LINE_PAIR);
    p = aligned_alloc(INA_LINE_PAIR, size);
    if (!p)
        return NULL;
    memset(p, 0, size);
    p->port.ops = &SEGMENT_OPS;
    p->port.max_frame = segment->max_frame;
    p->port.fd = p->peer_bell = -1;
    p->segment = segment;
    p->side = side;
    p->tx = ring_of(segment, side);
    p->rx = ring_of(segment, !side);
    p->mask = p->lend.mask = segment->frames - 1;
    p->stride = segment->stride;
    p->area = INA_PORT_HEADROOM + segment->max_frame;
    p->lend.skip = p->skip;
    ina_segment_resume(&p->port); /* the ring may have been in use */
    int error = -take_bells(p, bell, peer_bell);
    if (!error && wary) {
        p->copies_mask = (segment->frames < COPIES ? segment->frames : COPIES) - 1;
        p->copies = aligned_alloc(INA_LINE, (size_t)(p->copies_mask + 1) * segment->stride);
        error = p->copies ? 0 : ENOMEM;
    }
    if (error) {
        if (p->port.fd >= 0)
            close(p->port.fd);
        if (p->peer_bell >= 0)
            close(p->peer_bell);
        free(p);
        errno = error;
        return NULL;
    }
    p->port.bell = p->port.fd < 0 ? INA_NO_BELL : side ? INA_BELL_OF_HOST : INA_BELL_OF_SWITCH;
    return &p->port;
}
