/* Inside host/dpdk/: a device, as its ports see it. */
#ifndef INA_DPDK_DEVICE_H
#define INA_DPDK_DEVICE_H

#include <rte_mbuf.h>
#include <rte_ring.h>
#include <rte_spinlock.h>

#include "dpdk.h"

struct ina_dpdk_pool {
    struct rte_mempool *mbufs;
    uint32_t max_frame;
};

/* Demultiplexes frames among the ports that share queue 0. */
struct ina_dpdk_steering {
    rte_spinlock_t rx, tx;               /* for a burst; rx also orders writes to inboxes */
    struct rte_ring *inbox[INA_DPDK_SHARES]; /* NULL: no such share */
    uint32_t lowest, count;              /* of existing shares */
    uint64_t missed;                     /* frames whose inbox was full */
    uint8_t owner[1 << 16];              /* by UDP destination port: share + 1; 0: none */
};

struct ina_dpdk_device {
    uint16_t id;              /* ethdev's */
    uint16_t queues;
    int created;              /* 1: by us, so closing it removes the device, too */
    struct ina_dpdk_pool *pool;
    struct rte_ring *ring;    /* of a ring pair: the one that this device sends into */
    int has_port;             /* a port has been opened on queue 0 */
    struct ina_dpdk_steering *steering; /* NULL: no shares */
    char name[64];
};

/* steer.c */
int ina_dpdk_join(struct ina_dpdk_device *device, uint32_t number); /* 0 or -errno */
void ina_dpdk_leave(struct ina_dpdk_device *device, uint32_t number);
uint16_t ina_dpdk_pull(struct ina_dpdk_device *device, uint32_t number, struct rte_mbuf **burst, uint16_t want);
uint16_t ina_dpdk_push(struct ina_dpdk_device *device, struct rte_mbuf **burst, uint16_t n);
int ina_dpdk_own(struct ina_dpdk_device *device, uint32_t number, uint16_t first, uint32_t count); /* 0 or -EBUSY */

#endif
