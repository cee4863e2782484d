/* Drives ports of DPDK for the sanitizers: pairs over rte_ring, with faults, malformed frames and back-pressure; every mbuf
 * is in its pool again at the end. Arguments: EAL's. */
#define _GNU_SOURCE 1
#include <pthread.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "dpdk/device.h"
#include "endpoint.h"
#include "fault.h"
#include "model_switch.h"
#include "traffic.h"

static char error[512];
static struct ina_dpdk_pool *pool;

static void pair(const char *name, uint32_t frames, struct ina_dpdk_device *devices[2], struct ina_port *ports[2])
{
    CHECK(ina_dpdk_ring_pair(name, pool, frames, devices, error, sizeof error) == 0);
    for (int i = 0; i < 2; i++) {
        CHECK(!ina_dpdk_port(devices[i], 1));
        ports[i] = ina_dpdk_port(devices[i], 0);
        CHECK(ports[i] && ports[i]->max_frame == MAX_FRAME);
    }
}

static void part(struct ina_dpdk_device *devices[2], struct ina_port *ports[2])
{
    for (int i = 0; i < 2; i++)
        ina_port_close(ports[i]);
    for (int i = 0; i < 2; i++)
        ina_dpdk_close(devices[i]);
    CHECK(ina_dpdk_pool_in_use(pool) == 0);
}

static void rings(void)
{
    struct ina_dpdk_device *devices[2];
    struct ina_port *ports[2], *a, *b;
    CHECK(ina_dpdk_ring_pair("odd", pool, 0, devices, error, sizeof error) < 0);
    pair("rings", FRAMES, devices, ports);
    a = ports[0], b = ports[1];
    CHECK(traffic(a, b, 1) == 5000);
    CHECK(traffic(b, a, 1) == 5000);
    CHECK(a->stats.tx_packets == 5000 && b->stats.rx_packets == 5000 && a->stats.tx_bytes == b->stats.rx_bytes);
    CHECK(ina_dpdk_pool_in_use(pool) == ina_dpdk_port_held(a) + ina_dpdk_port_held(b));

    struct ina_packet pkts[2 * FRAMES];
    CHECK(ina_port_tx_get(a, pkts, 8) == 8);
    for (int i = 1; i < 8; i++) /* spread over the cache's sets */
        CHECK(((uintptr_t)pkts[i].data - (uintptr_t)pkts[i - 1].data) % 4096);
    for (int i = 0; i < 8; i++) { /* the values behind 64 bytes of headers begin a cache line, and there is room in front */
        CHECK(pkts[i].headroom >= 128 && pkts[i].tailroom == MAX_FRAME && ((uintptr_t)pkts[i].data + 64) % 64 == 0);
        pkts[i].len = 60;
    }
    pkts[0].len = MAX_FRAME + 1;             /* too long */
    pkts[1].data = pkts[2].data;             /* not where it was lent */
    pkts[3].data -= 129;                     /* in front of its buffer */
    pkts[4].len = 13;                        /* no Ethernet header */
    pkts[5].len = 0;                         /* given up */
    pkts[6].data += 4096;                    /* behind it */
    pkts[7].data[0] = 77;
    ina_port_tx_put(a, pkts, 9, 0);
    CHECK(a->stats.tx_malformed == 5 && a->stats.tx_packets == 5002);
    CHECK(ina_port_rx(b, pkts, 8, 0) == 2 && pkts[1].data[0] == 77 && ((uintptr_t)pkts[1].data + 64) % 64 == 0);
    ina_port_rx_done(b, 9);

    /* What the ring has no room for goes later, in order; until then nothing is lent. */
    uint64_t full = a->stats.tx_full;
    for (uint32_t sent = 0; sent < FRAMES + 20; sent += 4) {
        const uint32_t lent = (uint32_t)ina_port_tx_get(a, pkts, 4);
        CHECK(lent == (sent <= FRAMES ? 4 : 0));
        for (uint32_t i = 0; i < lent; i++)
            fill(&pkts[i], sent + i, 60);
        ina_port_tx_put(a, pkts, 4, 0);
    }
    CHECK(a->stats.tx_full > full);
    uint32_t got = 0;
    for (int n; (n = ina_port_rx(b, pkts, 16, 0)) > 0; ina_port_rx_done(b, n), ina_port_tx_get(a, pkts, 1))
        for (int i = 0; i < n; i++, got++)
            CHECK(number_in(&pkts[i]) == got);
    CHECK(got == FRAMES + 4);
    CHECK(ina_port_rx(b, pkts, 8, 0) == 0 && !ina_port_arm(b) && ina_port_next_due(b) == UINT64_MAX);

    CHECK(ina_port_tx_get(a, pkts, 8) == 8); /* closed with frames on their way and lent both ways */
    for (int i = 0; i < 8; i++)
        fill(&pkts[i], (uint32_t)i, 100);
    ina_port_tx_put(a, pkts, 8, 0);
    CHECK(ina_port_rx(b, pkts, 3, 0) == 3 && ina_port_tx_get(a, pkts, 5) == 5);
    part(devices, ports);
}

/* Frames that came in pieces, and ones that are too long for the port: put together, or counted. */
static void odd_mbufs(void)
{
    struct ina_dpdk_device *devices[2];
    struct ina_port *ports[2];
    struct ina_packet pkts[4];
    pair("odd", FRAMES, devices, ports);
    struct ina_dpdk_pool *other = ina_dpdk_pool_create(16, 2000, 0, error, sizeof error);
    CHECK(other);
    struct rte_mempool *foreign = other->mbufs, *own = pool->mbufs;
    const uint16_t id = devices[0]->id;
    struct rte_mbuf *head = rte_pktmbuf_alloc(own), *tail = rte_pktmbuf_alloc(own), *longer = rte_pktmbuf_alloc(foreign);
    struct rte_mbuf *empty = rte_pktmbuf_alloc(own), *first = rte_pktmbuf_alloc(own), *second = rte_pktmbuf_alloc(own);
    memset(rte_pktmbuf_append(head, 100), 1, 100);
    memset(rte_pktmbuf_append(tail, 50), 2, 50);
    CHECK(rte_pktmbuf_chain(head, tail) == 0);
    memset(rte_pktmbuf_append(longer, MAX_FRAME + 1), 3, MAX_FRAME + 1);
    memset(rte_pktmbuf_append(first, 400), 4, 400);
    memset(rte_pktmbuf_append(second, 400), 4, 400);
    CHECK(rte_pktmbuf_chain(first, second) == 0); /* together longer than any frame */
    struct rte_mbuf *burst[] = {head, longer, empty, first};
    CHECK(rte_eth_tx_burst(id, 0, burst, 4) == 4);
    CHECK(ina_port_rx(ports[1], pkts, 4, 0) == 1 && ports[1]->stats.rx_malformed == 3);
    CHECK(pkts[0].len == 150 && pkts[0].data[99] == 1 && pkts[0].data[149] == 2);
    ina_port_rx_done(ports[1], 1);
    CHECK(ina_dpdk_pool_in_use(other) == 0);
    part(devices, ports);
    ina_dpdk_pool_free(other);
}

static void faults(void)
{
    struct ina_dpdk_device *devices[2];
    struct ina_port *ports[2];
    struct ina_fault_config config = {.loss = 0.05, .duplicate = 0.1, .reorder = 0.2, .corrupt = 0.05,
        .duplicate_delay_ps = 50000, .reorder_delay_ps = 20000, .seed = 5};
    struct ina_fault_report report;
    pair("faults", FRAMES, devices, ports);
    ports[1] = ina_port_fault_wrap(ports[1], &config, NULL, 1000);
    CHECK(ports[1]);
    const uint32_t received = traffic(ports[0], ports[1], 0);
    ina_port_fault_report(ports[1], &report);
    CHECK(report.rx.packets == 5000 && received == 5000 - report.rx.lost - report.rx.corrupted + report.rx.duplicated);
    CHECK(traffic(ports[1], ports[0], 1) == 5000);
    part(devices, ports);
}

/* Both ends driven by threads that DPDK learns of when they come, and forgets when they end. */
static void *echo(void *argument)
{
    struct ina_port *port = argument;
    struct ina_packet in[BATCH], out[BATCH];
    for (uint32_t echoed = 0; echoed < 20000;) {
        const int lent = ina_port_tx_get(port, out, BATCH), n = ina_port_rx(port, in, lent, 0);
        for (int i = 0; i < n; i++) {
            memcpy(out[i].data, in[i].data, in[i].len);
            out[i].len = in[i].len;
        }
        ina_port_rx_done(port, n);
        ina_port_tx_put(port, out, n, 0);
        echoed += (uint32_t)n;
        if (!n)
            sched_yield();
    }
    while (ina_port_tx_get(port, out, 1) == 0) /* what is late leaves */
        sched_yield();
    return NULL;
}

static void threads(void)
{
    struct ina_dpdk_device *devices[2];
    struct ina_port *ports[2];
    struct ina_packet pkts[BATCH];
    pthread_t thread;
    pair("threads", FRAMES, devices, ports);
    for (int round = 0; round < 3; round++) {
        uint32_t sent = 0, back = 0;
        CHECK(pthread_create(&thread, NULL, echo, ports[1]) == 0);
        while (back < 20000) {
            int want = 20000 - sent < BATCH ? (int)(20000 - sent) : BATCH, n = ina_port_tx_get(ports[0], pkts, want);
            for (int i = 0; i < n; i++)
                fill(&pkts[i], sent++, 60);
            ina_port_tx_put(ports[0], pkts, n, 0);
            n = ina_port_rx(ports[0], pkts, BATCH, 0);
            for (int i = 0; i < n; i++, back++)
                CHECK(number_in(&pkts[i]) == back);
            ina_port_rx_done(ports[0], n);
            if (!n)
                sched_yield();
        }
        CHECK(pthread_join(thread, NULL) == 0);
    }
    part(devices, ports);
}

static void to_port(struct ina_packet *pkt, uint32_t i, uint16_t port)
{
    fill(pkt, i, 60 + i % 100);
    pkt->data[20] = pkt->data[21] = 0; /* no fragment */
    pkt->data[36] = (uint8_t)(port >> 8);
    pkt->data[37] = (uint8_t)port;
}

/* A sharer: takes what comes, checks that it is its own and in order, and answers each frame. */
struct sharer {
    struct ina_port *port;
    uint32_t number, received;
    uint32_t *done; /* of all, atomic */
};

enum { SHARERS = 3, SHARED = 9000 };

static void *share(void *argument)
{
    struct sharer *me = argument;
    struct ina_packet in[BATCH], out[BATCH];
    uint32_t last = 0;
    while (__atomic_load_n(me->done, __ATOMIC_RELAXED) < SHARED) {
        const int lent = ina_port_tx_get(me->port, out, BATCH), n = ina_port_rx(me->port, in, lent, 0);
        for (int i = 0; i < n; i++) {
            const uint32_t got = in[i].data[42] | (uint32_t)in[i].data[43] << 8;
            CHECK(got % SHARERS == me->number && (!last || got > last));
            last = got;
            memcpy(out[i].data, in[i].data, in[i].len);
            out[i].len = in[i].len;
        }
        ina_port_rx_done(me->port, n);
        ina_port_tx_put(me->port, out, n, 0);
        me->received += (uint32_t)n;
        __atomic_fetch_add(me->done, (uint32_t)n, __ATOMIC_RELAXED);
        if (!n)
            sched_yield();
    }
    while (ina_port_tx_get(me->port, out, 1) == 0)
        sched_yield();
    return NULL;
}

/* One device, three ports on its only queue, steered by UDP port; what nobody claims is the lowest one's. */
static void shares(void)
{
    struct ina_dpdk_device *devices[2];
    struct ina_packet pkts[BATCH];
    struct sharer sharer[SHARERS];
    pthread_t thread[SHARERS];
    uint32_t done = 0, sent = 0, back = 0;
    CHECK(ina_dpdk_ring_pair("shares", pool, FRAMES, devices, error, sizeof error) == 0);
    struct ina_port *far = ina_dpdk_port(devices[0], 0);
    CHECK(far && !ina_dpdk_share(devices[0], 0) && !ina_dpdk_share(devices[1], INA_DPDK_SHARES));
    for (uint32_t i = 0; i < SHARERS; i++) {
        sharer[i] = (struct sharer){.port = ina_dpdk_share(devices[1], i), .number = i, .done = &done};
        CHECK(sharer[i].port);
        if (i)
            CHECK(ina_dpdk_claim(sharer[i].port, (uint16_t)(4000 + i), 1) == 0);
    }
    CHECK(!ina_dpdk_share(devices[1], 1) && !ina_dpdk_port(devices[1], 0));
    CHECK(ina_dpdk_claim(sharer[2].port, 4000, 2) < 0 && ina_dpdk_claim(sharer[2].port, 65535, 2) < 0);
    CHECK(ina_dpdk_claim(far, 4000, 1) < 0 && ina_dpdk_flow(devices[1], 4000, 1, error, sizeof error) < 0);
    CHECK(ina_dpdk_flow(devices[1], 4000, 0, error, sizeof error) < 0); /* rings have no flow rules */
    for (int i = 0; i < SHARERS; i++)
        CHECK(pthread_create(&thread[i], NULL, share, &sharer[i]) == 0);
    while (back < SHARED) {
        const int want = SHARED - sent < BATCH ? (int)(SHARED - sent) : BATCH;
        int n = sent - back < 500 ? ina_port_tx_get(far, pkts, want) : 0; /* no more than inboxes hold */
        for (int i = 0; i < n; i++, sent++)
            to_port(&pkts[i], sent, (uint16_t)(4000 + sent % SHARERS));
        ina_port_tx_put(far, pkts, n, 0);
        n = ina_port_rx(far, pkts, BATCH, 0);
        back += (uint32_t)n;
        ina_port_rx_done(far, n);
        if (!n)
            sched_yield();
    }
    for (int i = 0; i < SHARERS; i++) {
        CHECK(pthread_join(thread[i], NULL) == 0);
        CHECK(sharer[i].received == SHARED / SHARERS);
    }
    struct ina_dpdk_device_stats stats;
    CHECK(ina_dpdk_stats(devices[1], &stats) == 0 && stats.rx_missed == 0);

    /* Frames wait in the inbox of one that is closed; then what was its is the lowest one's, also of those that are left. */
    CHECK(ina_port_tx_get(far, pkts, 4) == 4);
    for (uint32_t i = 0; i < 4; i++)
        to_port(&pkts[i], i, i < 2 ? 4001 : 7);
    ina_port_tx_put(far, pkts, 4, 0);
    CHECK(ina_port_rx(sharer[2].port, pkts, BATCH, 0) == 0);
    ina_port_close(sharer[1].port);
    CHECK(ina_port_rx(sharer[0].port, pkts, BATCH, 0) == 2);
    ina_port_rx_done(sharer[0].port, 2);
    ina_port_close(sharer[0].port);
    CHECK(ina_port_tx_get(far, pkts, 2) == 2);
    to_port(&pkts[0], 1, 4001);
    to_port(&pkts[1], 1, 4002);
    ina_port_tx_put(far, pkts, 2, 0);
    CHECK(ina_port_rx(sharer[2].port, pkts, BATCH, 0) == 2);
    ina_port_rx_done(sharer[2].port, 2);

    /* An inbox that nobody empties: counted, and gone. */
    sharer[0].port = ina_dpdk_share(devices[1], 0);
    CHECK(sharer[0].port);
    for (int i = 0; i < 40; i++) {
        CHECK(ina_port_tx_get(far, pkts, BATCH) == BATCH);
        for (int k = 0; k < BATCH; k++)
            to_port(&pkts[k], 1, 5);
        ina_port_tx_put(far, pkts, BATCH, 0);
        CHECK(ina_port_rx(sharer[2].port, pkts, BATCH, 0) == 0);
    }
    CHECK(ina_dpdk_stats(devices[1], &stats) == 0 && stats.rx_missed == 40 * BATCH - 1023);
    ina_port_close(sharer[0].port);
    struct ina_port *ports[2] = {far, sharer[2].port};
    part(devices, ports);
}

/* ---- all-reduces of two endpoints over rings, with faults; the switch is a thread ------------------------------------ */

enum { WORKERS = 2, ELEMENTS = 20000, VALUES = 64 };

struct world {
    struct model_switch model;
    struct ina_port *ports[WORKERS];
    int over; /* atomic */
};

static void *run_switch(void *argument)
{
    struct world *w = argument;
    struct ina_packet in[BATCH], out;
    while (!__atomic_load_n(&w->over, __ATOMIC_ACQUIRE)) {
        int moved = 0;
        for (uint32_t i = 0; i < WORKERS; i++) {
            const int n = ina_port_rx(w->ports[i], in, BATCH, ina_now());
            for (int k = 0; k < n; k++) {
                const uint32_t to = model_switch_process(&w->model, i, &in[k]);
                for (uint32_t j = 0; j < WORKERS; j++) {
                    if (!(to >> j & 1) || !ina_port_tx_get(w->ports[j], &out, 1))
                        continue;
                    memcpy(out.data, in[k].data, in[k].len);
                    out.len = in[k].len;
                    model_address(&w->model, j, &out);
                    ina_port_tx_put(w->ports[j], &out, 1, ina_now());
                }
            }
            ina_port_rx_done(w->ports[i], n);
            moved += n;
        }
        if (!moved)
            sched_yield();
    }
    return NULL;
}

static void sums(void)
{
    struct ina_dpdk_device *devices[WORKERS][2];
    struct ina_endpoint *endpoints[WORKERS];
    struct ina_worker_config configs[WORKERS];
    struct world world = {.over = 0};
    static int32_t data[WORKERS][ELEMENTS];
    pthread_t thread;
    for (uint32_t i = 0; i < WORKERS; i++) {
        configs[i] = model_config(i, WORKERS, 64, VALUES);
        for (uint32_t k = 0; k < ELEMENTS; k++)
            data[i][k] = (int32_t)((i + 1) * k);
    }
    model_switch_init(&world.model, configs);
    for (uint32_t i = 0; i < WORKERS; i++) {
        struct ina_port *ports[2];
        struct ina_fault_config faults = {.loss = 0.02, .duplicate = 0.05, .reorder = 0.1, .corrupt = 0.01,
            .duplicate_delay_ps = 2000000000, .reorder_delay_ps = 1000000000, .seed = 2 * i + 1}, back = faults;
        back.seed++;
        pair(i ? "one" : "zero", 256, devices[i], ports);
        world.ports[i] = ports[0];
        struct ina_port *faulty = ina_port_fault_wrap(ports[1], &faults, &back, 1000);
        endpoints[i] = ina_endpoint_start(&ina_switchml, &configs[i], faulty, -1);
        CHECK(endpoints[i]);
        ina_endpoint_spin(endpoints[i], i * 100000000ull);
    }
    CHECK(pthread_create(&thread, NULL, run_switch, &world) == 0);
    for (int round = 0; round < 3; round++) {
        int64_t tickets[WORKERS];
        struct ina_event event;
        for (uint32_t i = 0; i < WORKERS; i++) {
            struct ina_tensor tensor = {.in = data[i], .out = data[i], .count = ELEMENTS, .tag = (uint64_t)round};
            tickets[i] = ina_endpoint_submit(endpoints[i], &tensor);
            CHECK(tickets[i] > 0);
        }
        for (uint32_t i = 0; i < WORKERS; i++)
            CHECK(ina_endpoint_wait(endpoints[i], tickets[i], 60000000000u, &event) == 1 && event.type == INA_EVENT_DONE);
        for (uint32_t k = 0; k < ELEMENTS; k++)
            CHECK(data[0][k] == (int32_t)(3 * k) << round && data[1][k] == data[0][k]);
    }
    struct ina_worker_stats stats;
    ina_endpoint_stats(endpoints[0], &stats, NULL);
    CHECK(stats.retransmissions > 10 && stats.tensors == 3);
    for (uint32_t i = 0; i < WORKERS; i++)
        ina_endpoint_stop(endpoints[i]);
    __atomic_store_n(&world.over, 1, __ATOMIC_RELEASE);
    CHECK(pthread_join(thread, NULL) == 0);
    for (uint32_t i = 0; i < WORKERS; i++) {
        ina_port_close(world.ports[i]);
        for (int side = 0; side < 2; side++)
            ina_dpdk_close(devices[i][side]);
    }
    CHECK(ina_dpdk_pool_in_use(pool) == 0);
    model_switch_free(&world.model);
}

int main(int argc, char **argv)
{
    CHECK(ina_dpdk_init(argc, argv, error, sizeof error) > 0);
    CHECK(ina_dpdk_init(argc, argv, error, sizeof error) < 0 && strstr(error, "already"));
    CHECK(!ina_dpdk_pool_create(0, MAX_FRAME, 0, error, sizeof error) && !ina_dpdk_pool_create(1, 20, 0, error, sizeof error));
    CHECK(!ina_dpdk_pool_create(16, MAX_FRAME, MAX_FRAME - 1, error, sizeof error) && strstr(error, "pool of 16"));
    CHECK(!ina_dpdk_pool_create(1u << 30, MAX_FRAME, 0, error, sizeof error) && strstr(error, "memory"));
    pool = ina_dpdk_pool_create(4096, MAX_FRAME, 0, error, sizeof error);
    CHECK(pool);
    CHECK(!ina_dpdk_open("net_nothing0", pool, NULL, error, sizeof error) && strstr(error, "net_nothing0"));
    rings();
    odd_mbufs();
    faults();
    threads();
    shares();
    sums();
    ina_dpdk_pool_free(pool);
    CHECK(ina_dpdk_stop() == 0);
    return 0;
}
