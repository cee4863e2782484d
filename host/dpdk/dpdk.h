/* DPDK: ports (port.h) over queues of Ethernet devices, whatever drives them: NICs by PCI address, or virtual devices (memif,
 * ring, af_packet, af_xdp, pcap, vhost, virtio-user, tap).
 *
 *     ina_dpdk_init(argc, argv) ─> ina_dpdk_pool_create ─> ina_dpdk_open("net_memif0,role=client,...") ─> ina_dpdk_port ─> ...
 *
 * A library of its own, built where pkg-config finds libdpdk; nothing else of the project links DPDK. Frames are mbufs that are
 * lent where they lie, both ways: no copy, and per packet no allocation beyond the pool's cache of the thread and no lock.
 * Errors are texts for people in `error`, cut to `error_size` bytes.
 */
#ifndef INA_DPDK_H
#define INA_DPDK_H

#include <stddef.h>
#include <stdint.h>

struct ina_port;
struct ina_dpdk_pool;
struct ina_dpdk_device;

/* Starts DPDK's environment (EAL), once in a process. argv[0] is any name; arguments end where EAL's own do (at "--"). The
 * calling thread keeps its CPU affinity. Returns how many arguments EAL took, or -errno. */
int ina_dpdk_init(int argc, char **argv, char *error, size_t error_size);
int ina_dpdk_stop(void);      /* closes EAL; every device and pool is closed. 0 or -errno */
const char *ina_dpdk_version(void);
/* Processors of EAL's lcores (-l, --lcores), one each: writes the first `max` to `cpus`, returns how many there are. */
int ina_dpdk_cpus(int *cpus, int max);

/* ---- pools: mbufs that ports share. What one port sends and another one of the process receives never leaves the pool. --- */
/* `mbufs`: at least those that devices hold in their queues, and 64 for each port and direction. `max_frame`: bytes. `buffer`:
 * bytes of an mbuf behind its headroom, at least as many; 0: enough for any device. */
struct ina_dpdk_pool *ina_dpdk_pool_create(uint32_t mbufs, uint32_t max_frame, uint32_t buffer, char *error, size_t error_size);
uint32_t ina_dpdk_pool_in_use(const struct ina_dpdk_pool *pool); /* mbufs that are not in the pool; slow */
void ina_dpdk_pool_free(struct ina_dpdk_pool *pool);             /* after the devices that use it are closed */

/* ---- devices ------------------------------------------------------------------------------------------------------- */
struct ina_dpdk_config {
    uint32_t queues;          /* receive and transmit queues of each, 1..INA_DPDK_QUEUES; 0: one */
    uint32_t rx_desc, tx_desc; /* descriptors of a queue; 0: 1024. The device may round them */
};
enum { INA_DPDK_QUEUES = 64 };

/* `device`: "0000:17:00.0" (a PCI address that EAL may use), or a virtual device and its arguments, "net_memif0,role=server".
 * Starts it, promiscuous. NULL: `error` says why. */
struct ina_dpdk_device *ina_dpdk_open(const char *device, struct ina_dpdk_pool *pool, const struct ina_dpdk_config *config,
                                      char *error, size_t error_size);
/* Two devices of this process connected by rte_rings of `frames` (a power of two) each way. 0 or -errno. */
int ina_dpdk_ring_pair(const char *name, struct ina_dpdk_pool *pool, uint32_t frames, struct ina_dpdk_device *pair[2],
                       char *error, size_t error_size);
/* A port on queue `queue` of the device, driven by one thread at a time; it ends before the device does. NULL + errno. */
struct ina_port *ina_dpdk_port(struct ina_dpdk_device *device, uint32_t queue);

/* ---- several ports on one device: steered by UDP destination port ---------------------------------------------------
 * In software (steer.c): up to INA_DPDK_SHARES ports on queue 0, each driven by a thread of its own. A port that polls
 * receives for all and puts others' frames into their rings; a lock for each burst, none for a packet. Unclaimed frames go to
 * the share with the lowest number. A device has shares or ports on queue 0, not both. NULL + errno (EEXIST, EINVAL, ENOMEM). */
enum { INA_DPDK_SHARES = 64 };
struct ina_port *ina_dpdk_share(struct ina_dpdk_device *device, uint32_t number);
int ina_dpdk_has_share(const struct ina_dpdk_device *device, uint32_t number); /* 1: a port has this number */
/* UDP destination ports first..first+count-1 are this share's from now on, until it is closed. 0, -EBUSY: some are another's. */
int ina_dpdk_claim(struct ina_port *share, uint16_t first, uint32_t count);
/* In the device: frames to UDP port `port` go to `queue` (rte_flow). 0, or -errno and why not. Rules end with the device. */
int ina_dpdk_flow(struct ina_dpdk_device *device, uint16_t port, uint32_t queue, char *error, size_t error_size);
/* mbufs that the port holds at the moment: lent, to be sent as soon as the device has room, and ready for the next tx_get. */
uint32_t ina_dpdk_port_held(const struct ina_port *port);

struct ina_dpdk_device_stats {
    uint64_t rx_packets, rx_bytes, tx_packets, tx_bytes;
    uint64_t rx_missed;       /* the device had no descriptor, or its ring or a share's was full */
    uint64_t rx_errors, tx_errors, rx_no_mbuf;
};
int ina_dpdk_stats(const struct ina_dpdk_device *device, struct ina_dpdk_device_stats *stats); /* 0 or -errno */
int ina_dpdk_link_up(const struct ina_dpdk_device *device); /* 1: it is; memif: the peer is there */
uint64_t ina_dpdk_link_bps(const struct ina_dpdk_device *device); /* 0: unknown */
void ina_dpdk_close(struct ina_dpdk_device *device);        /* its ports are closed */

#endif
