/* Seeded faults. `ina_fault_decide` is the sans-IO core (virtual time schedules what it says);
 * `ina_port_fault_wrap` applies it to any port, independently for each direction.
 * Corruption flips bits and is turned into loss by the port's CRC, as an Ethernet FCS would (FACTS: IEEE 802.3 §3.2.9).
 */
#ifndef INA_FAULT_H
#define INA_FAULT_H

#include <stdint.h>

#include "port.h"

struct ina_fault_config {
    double loss, duplicate, reorder, corrupt; /* probabilities per packet */
    uint64_t duplicate_delay_ps;  /* a duplicate comes late by uniform [0, this] */
    uint64_t reorder_delay_ps;    /* a reordered packet is held for uniform (0, this] */
    uint64_t seed;
};

struct ina_fault {               /* a value: no pointers */
    struct ina_fault_config config;
    uint64_t rng[4];
    uint64_t packets, lost, duplicated, reordered, corrupted;
};

void ina_fault_init(struct ina_fault *fault, const struct ina_fault_config *config);
/* How many copies arrive (0..2) and by how much each is late (ps). */
int ina_fault_decide(struct ina_fault *fault, uint64_t delay_ps[2]);

/* Takes ownership of `inner`. rx_faults / tx_faults may be NULL. NULL + errno. */
struct ina_port *ina_port_fault_wrap(struct ina_port *inner, const struct ina_fault_config *rx_faults,
                                     const struct ina_fault_config *tx_faults);

/* ---- capture (pcap.c): writes every frame in both directions, nanosecond pcap (magic 0xa1b23c4d) */
struct ina_port *ina_port_pcap_wrap(struct ina_port *inner, const char *path); /* takes ownership; NULL + errno */

#endif
