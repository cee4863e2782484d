/* Two threads bounce numbered frames over a pair of ports, sleeping whenever there is nothing to do. Frames must come
 * exactly once, in order and whole; a bell that is not rung shows as a time-out. Exit status 0: all well. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "port.h"

enum { BATCH = 32, MAX_FRAME = 256 };
static const uint64_t TIMEOUT = 20 * 1000000000000u;

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what); \
            exit(1); \
        } \
    } while (0)

struct side {
    struct ina_port *port;
    uint64_t frames, sleeps;
    uint32_t seed;
};

static uint32_t number(uint32_t *seed, uint32_t below)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 16) % below;
}

/* Frame i: 8 + i % 200 bytes, the first eight its number, the others its lowest byte. */
static void fill(struct ina_packet *pkt, uint64_t i)
{
    pkt->len = 8 + (uint32_t)(i % 200);
    for (uint32_t at = 0; at < pkt->len; at++)
        pkt->data[at] = (uint8_t)(at < 8 ? i >> (8 * at) : i);
}

static void check(const struct ina_packet *pkt, uint64_t i)
{
    CHECK(pkt->len == 8 + i % 200 && pkt->wire_len == pkt->len);
    for (uint32_t at = 0; at < pkt->len; at++)
        CHECK(pkt->data[at] == (uint8_t)(at < 8 ? i >> (8 * at) : i));
}

static void *bounce(void *argument)
{
    struct side *side = argument;
    struct ina_packet pkts[BATCH];
    uint64_t sent = 0, received = 0;
    while (received < side->frames || sent < side->frames) {
        uint64_t left = side->frames - sent, may = received + 64 - sent; /* at most 64 ahead of the other side */
        uint64_t want = 1 + number(&side->seed, BATCH);
        want = want < left ? want : left;
        want = want < may ? want : may;
        int n = ina_port_tx_get(side->port, pkts, (int)want);
        for (int i = 0; i < n; i++)
            fill(&pkts[i], sent++);
        ina_port_tx_put(side->port, pkts, n, 0);
        int got = ina_port_rx(side->port, pkts, 1 + (int)number(&side->seed, BATCH), 0);
        for (int i = 0; i < got; i++)
            check(&pkts[i], received++);
        ina_port_rx_done(side->port, got);
        if (!n && !got && received < side->frames) {
            side->sleeps++;
            CHECK(ina_port_wait(side->port, TIMEOUT) == 1);
        }
    }
    CHECK(side->port->stats.rx_packets == side->frames && side->port->stats.tx_packets == side->frames);
    CHECK(!side->port->stats.rx_malformed && !side->port->stats.tx_malformed && !side->port->stats.errors);
    return NULL;
}

int main(int argc, char **argv)
{
    struct ina_port *pair[2];
    struct side sides[2];
    pthread_t threads[2];
    uint64_t frames = argc > 1 ? strtoull(argv[1], NULL, 10) : 100000;
    CHECK(ina_port_mem_pair(128, MAX_FRAME, pair) == 0);
    for (uint32_t i = 0; i < 2; i++) {
        sides[i] = (struct side){.port = pair[i], .frames = frames, .seed = i + 1};
        CHECK(pthread_create(&threads[i], NULL, bounce, &sides[i]) == 0);
    }
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < 2; i++) {
        printf("side %d: %llu sleeps, %llu wakeups of the other\n", i, (unsigned long long)sides[i].sleeps,
               (unsigned long long)pair[i]->stats.wakeups);
        ina_port_close(pair[i]);
    }
    return 0;
}
