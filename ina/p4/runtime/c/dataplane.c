/* The real-time loop: one thread, all ports in turn, commands between bursts, sleep when nothing comes.
 *
 * Waking a process costs more than a burst of packets, so nothing signals while this side is busy: ports are armed only
 * after a poll of all of them found nothing, and the last poll is after arming (port.h).
 */
#define _GNU_SOURCE 1 /* ppoll, pthread_timedjoin_np */
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "core.h"
#include "idle.h"
#include "thread.h"

enum { RING = 256 };
enum batch_state { WAITING, RUNNING, DONE, ABANDONED };

struct command_batch {
    _Atomic int state;      /* enum batch_state */
    struct ina_command *commands;
    unsigned n;
    int stop_on_error;
    int result;
};

struct ina_dataplane {
    struct ina_switch *sw;
    struct ina_dataplane_config config;
    pthread_t thread;
    int bell; /* eventfd: commands or stop */
    _Atomic int stopping;
    _Atomic int asleep;
    pthread_mutex_t lock; /* posters: ring tail, waiting for completion */
    pthread_cond_t done;
    struct command_batch *ring[RING];
    _Atomic uint32_t head, tail;
    _Atomic uint64_t bursts, packets, sleeps, commands;
};

static void bump(_Atomic uint64_t *counter, uint64_t by) /* one writer: no locked instruction */
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + by, memory_order_relaxed);
}

static void run_commands(struct ina_dataplane *dp)
{
    uint32_t head = atomic_load_explicit(&dp->head, memory_order_relaxed);
    if (head == atomic_load_explicit(&dp->tail, memory_order_acquire))
        return;
    while (head != atomic_load_explicit(&dp->tail, memory_order_acquire)) {
        struct command_batch *batch = dp->ring[head % RING];
        int expected = WAITING;
        if (atomic_compare_exchange_strong(&batch->state, &expected, RUNNING)) {
            ina_switch_execute_all(dp->sw, batch->commands, batch->n, batch->stop_on_error);
            bump(&dp->commands, batch->n);
            pthread_mutex_lock(&dp->lock);
            atomic_store(&batch->state, DONE); /* the batch is its poster's again */
            pthread_cond_broadcast(&dp->done);
            pthread_mutex_unlock(&dp->lock);
        } else {
            free(batch); /* its poster gave up */
        }
        atomic_store_explicit(&dp->head, ++head, memory_order_release);
    }
}

/* Polls every port once; returns the number of frames taken. */
static unsigned look(struct ina_dataplane *dp, const uint16_t *numbers, unsigned count)
{
    struct ina_packet pkts[INA_BATCH];
    unsigned total = 0;
    for (unsigned i = 0; i < count; i++) {
        struct ina_port *port = dp->sw->ports[numbers[i]].port;
        uint64_t now = ina_now();
        int n = port->ops->rx(port, pkts, (int)dp->config.batch, now);
        if (n <= 0)
            continue;
        for (int k = 0; k < n; k++) {
            pkts[k].ingress_port = numbers[i];
            if (pkts[k].wire_len < pkts[k].len)
                pkts[k].wire_len = pkts[k].len;
        }
        bump(&dp->bursts, 1);
        bump(&dp->packets, (uint64_t)n);
        ina_switch_input(dp->sw, pkts, (unsigned)n, now);
        port->ops->rx_done(port, n);
        total += (unsigned)n;
    }
    return total;
}

static unsigned own_ports(struct ina_switch *sw, uint16_t *numbers)
{
    unsigned count = 0;
    for (unsigned p = 0; p < INA_SWITCH_PORTS; p++)
        if (sw->ports[p].present && sw->ports[p].port)
            numbers[count++] = (uint16_t)p;
    return count;
}

static uint64_t next_due(const struct ina_dataplane *dp, const uint16_t *numbers, unsigned count)
{
    uint64_t due = ina_switch_next_due(dp->sw);
    for (unsigned i = 0; i < count; i++) {
        const struct ina_port *port = dp->sw->ports[numbers[i]].port;
        uint64_t next = ina_port_next_due(port);
        due = next < due ? next : due;
    }
    return due;
}

/* Sleeps until a frame, a command or `due`. */
static void rest(struct ina_dataplane *dp, const uint16_t *numbers, unsigned count, uint64_t due)
{
    struct pollfd fds[INA_SWITCH_PORTS + 1];
    struct ina_port *waiting[INA_SWITCH_PORTS + 1];
    nfds_t n = 1;
    fds[0] = (struct pollfd){dp->bell, POLLIN, 0};
    uint64_t longest = 1000000000000u; /* 1 s: a bound, not a need */
    for (unsigned i = 0; i < count; i++) {
        struct ina_port *port = dp->sw->ports[numbers[i]].port;
        if (ina_port_arm(port))
            return;
        if (port->fd >= 0) {
            waiting[n] = port;
            fds[n++] = (struct pollfd){port->fd, POLLIN, 0};
        } else if (dp->config.poll_ps < longest) {
            longest = dp->config.poll_ps;
        }
    }
    uint64_t now = ina_now();
    uint64_t wait = due <= now ? 0 : due - now < longest ? due - now : longest;
    atomic_store(&dp->asleep, 1);
    if (!atomic_load(&dp->stopping) && atomic_load(&dp->head) == atomic_load(&dp->tail)) {
        struct timespec ts = {(time_t)(wait / 1000000000000u), (long)(wait % 1000000000000u / 1000)};
        bump(&dp->sleeps, 1);
        if (ppoll(fds, n, &ts, NULL) > 0)
            for (nfds_t i = 1; i < n; i++)
                if (fds[i].revents & POLLIN)
                    ina_port_drain(waiting[i]);
    }
    atomic_store(&dp->asleep, 0);
    uint64_t rings;
    if (fds[0].revents & POLLIN && read(dp->bell, &rings, sizeof rings) < 0 && errno != EAGAIN)
        atomic_store(&dp->stopping, 1); /* the bell is broken: nobody could reach us any more */
}

/* Sleeps while frames gather, for ports whose wake-up costs more than a frame. */
static void nap(const struct ina_dataplane *dp)
{
    struct timespec ts = {(time_t)(dp->config.nap_ps / 1000000000000u), (long)(dp->config.nap_ps % 1000000000000u / 1000)};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, NULL);
}

static void *loop(void *arg)
{
    struct ina_dataplane *dp = arg;
    uint16_t numbers[INA_SWITCH_PORTS];
    unsigned count = own_ports(dp->sw, numbers);
    uint64_t commands = 0, last = ina_now();
    int napped = 1;
    struct ina_idle idle;
    ina_idle_init(&idle, dp->config.yields);
    while (!atomic_load_explicit(&dp->stopping, memory_order_relaxed)) {
        run_commands(dp);
        if (commands != atomic_load_explicit(&dp->commands, memory_order_relaxed)) {
            commands = atomic_load_explicit(&dp->commands, memory_order_relaxed);
            count = own_ports(dp->sw, numbers);
        }
        unsigned got = look(dp, numbers, count);
        uint64_t due = next_due(dp, numbers, count);
        uint64_t now = due != UINT64_MAX || !got ? ina_now() : 0;
        if (due <= now)
            ina_switch_poll(dp->sw, now);
        if (got) {
            last = 0;
            napped = !dp->config.nap_ps;
            ina_idle_busy(&idle);
            continue;
        }
        if (!last)
            last = now;
        if (now - last < dp->config.spin_ps)
            continue;
        if (!napped) {
            napped = 1;
            nap(dp);
        } else if (!ina_idle_yield(&idle)) {
            rest(dp, numbers, count, due);
        }
    }
    run_commands(dp);
    return NULL;
}

struct ina_dataplane *ina_dataplane_start(struct ina_switch *sw, const struct ina_dataplane_config *config)
{
    struct ina_dataplane *dp = calloc(1, sizeof *dp);
    if (!dp)
        return NULL;
    dp->sw = sw;
    if (config)
        dp->config = *config;
    if (!dp->config.batch || dp->config.batch > INA_BATCH)
        dp->config.batch = 32; /* fills one call well and leaves its frames in the first-level cache */
    if (!dp->config.poll_ps)
        dp->config.poll_ps = 50000000;
    dp->bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    int error = dp->bell < 0 ? errno : 0;
    if (!error) {
        pthread_condattr_t attr;
        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_mutex_init(&dp->lock, NULL);
        pthread_cond_init(&dp->done, &attr);
        pthread_condattr_destroy(&attr);
        error = ina_thread_start(&dp->thread, "ina-dataplane", loop, dp);
        if (!error)
            return dp;
        pthread_cond_destroy(&dp->done);
        pthread_mutex_destroy(&dp->lock);
        close(dp->bell);
    }
    free(dp);
    errno = error;
    return NULL;
}

static void ring_bell(struct ina_dataplane *dp)
{
    uint64_t one = 1;
    while (write(dp->bell, &one, sizeof one) < 0 && errno == EINTR) /* EAGAIN: it rings already */
        ;
}

static struct timespec deadline_after(clockid_t clock, uint64_t timeout_ps)
{
    struct timespec at;
    clock_gettime(clock, &at);
    at.tv_sec += (time_t)(timeout_ps / 1000000000000u);
    at.tv_nsec += (long)(timeout_ps % 1000000000000u / 1000);
    if (at.tv_nsec >= 1000000000) {
        at.tv_sec++;
        at.tv_nsec -= 1000000000;
    }
    return at;
}

int ina_dataplane_call(struct ina_dataplane *dp, struct ina_command *commands, unsigned n, int stop_on_error,
                       uint64_t timeout_ps)
{
    struct timespec deadline = deadline_after(CLOCK_MONOTONIC, timeout_ps);
    struct command_batch *batch = calloc(1, sizeof *batch);
    if (!batch)
        return -ENOMEM;
    batch->commands = commands;
    batch->n = n;
    batch->stop_on_error = stop_on_error;
    pthread_mutex_lock(&dp->lock);
    int error = atomic_load(&dp->stopping) ? ESHUTDOWN : 0;
    while (!error && atomic_load(&dp->tail) - atomic_load(&dp->head) == RING)
        error = pthread_cond_timedwait(&dp->done, &dp->lock, &deadline);
    if (error) {
        pthread_mutex_unlock(&dp->lock);
        free(batch);
        return -error;
    }
    dp->ring[atomic_load(&dp->tail) % RING] = batch;
    atomic_fetch_add(&dp->tail, 1);
    if (atomic_load(&dp->asleep))
        ring_bell(dp);
    while (atomic_load(&batch->state) != DONE) {
        /* once it runs, it ends: commands never block */
        if (error && atomic_load(&batch->state) == RUNNING)
            pthread_cond_wait(&dp->done, &dp->lock); /* the error stays */
        else
            error = pthread_cond_timedwait(&dp->done, &dp->lock, &deadline);
        int expected = WAITING;
        if (error && atomic_compare_exchange_strong(&batch->state, &expected, ABANDONED)) {
            pthread_mutex_unlock(&dp->lock);
            return -ETIMEDOUT; /* the thread frees the batch when it reaches it */
        }
    }
    pthread_mutex_unlock(&dp->lock);
    free(batch);
    return 0;
}

void ina_dataplane_get_stats(struct ina_dataplane *dp, struct ina_dataplane_stats *stats)
{
    stats->bursts = atomic_load_explicit(&dp->bursts, memory_order_relaxed);
    stats->packets = atomic_load_explicit(&dp->packets, memory_order_relaxed);
    stats->sleeps = atomic_load_explicit(&dp->sleeps, memory_order_relaxed);
    stats->commands = atomic_load_explicit(&dp->commands, memory_order_relaxed);
}

int ina_dataplane_stop(struct ina_dataplane *dp, uint64_t timeout_ps)
{
    pthread_mutex_lock(&dp->lock); /* after this no new batch enters the ring */
    atomic_store(&dp->stopping, 1);
    pthread_mutex_unlock(&dp->lock);
    ring_bell(dp);
    struct timespec deadline = deadline_after(CLOCK_REALTIME, timeout_ps);
    int error = pthread_timedjoin_np(dp->thread, NULL, &deadline);
    if (error)
        return -error;
    run_commands(dp); /* those posted between the thread's last check and its end */
    pthread_cond_destroy(&dp->done);
    pthread_mutex_destroy(&dp->lock);
    close(dp->bell);
    free(dp);
    return 0;
}
