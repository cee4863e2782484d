/* The clock of real-time worlds, and the port calls as functions. */
#define _GNU_SOURCE 1 /* ppoll */
#include "port.h"

#include <errno.h>
#include <poll.h>
#include <time.h>

#include "bell.h"

uint64_t ina_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000000u + (uint64_t)t.tv_nsec * 1000u;
}

int ina_port_rx(struct ina_port *port, struct ina_packet *pkts, int max, uint64_t now)
{
    return port->ops->rx(port, pkts, max, now);
}

void ina_port_rx_done(struct ina_port *port, int n)
{
    port->ops->rx_done(port, n);
}

int ina_port_tx_get(struct ina_port *port, struct ina_packet *pkts, int want)
{
    return port->ops->tx_get(port, pkts, want);
}

void ina_port_tx_put(struct ina_port *port, struct ina_packet *pkts, int n, uint64_t now)
{
    port->ops->tx_put(port, pkts, n, now);
}

int ina_port_arm(struct ina_port *port)
{
    return port->ops->arm ? port->ops->arm(port) : 0;
}

uint64_t ina_port_next_due(const struct ina_port *port)
{
    return port->ops->next_due ? port->ops->next_due(port) : UINT64_MAX;
}

void ina_port_close(struct ina_port *port)
{
    if (port)
        port->ops->close(port);
}

void ina_port_drain(struct ina_port *port)
{
    if (port->bell != INA_NO_BELL)
        port->stats.errors += ina_bell_hush(port->fd, port->bell == INA_BELL_OF_HOST) < 0;
}

int ina_port_wait(struct ina_port *port, uint64_t timeout_ps)
{
    uint64_t now = ina_now(), due = ina_port_next_due(port);
    uint64_t until = timeout_ps < UINT64_MAX - now ? now + timeout_ps : UINT64_MAX;

    if (due <= now || ina_port_arm(port))
        return 1;
    uint64_t ns = ((due < until ? due : until) - now + 999) / 1000; /* not a moment before it is due */
    struct timespec left = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    struct pollfd fd = {.fd = port->fd, .events = POLLIN};
    int ready = ppoll(&fd, 1, &left, NULL);
    if (ready < 0 && errno != EINTR)
        return -errno;
    if (ready > 0)
        ina_port_drain(port);
    return ready != 0 || due <= until;
}
