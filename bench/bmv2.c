/* Workers around a switch behind real ports, for bench/bmv2.py: each sends the next packet of a slot when it has the result of
 * the last one, and checks every value of every result. One thread, which sleeps while there is nothing to receive.
 */
#include <poll.h>

#include "switch.c" /* the packets, and the sums */

enum { SILENCE_MS = 1000 };

static int put(struct bench *b, uint32_t worker, const uint32_t *tsis, int n)
{
    struct ina_port *port = b->host[worker];
    struct ina_packet pkts[64];
    if (port->ops->tx_get(port, pkts, n) != n)
        return -1;
    for (int i = 0; i < n; i++)
        fill(b, worker, tsis[i], &pkts[i]);
    port->ops->tx_put(port, pkts, n, 0);
    b->packets += (uint64_t)n;
    return 0;
}

/* Receives a worker's results and answers each with its slot's next packet. Returns their number; -1: the port takes no more. */
static int serve(struct bench *b, uint32_t worker, uint32_t total)
{
    struct ina_port *port = b->host[worker];
    struct ina_packet pkts[64];
    uint32_t next[64];
    int n = port->ops->rx(port, pkts, 64, 0), k = 0;
    for (int i = 0; i < n; i++) {
        uint32_t tsi = load32(pkts[i].data + TSI) + b->slots;
        b->wrong += !is_right(b, &pkts[i]);
        if (tsi < total)
            next[k++] = tsi;
    }
    if (n > 0)
        port->ops->rx_done(port, n);
    b->results += (uint64_t)n;
    return k && put(b, worker, next, k) ? -1 : n;
}

/* Returns 0: all sums arrived; 1: a packet was lost; -1: a port took no more. `elapsed_ps` by the wall clock. */
int exchange(struct bench *b)
{
    uint32_t total = (uint32_t)b->rounds * b->slots;
    struct pollfd fds[32];
    uint64_t start = clock_time(CLOCK_MONOTONIC);
    b->packets = b->results = b->wrong = 0;
    for (uint32_t w = 0; w < b->workers; w++) {
        fds[w] = (struct pollfd){.fd = b->host[w]->fd, .events = POLLIN};
        for (uint32_t tsi = 0; tsi < b->slots; tsi++)
            if (put(b, w, &tsi, 1))
                return -1;
    }
    while (b->results < (uint64_t)total * b->workers) {
        int busy = 0;
        for (uint32_t w = 0; w < b->workers; w++) {
            int n = serve(b, w, total);
            if (n < 0)
                return -1;
            busy |= n;
        }
        if (!busy && poll(fds, b->workers, SILENCE_MS) <= 0)
            return 1;
    }
    b->elapsed_ps = clock_time(CLOCK_MONOTONIC) - start;
    return 0;
}
