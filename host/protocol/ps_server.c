#define _GNU_SOURCE 1 /* ppoll, pthread_setname_np */
#include "ps_server.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "idle.h"
#include "thread.h"

enum { BATCH = 32, YIELDS = 3 /* before it sleeps */ };
static const uint64_t NAP_PS = 50000000;          /* where no bell will ring: no fd, or a full ring */
static const uint64_t LONG_PS = 1000000000000u;

struct ina_ps_server {
    pthread_mutex_t lock;     /* of the jobs and the port: the thread has it while it moves packets */
    struct ina_ps_jobs *jobs;
    struct ina_port *port;
    int wake_fd;
    atomic_int stop;
    atomic_int callers;       /* callers that wait for the lock */
    int tx_full;              /* the port had no room for all that could be sent */
    struct ina_idle idle;
    pthread_t thread;
};

/* With the lock. One round: receives, then sends. Returns how many frames moved. */
static int turn(struct ina_ps_server *s)
{
    struct ina_packet pkts[BATCH];
    const uint64_t now = ina_now();
    int moved = 0, n, lent, filled;
    while (moved < 4 * BATCH && (n = ina_port_rx(s->port, pkts, BATCH, now)) > 0) {
        ina_ps_machine.receive(s->jobs, NULL, pkts, n, now);
        ina_port_rx_done(s->port, n);
        moved += n;
    }
    do {
        lent = ina_port_tx_get(s->port, pkts, BATCH);
        filled = ina_ps_machine.frames_to_send(s->jobs, NULL, pkts, lent, now);
        ina_port_tx_put(s->port, pkts, filled, now);
        moved += filled;
    } while (filled == BATCH && moved < 16 * BATCH);
    s->tx_full = filled == lent && lent < BATCH;
    return moved;
}

/* With the lock, which it releases meanwhile: waits for a frame or a call. A server has no timers. */
static void rest(struct ina_ps_server *s)
{
    const uint64_t now = ina_now();
    uint64_t end = ina_port_next_due(s->port);
    if ((s->port->fd < 0 || s->tx_full) && end > now + NAP_PS)
        end = now + NAP_PS;
    if (end <= now || ina_port_arm(s->port))
        return;
    const uint64_t ns = (end - now > LONG_PS ? LONG_PS : end - now + 999) / 1000;
    struct pollfd fds[] = {{.fd = s->wake_fd, .events = POLLIN}, {.fd = s->port->fd, .events = POLLIN}};
    struct timespec left = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    pthread_mutex_unlock(&s->lock);
    const int ready = ppoll(fds, 2, &left, NULL);
    pthread_mutex_lock(&s->lock);
    if (ready > 0) {
        uint64_t rings;
        if (fds[0].revents & POLLIN)
            (void)!read(s->wake_fd, &rings, sizeof rings);
        if (fds[1].revents)
            ina_port_drain(s->port);
    }
}

static void *run(void *argument)
{
    struct ina_ps_server *s = argument;
    pthread_mutex_lock(&s->lock);
    ina_idle_busy(&s->idle);
    while (!atomic_load(&s->stop)) {
        if (turn(s))
            ina_idle_busy(&s->idle);
        else if (!ina_idle_yield(&s->idle))
            rest(s);
        if (atomic_load(&s->callers)) { /* a mutex is not fair */
            pthread_mutex_unlock(&s->lock);
            sched_yield();
            pthread_mutex_lock(&s->lock);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void enter(struct ina_ps_server *s)
{
    atomic_fetch_add(&s->callers, 1);
    pthread_mutex_lock(&s->lock);
    atomic_fetch_sub(&s->callers, 1);
}

static void release(struct ina_ps_server *s)
{
    if (s->wake_fd >= 0)
        close(s->wake_fd);
    ina_ps_jobs_destroy(s->jobs);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

struct ina_ps_server *ina_ps_server_start(struct ina_port *port)
{
    struct ina_ps_server *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    pthread_mutex_init(&s->lock, NULL);
    s->port = port;
    s->jobs = ina_ps_jobs_create();
    s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ina_idle_init(&s->idle, YIELDS);
    int error = s->jobs ? errno : ENOMEM;
    if (s->jobs && s->wake_fd >= 0) {
        error = ina_thread_start(&s->thread, "ina-ps", run, s);
        if (!error)
            return s;
    }
    release(s);
    errno = error;
    return NULL;
}

int ina_ps_server_add(struct ina_ps_server *s, const struct ina_ps_config *config)
{
    if (ina_ps_state_size(config) && ina_ps_frame_size(config) > s->port->max_frame)
        return -EMSGSIZE;
    enter(s);
    const int result = ina_ps_jobs_add(s->jobs, config, ina_now());
    pthread_mutex_unlock(&s->lock);
    return result;
}

int ina_ps_server_remove(struct ina_ps_server *s, uint32_t job)
{
    enter(s);
    const int result = ina_ps_jobs_remove(s->jobs, job);
    pthread_mutex_unlock(&s->lock);
    return result;
}

int ina_ps_server_stats(struct ina_ps_server *s, uint32_t job, struct ina_ps_stats *stats)
{
    enter(s);
    const int result = ina_ps_jobs_stats(s->jobs, job, stats);
    pthread_mutex_unlock(&s->lock);
    return result;
}

void ina_ps_server_port_stats(struct ina_ps_server *s, struct ina_port_stats *port, uint64_t *strangers)
{
    enter(s);
    if (port)
        *port = s->port->stats;
    if (strangers)
        *strangers = ina_ps_jobs_strangers(s->jobs);
    pthread_mutex_unlock(&s->lock);
}

void ina_ps_server_stop(struct ina_ps_server *s)
{
    if (!s)
        return;
    const uint64_t one = 1;
    atomic_store(&s->stop, 1);
    (void)!write(s->wake_fd, &one, sizeof one);
    pthread_join(s->thread, NULL);
    ina_port_close(s->port);
    release(s);
}
