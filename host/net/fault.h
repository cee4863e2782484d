/* Seeded faults. `ina_fault_decide` is the sans-IO core (virtual time schedules by it);
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
    uint64_t packets, lost, duplicated, reordered, corrupted; /* each packet has at most one of lost and corrupted */
};

/* Draws come from xoshiro256** seeded by splitmix64. Every packet takes the same number of draws, whatever its fate:
 * with one seed, a packet lost at 0.1 % is lost at 1 % too, and one probability does not shift another's draws. */
void ina_fault_init(struct ina_fault *fault, const struct ina_fault_config *config);
/* Returns how many copies arrive (0..2), and the delay of each (ps). Lost and corrupted packets: 0. */
int ina_fault_decide(struct ina_fault *fault, uint64_t delay_ps[2]);
/* Damages 1 to 7 bits of a frame, as the wire would. */
void ina_fault_flip(struct ina_fault *fault, uint8_t *data, uint32_t len);
/* CRC-32 of IEEE 802.3 §3.2.9. */
uint32_t ina_crc32(const uint8_t *data, uint32_t len);

/* Takes ownership of `inner` (not when it fails). rx_faults / tx_faults may be NULL: that direction is left alone.
 * A corrupted frame is flipped, its CRC fails, and it is counted (rx_malformed for received ones) and gone. Delayed
 * frames are copies, at most `held` of them in each direction at once; frames without room are lost (`overflow`).
 * Sending a delayed frame happens in any later call: the owner calls rx when next_due says so. NULL + errno
 * (EINVAL: probability outside 0..1). */
struct ina_port *ina_port_fault_wrap(struct ina_port *inner, const struct ina_fault_config *rx_faults,
                                     const struct ina_fault_config *tx_faults, uint32_t held);
struct ina_fault_report {
    struct ina_fault rx, tx;
    uint64_t rx_overflow, tx_overflow;
};
void ina_port_fault_report(const struct ina_port *port, struct ina_fault_report *report);

/* ---- capture (pcap.c): writes every frame in both directions, nanosecond pcap (magic 0xa1b23c4d), times as `now`.
 * Written out when the buffer is full, when the port is armed, and on close. If the file cannot be written (disk
 * full), capture stops at its last whole record and says so in the report; traffic goes on. */
struct ina_port *ina_port_pcap_wrap(struct ina_port *inner, const char *path); /* takes ownership; NULL + errno */
struct ina_pcap_report {
    uint64_t captured, missed; /* frames: in the file or its buffer; not captured since the error */
    int error;                 /* errno that stopped the capture, 0: none */
};
void ina_port_pcap_report(const struct ina_port *port, struct ina_pcap_report *report);

#endif
