/* DPDK's environment, pools of mbufs, and devices. Nothing here runs per packet. */
#define _GNU_SOURCE 1 /* sched_getaffinity */
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_bus_vdev.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_flow.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_mbuf_pool_ops.h>
#include <rte_version.h>

#include "device.h"
#include "port.h"

static void say(char *error, size_t size, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (size)
        vsnprintf(error, size, format, arguments);
    va_end(arguments);
}

/* ---- the environment ------------------------------------------------------------------------------------------- */

int ina_dpdk_init(int argc, char **argv, char *error, size_t error_size)
{
    cpu_set_t before;
    const int known = sched_getaffinity(0, sizeof before, &before) == 0;
    const int taken = rte_eal_init(argc, argv);
    const int reason = rte_errno;
    if (known)
        sched_setaffinity(0, sizeof before, &before); /* EAL binds its caller to the first lcore's processor */
    if (taken >= 0)
        return taken;
    say(error, error_size, reason == EALREADY ? "EAL runs already in this process" : "EAL does not start: %s", rte_strerror(reason));
    return reason ? -reason : -EINVAL;
}

int ina_dpdk_stop(void)
{
    return rte_eal_cleanup();
}

const char *ina_dpdk_version(void)
{
    return rte_version();
}

int ina_dpdk_cpus(int *cpus, int max)
{
    int n = 0;
    for (unsigned lcore = rte_get_next_lcore(UINT_MAX, 0, 0); lcore < RTE_MAX_LCORE; lcore = rte_get_next_lcore(lcore, 0, 0)) {
        const cpu_set_t set = rte_lcore_cpuset(lcore);
        for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET(cpu, &set)) {
                if (n < max)
                    cpus[n] = (int)cpu;
                n++;
                break;
            }
    }
    return n;
}

/* ---- pools ------------------------------------------------------------------------------------------------------ */

enum { CACHE = 256 };
/* Values begin a cache line (port.h). */
_Static_assert(RTE_PKTMBUF_HEADROOM == INA_PORT_HEADROOM, "DPDK was built with another headroom");

struct ina_dpdk_pool *ina_dpdk_pool_create(uint32_t mbufs, uint32_t max_frame, uint32_t buffer, char *error, size_t error_size)
{
    static unsigned number;
    char name[RTE_MEMPOOL_NAMESIZE];
    if (max_frame < INA_PORT_MIN_FRAME || max_frame > INA_PORT_MAX_FRAME || !mbufs
        || (buffer && (buffer < max_frame || buffer > UINT16_MAX - RTE_PKTMBUF_HEADROOM))) {
        say(error, error_size, "pool of %u mbufs for frames of %u bytes: expected at least one, and frames of %d to %d bytes", mbufs,
            max_frame, INA_PORT_MIN_FRAME, INA_PORT_MAX_FRAME);
        return NULL;
    }
    struct ina_dpdk_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return NULL;
    /* NICs take buffers in steps of up to 1 KiB, 2 KiB at least, and count VLAN tags and FCS in. A line more, so that mbufs are
     * an odd number of lines apart and spread over the cache's sets: but for the flag, none would lie across pages, and without
     * huge pages each begin one. Where devices see our addresses, what is in one piece for us is so for them. */
    const uint32_t whole = RTE_ALIGN_CEIL(max_frame + 2 * RTE_VLAN_HLEN + RTE_ETHER_CRC_LEN, 1024);
    const uint32_t data = whole < RTE_MBUF_DEFAULT_DATAROOM ? RTE_MBUF_DEFAULT_DATAROOM : whole;
    const uint32_t room = RTE_PKTMBUF_HEADROOM + (buffer ? buffer : data + RTE_CACHE_LINE_SIZE);
    const unsigned flags = rte_eal_iova_mode() == RTE_IOVA_VA ? RTE_MEMPOOL_F_NO_IOVA_CONTIG : 0;
    struct rte_pktmbuf_pool_private how = {.mbuf_data_room_size = (uint16_t)room};
    snprintf(name, sizeof name, "ina_%u", number++);
    pool->max_frame = max_frame;
    pool->mbufs = rte_mempool_create_empty(name, mbufs, (unsigned)sizeof(struct rte_mbuf) + room,
                                           mbufs >= 3 * CACHE ? CACHE : 0, sizeof how, SOCKET_ID_ANY, flags);
    if (pool->mbufs) {
        rte_pktmbuf_pool_init(pool->mbufs, &how);
        if (rte_mempool_set_ops_byname(pool->mbufs, rte_mbuf_best_mempool_ops(), NULL) == 0
            && rte_mempool_populate_default(pool->mbufs) >= 0) {
            rte_mempool_obj_iter(pool->mbufs, rte_pktmbuf_init, NULL);
            return pool;
        }
    }
    say(error, error_size, "no memory for %u mbufs of %u bytes: %s; give EAL more (-m MEGABYTES, or huge pages)", mbufs, room,
        rte_strerror(rte_errno));
    ina_dpdk_pool_free(pool);
    return NULL;
}

uint32_t ina_dpdk_pool_in_use(const struct ina_dpdk_pool *pool)
{
    return rte_mempool_in_use_count(pool->mbufs);
}

void ina_dpdk_pool_free(struct ina_dpdk_pool *pool)
{
    if (!pool)
        return;
    rte_mempool_free(pool->mbufs);
    free(pool);
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

/* 0, or -errno and the failed step in *what. */
static int start(struct ina_dpdk_device *device, const struct ina_dpdk_config *config, const char **what)
{
    struct rte_eth_dev_info info;
    struct rte_eth_conf conf = {0};
    uint16_t rx_desc = (uint16_t)(config->rx_desc ? config->rx_desc : 1024);
    uint16_t tx_desc = (uint16_t)(config->tx_desc ? config->tx_desc : 1024);
    uint16_t mtu = (uint16_t)(device->pool->max_frame - RTE_ETHER_HDR_LEN);
    int failed;
    *what = "asking for its limits";
    if ((failed = rte_eth_dev_info_get(device->id, &info)))
        return failed;
    *what = "so many queues";
    if (device->queues > info.max_rx_queues || device->queues > info.max_tx_queues)
        return -EINVAL;
    *what = "frames of this size";
    if (info.max_mtu && info.max_mtu != UINT16_MAX && mtu > info.max_mtu)
        return -EMSGSIZE;
    /* memif reports 1518 bytes, but carries as much as its buffers hold (bsize). */
    if (!strcmp(info.driver_name, "net_memif") && mtu > RTE_ETHER_MTU)
        mtu = RTE_ETHER_MTU;
    conf.rxmode.mtu = mtu > RTE_ETHER_MIN_MTU ? mtu : RTE_ETHER_MTU;
    /* One pool, and no mbuf has two owners. */
    conf.txmode.offloads = info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
    *what = "configuring it";
    if ((failed = rte_eth_dev_configure(device->id, device->queues, device->queues, &conf)))
        return failed;
    rte_eth_dev_adjust_nb_rx_tx_desc(device->id, &rx_desc, &tx_desc);
    const int node = rte_eth_dev_socket_id(device->id);
    for (uint16_t queue = 0; queue < device->queues; queue++) {
        *what = "making its receive queues";
        if ((failed = rte_eth_rx_queue_setup(device->id, queue, rx_desc, (unsigned)node, NULL, device->pool->mbufs)))
            return failed;
        *what = "making its transmit queues";
        if ((failed = rte_eth_tx_queue_setup(device->id, queue, tx_desc, (unsigned)node, NULL)))
            return failed;
    }
    *what = "starting it";
    if ((failed = rte_eth_dev_start(device->id)))
        return failed;
    *what = "promiscuous mode"; /* a switch's workers have addresses of their own */
    failed = rte_eth_promiscuous_enable(device->id);
    return failed == -ENOTSUP ? 0 : failed;
}

static struct ina_dpdk_device *started(struct ina_dpdk_device *device, const struct ina_dpdk_config *config, char *error,
                                       size_t error_size)
{
    static const struct ina_dpdk_config defaults;
    const char *what = "so many queues";
    config = config ? config : &defaults;
    device->queues = (uint16_t)(config->queues ? config->queues : 1);
    const int failed = config->queues > INA_DPDK_QUEUES ? -EINVAL : start(device, config, &what);
    if (!failed)
        return device;
    say(error, error_size, "device %s: %s: %s (%u queues, frames of %u bytes)", device->name, what, rte_strerror(-failed),
        device->queues, device->pool->max_frame);
    ina_dpdk_close(device);
    return NULL;
}

struct ina_dpdk_device *ina_dpdk_open(const char *name, struct ina_dpdk_pool *pool, const struct ina_dpdk_config *config,
                                      char *error, size_t error_size)
{
    struct ina_dpdk_device *device = calloc(1, sizeof *device);
    if (!device)
        return NULL;
    snprintf(device->name, sizeof device->name, "%.*s", (int)strcspn(name, ","), name);
    device->pool = pool;
    if (rte_eth_dev_get_port_by_name(device->name, &device->id)) {
        const int failed = rte_dev_probe(name);
        device->created = !failed;
        if (failed || rte_eth_dev_get_port_by_name(device->name, &device->id)) {
            say(error, error_size, "device %s: %s", name,
                failed ? rte_strerror(-failed) : "it is no Ethernet device that a driver of DPDK has taken");
            free(device);
            return NULL;
        }
    }
    return started(device, config, error, error_size);
}

int ina_dpdk_ring_pair(const char *name, struct ina_dpdk_pool *pool, uint32_t frames, struct ina_dpdk_device *pair[2],
                       char *error, size_t error_size)
{
    struct rte_ring *rings[2] = {NULL, NULL};
    pair[0] = pair[1] = NULL;
    if (!frames || (frames & (frames - 1))) {
        say(error, error_size, "ring pair %s of %u frames: expected a power of two", name, frames);
        return -EINVAL;
    }
    for (int i = 0; i < 2; i++) {
        char ring[RTE_RING_NAMESIZE];
        snprintf(ring, sizeof ring, "%.20s_%c", name, '0' + i);
        rings[i] = rte_ring_create(ring, frames, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ | RING_F_EXACT_SZ);
        if (!rings[i]) {
            say(error, error_size, "ring pair %s of %u frames: %s", name, frames, rte_strerror(rte_errno));
            rte_ring_free(rings[0]);
            return rte_errno ? -rte_errno : -ENOMEM;
        }
    }
    for (int i = 0; i < 2; i++) {
        char end[24];
        struct ina_dpdk_device *device = calloc(1, sizeof *device);
        snprintf(end, sizeof end, "%.20s_%c", name, 'a' + i);
        const int id = device ? rte_eth_from_rings(end, &rings[!i], 1, &rings[i], 1, (unsigned)SOCKET_ID_ANY) : -1;
        if (id >= 0) {
            snprintf(device->name, sizeof device->name, "net_ring_%s", end);
            device->id = (uint16_t)id;
            device->pool = pool;
            device->created = 1;
            pair[i] = started(device, NULL, error, error_size);
        } else {
            say(error, error_size, "ring pair %s: %s", name, rte_strerror(rte_errno));
            free(device);
        }
        if (!pair[i]) {
            if (i)
                ina_dpdk_close(pair[0]);
            rte_ring_free(rings[0]);
            rte_ring_free(rings[1]);
            pair[0] = NULL;
            return -EINVAL;
        }
    }
    for (int i = 0; i < 2; i++)
        pair[i]->ring = rings[i]; /* each frees the one that it sends into */
    return 0;
}

int ina_dpdk_stats(const struct ina_dpdk_device *device, struct ina_dpdk_device_stats *stats)
{
    struct rte_eth_stats s;
    const int failed = rte_eth_stats_get(device->id, &s);
    if (!failed)
        *stats = (struct ina_dpdk_device_stats){
            .rx_packets = s.ipackets, .rx_bytes = s.ibytes, .tx_packets = s.opackets, .tx_bytes = s.obytes,
            .rx_missed = s.imissed + (device->steering ? device->steering->missed : 0), .rx_errors = s.ierrors,
            .tx_errors = s.oerrors, .rx_no_mbuf = s.rx_nombuf};
    return failed;
}

int ina_dpdk_link_up(const struct ina_dpdk_device *device)
{
    struct rte_eth_link link;
    return rte_eth_link_get_nowait(device->id, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

uint64_t ina_dpdk_link_bps(const struct ina_dpdk_device *device)
{
    struct rte_eth_link link;
    if (rte_eth_link_get_nowait(device->id, &link) || link.link_speed == RTE_ETH_SPEED_NUM_UNKNOWN)
        return 0;
    return (uint64_t)link.link_speed * 1000000;
}

void ina_dpdk_close(struct ina_dpdk_device *device)
{
    if (!device)
        return;
    rte_flow_flush(device->id, NULL); /* not every driver does it */
    rte_eth_dev_stop(device->id);
    if (device->created) {
        struct rte_eth_dev_info info;
        if (rte_eth_dev_info_get(device->id, &info) || rte_dev_remove(info.device))
            rte_eth_dev_close(device->id);
    }
    for (struct rte_mbuf *left; device->ring && rte_ring_dequeue(device->ring, (void **)&left) == 0;)
        rte_pktmbuf_free(left);
    rte_ring_free(device->ring);
    rte_free(device->steering);
    free(device);
}
