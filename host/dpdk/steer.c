/* Software steering: one queue, several ports, each driven by a thread of its own.
 *
 *     device ─ burst, by whoever has the lock ─> mine: lent at once | another's: its inbox ─> lent when it looks
 *
 * The alternative, a thread that only steers, costs a processor; here waiting ports steer. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_flow.h>
#include <rte_malloc.h>

#include "device.h"
#include "internet.h"

enum { INBOX = 1024, BURST = 64, NOBODY = INA_DPDK_SHARES };

static inline uint32_t owner_of(const struct ina_dpdk_steering *s, const struct rte_mbuf *m)
{
    const int port = ina_internet_port_of(rte_pktmbuf_mtod(m, const uint8_t *), m->data_len);
    const uint32_t owner = port < 0 ? 0 : s->owner[port];
    return owner ? owner - 1 : s->lowest;
}

uint16_t ina_dpdk_pull(struct ina_dpdk_device *device, uint32_t number, struct rte_mbuf **burst, uint16_t want)
{
    struct ina_dpdk_steering *s = device->steering;
    uint16_t n = (uint16_t)rte_ring_sc_dequeue_burst(s->inbox[number], (void **)burst, want, NULL); /* older ones first */
    if (n == want || !rte_spinlock_trylock(&s->rx))
        return n;
    /* The last holder of the lock may have added more: older than the device's frames. From now on nobody does. */
    n += (uint16_t)rte_ring_sc_dequeue_burst(s->inbox[number], (void **)burst + n, want - n, NULL);
    if (n == want) {
        rte_spinlock_unlock(&s->rx);
        return n;
    }
    if (s->count == 1) { /* the only share */
        n += rte_eth_rx_burst(device->id, 0, burst + n, want - n);
        rte_spinlock_unlock(&s->rx);
        return n;
    }
    struct rte_mbuf *come[BURST];
    const uint16_t got = rte_eth_rx_burst(device->id, 0, come, BURST);
    for (uint16_t i = 0; i < got; i++)
        rte_prefetch0(rte_pktmbuf_mtod(come[i], void *));
    for (uint16_t i = 0; i < got; i++) {
        const uint32_t owner = owner_of(s, come[i]);
        if (owner == number && n < want) {
            burst[n++] = come[i];
        } else if (owner == NOBODY || rte_ring_sp_enqueue(s->inbox[owner], come[i])) {
            s->missed++;
            rte_pktmbuf_free(come[i]);
        }
    }
    rte_spinlock_unlock(&s->rx);
    return n;
}

uint16_t ina_dpdk_push(struct ina_dpdk_device *device, struct rte_mbuf **burst, uint16_t n)
{
    rte_spinlock_lock(&device->steering->tx);
    const uint16_t sent = rte_eth_tx_burst(device->id, 0, burst, n);
    rte_spinlock_unlock(&device->steering->tx);
    return sent;
}

int ina_dpdk_own(struct ina_dpdk_device *device, uint32_t number, uint16_t first, uint32_t count)
{
    struct ina_dpdk_steering *s = device->steering;
    int failed = first + count > 1 << 16 ? -EINVAL : 0;
    rte_spinlock_lock(&s->rx);
    for (uint32_t port = first; !failed && port < first + count; port++)
        failed = s->owner[port] && s->owner[port] != number + 1 ? -EBUSY : 0;
    if (!failed)
        memset(&s->owner[first], (int)number + 1, count);
    rte_spinlock_unlock(&s->rx);
    return failed;
}

static void look_around(struct ina_dpdk_steering *s)
{
    s->lowest = NOBODY;
    s->count = 0;
    for (uint32_t i = INA_DPDK_SHARES; i-- > 0;)
        if (s->inbox[i]) {
            s->lowest = i;
            s->count++;
        }
}

int ina_dpdk_join(struct ina_dpdk_device *device, uint32_t number)
{
    char name[RTE_RING_NAMESIZE];
    if (number >= INA_DPDK_SHARES || device->has_port)
        return -EINVAL;
    if (!device->steering) {
        device->steering = rte_zmalloc(NULL, sizeof *device->steering, RTE_CACHE_LINE_SIZE);
        if (!device->steering)
            return -ENOMEM;
        rte_spinlock_init(&device->steering->rx);
        rte_spinlock_init(&device->steering->tx);
        device->steering->lowest = NOBODY;
    }
    struct ina_dpdk_steering *s = device->steering;
    if (s->inbox[number])
        return -EEXIST;
    snprintf(name, sizeof name, "ina_%u_%u", device->id, number);
    struct rte_ring *inbox = rte_ring_create(name, INBOX, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
    if (!inbox)
        return rte_errno ? -rte_errno : -ENOMEM;
    rte_spinlock_lock(&s->rx);
    s->inbox[number] = inbox;
    look_around(s);
    rte_spinlock_unlock(&s->rx);
    return 0;
}

int ina_dpdk_has_share(const struct ina_dpdk_device *device, uint32_t number)
{
    return number < INA_DPDK_SHARES && device->steering && device->steering->inbox[number];
}

void ina_dpdk_leave(struct ina_dpdk_device *device, uint32_t number)
{
    struct ina_dpdk_steering *s = device->steering;
    rte_spinlock_lock(&s->rx);
    struct rte_ring *inbox = s->inbox[number];
    s->inbox[number] = NULL;
    for (uint32_t port = 0; port < 1 << 16; port++)
        if (s->owner[port] == number + 1)
            s->owner[port] = 0;
    look_around(s);
    rte_spinlock_unlock(&s->rx);
    for (struct rte_mbuf *left; rte_ring_sc_dequeue(inbox, (void **)&left) == 0;)
        rte_pktmbuf_free(left);
    rte_ring_free(inbox);
}

int ina_dpdk_flow(struct ina_dpdk_device *device, uint16_t port, uint32_t queue, char *error, size_t error_size)
{
    const struct rte_flow_attr ingress = {.ingress = 1};
    const struct rte_flow_item_udp wanted = {.hdr.dst_port = rte_cpu_to_be_16(port)}, mask = {.hdr.dst_port = 0xffff};
    const struct rte_flow_item pattern[] = {
        {.type = RTE_FLOW_ITEM_TYPE_ETH},
        {.type = RTE_FLOW_ITEM_TYPE_IPV4},
        {.type = RTE_FLOW_ITEM_TYPE_UDP, .spec = &wanted, .mask = &mask},
        {.type = RTE_FLOW_ITEM_TYPE_END},
    };
    const struct rte_flow_action_queue to = {.index = (uint16_t)queue};
    const struct rte_flow_action actions[] = {
        {.type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &to}, {.type = RTE_FLOW_ACTION_TYPE_END}};
    struct rte_flow_error why = {0};
    if (queue >= device->queues) {
        snprintf(error, error_size, "device %s has no queue %u", device->name, queue);
        return -EINVAL;
    }
    if (rte_flow_create(device->id, &ingress, pattern, actions, &why))
        return 0;
    snprintf(error, error_size, "device %s: no flow rule for UDP port %u: %s", device->name, port,
             why.message ? why.message : rte_strerror(rte_errno));
    return rte_errno ? -rte_errno : -ENOTSUP;
}
