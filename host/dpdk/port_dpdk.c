/* A port over one queue pair of a device: lends mbufs in place.
 *
 *     rx:   burst ─> lent[begin..end) ─ rx_done ─┬─> pool          tx:  pool ─> staged ─ tx_get, tx_put ─> late ─> device
 *                                                └─> staged
 *
 * `lent` are frames that the owner uses, oldest first. `staged` is a stack of mbufs ready to be filled: rx_done puts mbufs there
 * while there is room, so that a port which sends as much as it receives never needs the pool, and writes into buffers that are
 * still in the cache. `late` are frames for which the device had no room: they are sent first, and nothing is lent while there
 * are any, so back-pressure reaches the owner and no frame is lost. A frame that is only forwarded changes its place in one
 * port's `lent` for one in the other's `staged` (take). */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>

#include "device.h"
#include "port.h"

enum { LENT = 1024, STAGED = 256, KEPT = 64, BURST = 64 }; /* KEPT: staged mbufs that came from rx_done */

struct dpdk_port {
    struct ina_port port;
    struct ina_dpdk_device *device;
    uint16_t id, queue;                  /* ethdev's */
    int32_t share;                       /* its number; -1: the queue is this port's alone */
    uint32_t room;                       /* bytes that a lent frame may have behind its headroom */
    uint32_t begin, buffer;              /* of the pool's buffers: where in an mbuf, and bytes */
    struct rte_mempool *pool;
    uint32_t lent_begin, lent_end;       /* both run freely */
    uint32_t odd;                        /* 0: every lent mbuf may be staged, as rx has checked */
    uint32_t staged_count, late_begin, late_end;
    uint32_t tx_first, tx_lent;          /* staged[first..] are lent, so many */
    struct rte_mbuf *lent[LENT];
    struct rte_mbuf *staged[STAGED];
    struct rte_mbuf *late[STAGED];
};

/* ---- threads ------------------------------------------------------------------------------------------------------
 * A pool has a cache for each thread that DPDK knows; every other thread would pay for the pool's ring with each mbuf. */

static __thread int known;
static pthread_key_t ends;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void forget(void *registered)
{
    (void)registered;
    rte_thread_unregister();
}

static void make_key(void)
{
    pthread_key_create(&ends, forget);
}

static __attribute__((noinline)) void introduce(void)
{
    known = 1;
    prctl(PR_SET_TIMERSLACK, 1000ul); /* ns: no wake-ups here, and the kernel's default slack of 50 us would double each nap */
    if (rte_lcore_id() == LCORE_ID_ANY && rte_thread_register() == 0) { /* else slower, but still correct */
        pthread_once(&once, make_key);
        pthread_setspecific(ends, &known);
    }
}

static inline void greet(void)
{
    if (__builtin_expect(!known, 0))
        introduce();
}

static inline uint16_t from_device(struct dpdk_port *p, struct rte_mbuf **burst, uint16_t want)
{
    if (__builtin_expect(p->share >= 0, 0))
        return ina_dpdk_pull(p->device, (uint32_t)p->share, burst, want);
    return rte_eth_rx_burst(p->id, p->queue, burst, want);
}

static inline uint16_t to_device(struct dpdk_port *p, struct rte_mbuf **burst, uint16_t n)
{
    if (__builtin_expect(p->share >= 0, 0))
        return ina_dpdk_push(p->device, burst, n);
    return rte_eth_tx_burst(p->id, p->queue, burst, n);
}

/* ---- receive ------------------------------------------------------------------------------------------------------ */

static void send_late(struct dpdk_port *p)
{
    p->late_begin += to_device(p, &p->late[p->late_begin], (uint16_t)(p->late_end - p->late_begin));
    if (p->late_begin == p->late_end)
        p->late_begin = p->late_end = 0;
}

/* Joins a frame of several mbufs; 0: it cannot be lent. */
static __attribute__((noinline)) int mend(const struct dpdk_port *p, struct rte_mbuf *m)
{
    if (m->nb_segs > 1 && rte_pktmbuf_linearize(m))
        return 0;
    return m->data_len && m->data_len <= p->port.max_frame;
}

/* 1: it can replace one from the pool: one owner, whole (then `next` is NULL), with a buffer of its own. */
static inline int reusable(const struct dpdk_port *p, const struct rte_mbuf *m)
{
    static const struct { uint16_t refcnt, nb_segs; } alone = {1, 1};
    _Static_assert(offsetof(struct rte_mbuf, nb_segs) == offsetof(struct rte_mbuf, refcnt) + 2, "compared at once");
    return (memcmp(&m->refcnt, &alone, sizeof alone) == 0) & (m->pool == p->pool)
           & !(m->ol_flags & (RTE_MBUF_F_INDIRECT | RTE_MBUF_F_EXTERNAL));
}

/* Where the buffer of a pool's mbuf begins, as m->buf_addr says; here no line of the mbuf has to be there for it. */
static inline uint8_t *buffer_of(const struct dpdk_port *p, const struct rte_mbuf *m)
{
    return (uint8_t *)(uintptr_t)m + p->begin;
}

/* Describes the mbufs in lent[at..at+got); counts and drops those that cannot be lent. Returns how many are lent. */
static int lend(struct dpdk_port *p, struct ina_packet *pkts, uint32_t at, uint32_t got)
{
    struct rte_mbuf **const burst = &p->lent[at], **kept = burst;
    const uint32_t max_frame = p->port.max_frame, buffer = p->buffer;
    struct ina_packet *pkt = pkts;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < got; i++) {
        struct rte_mbuf *m = burst[i];
        uint32_t len = m->data_len, size = buffer;
        if (__builtin_expect(reusable(p, m) & (len - 1 < max_frame), 1)) {
            pkt->data = buffer_of(p, m) + m->data_off;
            m->ol_flags = 0;
        } else {
            if ((m->nb_segs > 1 || len - 1 >= max_frame) && !mend(p, m)) {
                p->port.stats.rx_malformed++;
                rte_pktmbuf_free(m);
                continue;
            }
            pkt->data = rte_pktmbuf_mtod(m, uint8_t *);
            len = m->data_len;
            size = m->buf_len;
            if (reusable(p, m))
                m->ol_flags = 0;
            else
                p->odd++;
        }
        rte_prefetch0(pkt->data);
        pkt->len = pkt->wire_len = len;
        pkt->headroom = m->data_off;
        pkt->tailroom = size - m->data_off - len;
        bytes += len;
        *kept++ = m;
        pkt++;
    }
    const uint32_t n = (uint32_t)(pkt - pkts);
    p->lent_end += n;
    p->port.stats.rx_bytes += bytes;
    p->port.stats.rx_packets += n;
    return (int)n;
}

static int dpdk_rx(struct ina_port *port, struct ina_packet *pkts, int max, uint64_t now)
{
    struct dpdk_port *p = (struct dpdk_port *)port;
    (void)now;
    greet();
    if (p->late_end)
        send_late(p);
    int n = 0;
    while (n < max) {
        const uint32_t at = p->lent_end % LENT, room = LENT - (p->lent_end - p->lent_begin);
        uint32_t want = (uint32_t)(max - n), straight = LENT - at;
        straight = straight < BURST ? straight : BURST;
        want = want < room ? want : room;
        want = want < straight ? want : straight;
        const uint32_t got = from_device(p, &p->lent[at], (uint16_t)want);
        n += lend(p, pkts + n, at, got);
        if (got < want || !want)
            break;
    }
    return n;
}

static void give_back(struct dpdk_port *p, struct rte_mbuf **mbufs, uint32_t n)
{
    uint32_t kept = p->staged_count < KEPT ? KEPT - p->staged_count : 0;
    kept = kept < n ? kept : n;
    for (uint32_t i = 0; p->odd && i < kept; i++)
        if (!reusable(p, mbufs[i]))
            kept = i;
    memcpy(&p->staged[p->staged_count], mbufs, kept * sizeof(struct rte_mbuf *));
    p->staged_count += kept;
    if (kept < n)
        rte_pktmbuf_free_bulk(&mbufs[kept], n - kept);
}

static void dpdk_rx_done(struct ina_port *port, int n)
{
    struct dpdk_port *p = (struct dpdk_port *)port;
    uint32_t out = p->lent_end - p->lent_begin, count = n > 0 ? (uint32_t)n : 0;
    for (count = count < out ? count : out; count;) {
        const uint32_t at = p->lent_begin % LENT, straight = count < LENT - at ? count : LENT - at;
        give_back(p, &p->lent[at], straight);
        p->lent_begin += straight;
        count -= straight;
    }
    if (p->lent_begin == p->lent_end) /* mostly: the next burst reuses these entries, which are in the first-level cache */
        p->lent_begin = p->lent_end = p->odd = 0;
}

/* ---- send --------------------------------------------------------------------------------------------------------- */

static int dpdk_tx_get(struct ina_port *port, struct ina_packet *pkts, int want)
{
    struct dpdk_port *p = (struct dpdk_port *)port;
    uint32_t n = want > 0 ? (uint32_t)want : 0;
    greet();
    if (p->late_end) {
        send_late(p);
        if (p->late_end)
            n = 0;
    }
    n = n < STAGED ? n : STAGED;
    if (n > p->staged_count) {
        if (rte_pktmbuf_alloc_bulk(p->pool, &p->staged[p->staged_count], n - p->staged_count) == 0)
            p->staged_count = n;
        else
            n = p->staged_count;
    }
    p->tx_lent = n;
    p->tx_first = p->staged_count - n;
    port->stats.tx_full += (int)n < want;
    struct rte_mbuf **lent = &p->staged[p->tx_first];
    for (uint32_t i = 0; i < n; i++) {
        pkts[i].data = buffer_of(p, lent[i]) + RTE_PKTMBUF_HEADROOM;
        pkts[i].len = pkts[i].wire_len = 0;
        pkts[i].headroom = RTE_PKTMBUF_HEADROOM;
        pkts[i].tailroom = p->room;
    }
    return (int)n;
}

static void dpdk_tx_put(struct ina_port *port, struct ina_packet *pkts, int n, uint64_t now)
{
    struct dpdk_port *p = (struct dpdk_port *)port;
    struct rte_mbuf **const lent = &p->staged[p->tx_first], *back[STAGED]; /* back: not to be sent */
    const uint32_t most = port->max_frame - RTE_ETHER_HDR_LEN;
    uint32_t count = 0, kept = 0;
    uint64_t bytes = 0;
    (void)now;
    if (n > (int)p->tx_lent)
        n = (int)p->tx_lent;
    p->tx_lent = 0;
    if (n <= 0)
        return;
    for (int i = 0; i < n; i++) {
        struct rte_mbuf *m = lent[i];
        const uint32_t len = pkts[i].len;
        const uintptr_t offset = (uintptr_t)pkts[i].data - (uintptr_t)buffer_of(p, m);
        if (__builtin_expect(len - RTE_ETHER_HDR_LEN > most || offset > (uintptr_t)p->buffer - len, 0)) {
            port->stats.tx_malformed += len != 0;
            back[kept++] = m;
            continue;
        }
        m->data_off = (uint16_t)offset;
        m->data_len = (uint16_t)len;
        m->pkt_len = len;
        bytes += len;
        lent[count++] = m;
    }
    port->stats.tx_packets += count;
    port->stats.tx_bytes += bytes;
    const uint32_t sent = count ? to_device(p, lent, (uint16_t)count) : 0;
    for (uint32_t i = sent; i < count; i++)
        p->late[p->late_end++] = lent[i];
    memcpy(lent, back, kept * sizeof(struct rte_mbuf *));
    for (uint32_t i = p->tx_first + (uint32_t)n; i < p->staged_count; i++)
        lent[kept++] = p->staged[i];
    p->staged_count = p->tx_first + kept;
}

static int dpdk_take(struct ina_port *port, uint32_t k, struct ina_port *from, uint32_t i, const uint8_t *data)
{
    struct dpdk_port *p = (struct dpdk_port *)port, *other = (struct dpdk_port *)from;
    if (k >= p->tx_lent || i >= other->lent_end - other->lent_begin)
        return 0;
    struct rte_mbuf **const mine = &p->staged[p->tx_first + k], **const its = &other->lent[(other->lent_begin + i) % LENT];
    struct rte_mbuf *m = *its;
    if (p->pool != other->pool || (other->odd && !reusable(p, m)) || (uintptr_t)data - (uintptr_t)buffer_of(p, m) >= p->buffer)
        return 0;
    *its = *mine;
    *mine = m;
    return 1;
}

/* ---- open and close ------------------------------------------------------------------------------------------------ */

uint32_t ina_dpdk_port_held(const struct ina_port *port)
{
    const struct dpdk_port *p = (const struct dpdk_port *)port;
    return p->lent_end - p->lent_begin + p->staged_count + p->late_end - p->late_begin;
}

static void dpdk_close(struct ina_port *port)
{
    struct dpdk_port *p = (struct dpdk_port *)port;
    greet();
    dpdk_rx_done(port, LENT);
    rte_pktmbuf_free_bulk(p->staged, p->staged_count);
    rte_pktmbuf_free_bulk(&p->late[p->late_begin], p->late_end - p->late_begin);
    if (p->share >= 0)
        ina_dpdk_leave(p->device, (uint32_t)p->share);
    free(p);
}

static const struct ina_port_ops DPDK_OPS = { /* nothing rings, and so nothing is armed: a sleeper polls again */
    .rx = dpdk_rx,
    .rx_done = dpdk_rx_done,
    .tx_get = dpdk_tx_get,
    .tx_put = dpdk_tx_put,
    .take = dpdk_take,
    .close = dpdk_close,
};

static struct dpdk_port *opened(struct ina_dpdk_device *device, uint32_t queue, int32_t share)
{
    struct dpdk_port *p = aligned_alloc(128, (sizeof *p + 127) & ~(size_t)127);
    if (!p)
        return NULL;
    memset(p, 0, sizeof *p);
    p->port = (struct ina_port){.ops = &DPDK_OPS, .fd = -1, .max_frame = device->pool->max_frame};
    p->device = device;
    p->id = device->id;
    p->queue = (uint16_t)queue;
    p->share = share;
    p->pool = device->pool->mbufs;
    p->room = device->pool->max_frame;
    p->begin = (uint32_t)sizeof(struct rte_mbuf) + rte_pktmbuf_priv_size(p->pool);
    p->buffer = rte_pktmbuf_data_room_size(p->pool);
    return p;
}

struct ina_port *ina_dpdk_port(struct ina_dpdk_device *device, uint32_t queue)
{
    if (queue >= device->queues || (!queue && device->steering)) {
        errno = EINVAL;
        return NULL;
    }
    device->has_port |= !queue;
    return (struct ina_port *)opened(device, queue, -1);
}

struct ina_port *ina_dpdk_share(struct ina_dpdk_device *device, uint32_t number)
{
    const int failed = ina_dpdk_join(device, number);
    struct dpdk_port *p = failed ? NULL : opened(device, 0, (int32_t)number);
    if (!failed && !p)
        ina_dpdk_leave(device, number);
    errno = failed ? -failed : errno;
    return (struct ina_port *)p;
}

int ina_dpdk_claim(struct ina_port *share, uint16_t first, uint32_t count)
{
    const struct dpdk_port *p = (const struct dpdk_port *)share;
    return p->share < 0 ? -EINVAL : ina_dpdk_own(p->device, (uint32_t)p->share, first, count);
}
