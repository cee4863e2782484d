/* Inside host/dpdk/: what a device is, for its ports. */
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

/* Whose is what comes, of a device whose first queue several ports share. */
struct ina_dpdk_steering {
    rte_spinlock_t rx, tx;               /* for a burst; rx also orders who puts into inboxes */
    struct rte_ring *inbox[INA_DPDK_SHARES]; /* NULL: no such share */
    uint32_t lowest, count;              /* of those that are there */
    uint64_t missed;                     /* frames whose inbox was full */
    uint8_t owner[1 << 16];              /* by UDP destination port: share + 1; 0: nobody's */
};

struct ina_dpdk_device {
    uint16_t id;              /* ethdev's */
    uint16_t queues;
    int created;              /* 1: by us, so that closing it takes the device away, too */
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
