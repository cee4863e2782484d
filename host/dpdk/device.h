/* Inside host/dpdk/: what a device is, for its ports. */
#ifndef INA_DPDK_DEVICE_H
#define INA_DPDK_DEVICE_H

#include <rte_mempool.h>

#include "dpdk.h"

struct ina_dpdk_pool {
    struct rte_mempool *mbufs;
    uint32_t max_frame;
};

struct ina_dpdk_device {
    uint16_t id;              /* ethdev's */
    uint16_t queues;
    int created;              /* 1: by us, so that closing it takes the device away, too */
    struct ina_dpdk_pool *pool;
    struct rte_ring *ring;    /* of a ring pair: the one that this device sends into */
    char name[64];
};

#endif
