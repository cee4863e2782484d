/* Frames for tests of ports in C: numbered ones, sent in random batches, and what must arrive. */
#ifndef TRAFFIC_H
#define TRAFFIC_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "port.h"

enum { BATCH = 32, FRAMES = 64, MAX_FRAME = 500 };

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what); \
            exit(1); \
        } \
    } while (0)

static inline uint32_t number(uint32_t *seed, uint32_t below)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % below;
}

/* An IPv4/UDP frame of `len` bytes (at least 50) whose payload begins with a number. */
static inline void fill(struct ina_packet *pkt, uint32_t i, uint32_t len)
{
    memset(pkt->data, (int)i, len);
    pkt->data[12] = 8;
    pkt->data[13] = 0;
    pkt->data[14] = 0x45;
    pkt->data[23] = 17;
    pkt->data[38] = (uint8_t)((len - 34) >> 8);
    pkt->data[39] = (uint8_t)(len - 34);
    memcpy(pkt->data + 42, &i, sizeof i);
    pkt->len = len;
}

static inline uint32_t number_in(const struct ina_packet *pkt)
{
    uint32_t i;
    CHECK(pkt->len >= 50 && pkt->len <= MAX_FRAME);
    memcpy(&i, pkt->data + 42, sizeof i);
    for (uint32_t at = 46; at < pkt->len; at++)
        CHECK(pkt->data[at] == (uint8_t)i);
    return i;
}

/* Sends 5000 numbered frames in random batches, with gaps, and counts what arrives; in order if nothing reorders. */
static inline uint32_t traffic(struct ina_port *from, struct ina_port *to, int in_order)
{
    struct ina_packet pkts[BATCH];
    uint32_t seed = 7, sent = 0, received = 0, last = 0;
    uint64_t now = 1000000;
    memset(pkts, 0, sizeof pkts);
    while (sent < 5000 || ina_port_next_due(to) != UINT64_MAX || ina_port_next_due(from) != UINT64_MAX) {
        int want = 1 + (int)number(&seed, BATCH), n = ina_port_tx_get(from, pkts, want);
        for (int i = 0; i < n; i++) {
            if (sent == 5000 || number(&seed, 10) == 0)
                continue; /* its len stays 0 */
            uint32_t len = 50 + number(&seed, MAX_FRAME - 49), grow = number(&seed, 40);
            pkts[i].data -= grow; /* room in front of the frame may be used */
            fill(&pkts[i], ++sent, len);
        }
        ina_port_tx_put(from, pkts, n, now);
        for (int got = -1; got; ina_port_rx_done(to, got)) {
            got = ina_port_rx(to, pkts, 1 + (int)number(&seed, BATCH), now);
            for (int i = 0; i < got; i++, received++) {
                uint32_t next = number_in(&pkts[i]);
                CHECK(!in_order || next > last);
                last = next;
                memset(pkts[i].data, 0xff, pkts[i].len + pkts[i].tailroom); /* lent frames may be written */
            }
        }
        now += number(&seed, 2000);
    }
    return received;
}

#endif
