/* Parameter server of one job, as a sans-IO state machine: it sums what switches could not, and replies (ATP NSDI'21 §3.5).
 *
 *     receive(frame, now) . frames_to_send(now)
 *
 * Behind p4/atp.p4 it gets sums from the switch, each of any set of workers, and sends every result once, which switches
 * multicast. Without (`direct`) it is a plain parameter server: it gets each worker's values and sends each worker a copy.
 * It has no timers: a worker that misses a result asks again.
 *
 * As in protocol.h: no socket, no clock, no allocation, no pointer inside. `state` is one caller-owned block; statistics lie
 * in a tail from stats_offset. A process that serves many jobs has a block for each, and finds it by ina_ps_job_of.
 */
#ifndef INA_PS_H
#define INA_PS_H

#include "protocol.h"

struct ina_ps_config {
    struct ina_address self;
    struct ina_address peer;                    /* direct 0: the job's root switch */
    struct ina_address worker[INA_BITMAP_WORKERS]; /* direct 1: the workers */
    uint32_t job, life, workers;                /* as the workers' */
    uint32_t slots;                             /* the workers' window; 2 * slots rows of sums, each as wide as a double, are kept */
    uint32_t values, lane;                      /* of packets, as the workers' */
    uint32_t direct;                            /* 0: frames from and to `peer`; 1: from and to the workers' own addresses */
    uint32_t multicast;                         /* direct 0: 1 sends a result once, 0 a copy for each worker */
    uint32_t routes;                            /* 1: sums may be from and for some workers only */
    uint32_t keyed;                             /* 1: check words are of mode keyed, with `key`; packets with others are dropped */
    struct ina_rule rule;                       /* the job's */
    uint8_t key[INA_KEY_BYTES];
};

struct ina_ps_stats {
    uint64_t rx_packets, rx_bytes, tx_packets, tx_bytes;
    uint64_t merged_raw, merged_partial;        /* packets that were added: of one worker (offers, too, the first of each); sums of several */
    uint64_t float_packets;                     /* among merged_raw */
    uint64_t overlaps;                          /* not added: some worker's values are there already; more offers of a worker */
    uint64_t results, repeated, pending;        /* numbers completed; results sent again; "others are missing" */
    uint64_t drop_malformed, drop_foreign, drop_stale; /* not parseable; other job, source or workers; number over, or not due */
    uint64_t drop_corrupt;                      /* the checksum of the headers, or the check words of the values, do not fit */
    uint64_t drop_version;                      /* of another wire version */
    uint64_t last_rx_ps;                        /* time of the last packet that was added */
};

size_t ina_ps_state_size(const struct ina_ps_config *config); /* 0: bad config */
size_t ina_ps_stats_offset(const struct ina_ps_config *config);
uint32_t ina_ps_frame_size(const struct ina_ps_config *config); /* longest frame, bytes */
int ina_ps_init(void *state, const struct ina_ps_config *config, uint64_t now); /* 0 or -EINVAL */
int ina_ps_job_of(const struct ina_packet *pkt);              /* a frame's job; -1: it is not for a server */
/* Takes a frame, any bytes; invalid ones are dropped and counted. Always 0. */
int ina_ps_receive(void *state, struct ina_packet *pkt, uint64_t now);
/* Fills up to n lent frames (tailroom >= frame size); returns how many. Call again until it returns less than n. */
int ina_ps_frames_to_send(void *state, struct ina_packet *pkts, int n, uint64_t now);
uint64_t ina_ps_next_timer(const void *state);                /* UINT64_MAX: it only replies */

#endif
