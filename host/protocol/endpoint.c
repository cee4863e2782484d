#define _GNU_SOURCE 1 /* ppoll, pthread_setname_np */
#include "endpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "idle.h"
#include "thread.h"

enum { BACKLOG = 1 << 16 /* frames: no port holds more */ };
enum { BATCH = 32, BURST = 16 * BATCH /* frames of a turn that are sent */, NO_DRIVER = 0, THREAD_DRIVES = 1, CALLER_DRIVES = 2 };
enum { YIELDS = 3, YIELDS_POLLED = 50 }; /* before it sleeps: until a bell rings, or for a nap, since none will */
static const uint64_t POLL_PS = 50000000;       /* nap where no bell will ring: no fd, or a full ring */
static const uint64_t GRACE_PS = 50000000;      /* for a caller to drive what nobody drives, before the thread does */
static const uint64_t WATCH_PS = 200000000;     /* the thread looks for so long, unasked: to call it costs more */

struct ticket {
    int64_t number;             /* 0: none yet */
    int done, amended;          /* amended: what is new of its offer is not handed on yet */
    struct ina_offer offer;     /* of a chosen tensor, as said last */
    const void *in;
    uint64_t count;
    struct ina_event event;
};

struct ina_endpoint {
    /* the driver's alone */
    const struct ina_protocol *protocol;
    void *state;
    size_t stats_offset;
    struct ina_port *port;
    int alive_fd;
    struct ina_tensor tensors[INA_MAX_OPS];
    int64_t ticket_of[INA_MAX_OPS]; /* 0: none, as of an offer; that of the tensor after it says all */
    int tx_full;                /* the port had no room for all due frames */
    struct ina_idle idle;
    uint64_t caught_up;         /* all frames up to this time have been received: timers compare with it */
    uint64_t behind_since;      /* start of the time in which the port was never empty, if `behind` is not 0 */
    unsigned behind;            /* frames received since then */

    pid_t process;              /* a child that is forked from it has no thread, and a copy of a state that goes on elsewhere */
    int wake_fd;
    atomic_int asleep;          /* the driver polls, or is about to: ring wake_fd */
    atomic_uint calls;          /* number of changes below for the driver to handle */
    _Atomic uint64_t spin;      /* ps */

    pthread_mutex_t lock;       /* all that follows */
    pthread_cond_t changed;     /* a tensor is done, the driver has changed, the endpoint stops */
    pthread_cond_t work;        /* for the endpoint's own thread: drive */
    int driver, stop, stopped, waiters, in_flight;
    int watching;               /* the endpoint's own thread looks by itself, soon */
    uint64_t left;              /* ps: when a caller last left something that nobody drives */
    uint32_t abort_code;
    struct ina_event failure;   /* code 0: the job lives */
    struct ina_tensor queue[INA_MAX_OPS];
    uint64_t queue_begin, queue_end;
    int64_t queue_ticket[INA_MAX_OPS];
    int amends;                 /* tickets that are `amended` */
    int64_t last_ticket;
    struct ticket tickets[INA_TICKETS];
    int64_t finished[INA_TICKETS]; /* in order of completion, for ina_endpoint_next */
    uint64_t finished_begin, finished_end;
    struct ina_worker_stats stats;
    struct ina_port_stats port_stats;
    pthread_t thread;
};

/* ---- the driver: packets move, no lock is held ------------------------------------------------------------------ */

/* With the lock. */
static void finish(struct ina_endpoint *e, int64_t number, const struct ina_event *event)
{
    if (!number)
        return;
    struct ticket *t = &e->tickets[number % INA_TICKETS];
    t->event = *event;
    t->done = 1;
    e->amends -= t->amended;
    t->amended = 0;
    e->in_flight--;
    if (e->finished_end - e->finished_begin == INA_TICKETS)
        e->finished_begin++; /* nobody reads them */
    e->finished[e->finished_end++ % INA_TICKETS] = number;
}

/* With the lock: the first reason stays. */
static void fail(struct ina_endpoint *e, const struct ina_event *event)
{
    if (!e->failure.code)
        e->failure = *event;
}

static void publish(struct ina_endpoint *e)
{
    memcpy(&e->stats, (uint8_t *)e->state + e->stats_offset, sizeof e->stats);
    if (!e->stopped)
        e->port_stats = e->port->stats;
}

/* Submits the next tensor of the queue. 0, or -EAGAIN: there is no room yet. */
static int submit_next(struct ina_endpoint *e, uint64_t now)
{
    const uint64_t at = e->queue_begin % INA_MAX_OPS;
    const int handle = ina_protocol_submit(e->protocol, e->state, e->tensors, &e->queue[at], now);
    if (handle == -EAGAIN || handle == -EPIPE)
        return -EAGAIN;
    if (handle < 0)
        finish(e, e->queue_ticket[at], &(struct ina_event){.type = INA_EVENT_FAILED, .code = INA_ERR_REFUSED});
    else
        e->ticket_of[handle] = e->queue_ticket[at];
    return 0;
}

/* Hands on what is new of a ticket's offer, wherever its tensor is. */
static void amend(struct ina_endpoint *e, const struct ticket *t, uint64_t now)
{
    for (uint64_t i = e->queue_begin; i < e->queue_end; i++) {
        if (e->queue_ticket[i % INA_MAX_OPS] == t->number) {
            e->queue[i % INA_MAX_OPS].offer = t->offer;
            e->queue[i % INA_MAX_OPS].in = t->in;
            return;
        }
    }
    for (int handle = 0; handle < INA_MAX_OPS; handle++)
        if (e->ticket_of[handle] == t->number) /* what is refused here ina_endpoint_amend has refused */
            ina_protocol_amend(e->protocol, e->state, e->tensors, handle, &t->offer, t->in, now);
}

/* Submissions, amendments and aborts come in, completions go out. 1: there were some, so there may be more to send. */
static int exchange(struct ina_endpoint *e, uint64_t now)
{
    struct ina_event events[INA_MAX_OPS];
    const int called = atomic_exchange(&e->calls, 0) != 0;
    int n = e->protocol->events(e->state, events, INA_MAX_OPS);
    if (!called && !n)
        return 0;

    pthread_mutex_lock(&e->lock);
    if (e->abort_code) {
        e->protocol->abort(e->state, e->abort_code, now);
        fail(e, &(struct ina_event){.type = INA_EVENT_FAILED, .code = e->abort_code});
        e->abort_code = 0;
    }
    for (;;) {
        for (int i = 0; i < n; i++) {
            if (events[i].type == INA_EVENT_FAILED)
                fail(e, &events[i]);
            finish(e, e->ticket_of[events[i].op], &events[i]);
            e->ticket_of[events[i].op] = 0;
        }
        n = e->protocol->events(e->state, events, INA_MAX_OPS);
        if (!n)
            break;
    }
    for (int64_t number = e->last_ticket; e->amends && number > 0; number--) {
        struct ticket *t = &e->tickets[number % INA_TICKETS];
        if (t->amended) {
            amend(e, t, now);
            t->amended = 0;
            e->amends--;
        }
    }
    while (e->queue_begin < e->queue_end) {
        if (e->failure.code)
            finish(e, e->queue_ticket[e->queue_begin % INA_MAX_OPS], &e->failure);
        else if (submit_next(e, now) < 0)
            break; /* all handles taken: again at the next completion */
        e->queue_begin++;
    }
    publish(e);
    if (e->waiters)
        pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
    return 1;
}

/* A port that never gets empty hides no deadline: after as many frames as it can hold, its earlier ones are received. */
static void catch_up(struct ina_endpoint *e, int empty, unsigned received, uint64_t now)
{
    if (empty) {
        e->caught_up = now;
        e->behind = 0;
        return;
    }
    if (!e->behind)
        e->behind_since = now;
    e->behind += received;
    if (e->behind >= BACKLOG) {
        e->caught_up = e->behind_since;
        e->behind = 0;
    }
}

/* One round: receives, then sends what is due, `most` frames or a few more. Returns how many frames moved; not 0 if more may be due now. */
static int turn(struct ina_endpoint *e, int most, uint64_t now)
{
    struct ina_packet pkts[BATCH];
    int moved = 0, n;
    while ((n = ina_port_rx(e->port, pkts, BATCH, now)) > 0) {
        e->protocol->receive(e->state, e->tensors, pkts, n, now);
        ina_port_rx_done(e->port, n);
        moved += n;
        if (moved >= 4 * BATCH)
            break; /* answer before taking more */
    }
    catch_up(e, n == 0, (unsigned)moved, now);
    exchange(e, now);
    int lent, filled; /* with no frame lent, deadlines are still checked */
    do {
        lent = ina_port_tx_get(e->port, pkts, BATCH);
        filled = e->protocol->frames_to_send(e->state, e->tensors, pkts, lent, e->caught_up);
        ina_port_tx_put(e->port, pkts, filled, now);
        moved += filled;
    } while (filled == BATCH && moved < most);
    e->tx_full = filled == lent && lent < BATCH;
    return moved + exchange(e, now); /* a deadline may have passed, or a caller have said something since */
}

/* Waits for a frame, a call, a time-out or the end of the switch process; not beyond `until`. */
static void rest(struct ina_endpoint *e, uint64_t until)
{
    const uint64_t timer = e->protocol->next_timer(e->state), due = ina_port_next_due(e->port);
    uint64_t now = ina_now(), end = timer < due ? timer : due;
    end = end < until ? end : until;
    if ((e->port->fd < 0 || e->tx_full) && end > now + POLL_PS)
        end = now + POLL_PS;
    if (end <= now)
        return;

    atomic_store(&e->asleep, 1);
    if (!atomic_load(&e->calls) && !ina_port_arm(e->port)) {
        struct pollfd fds[] = {
            {.fd = e->wake_fd, .events = POLLIN},
            {.fd = e->alive_fd, .events = POLLRDHUP}, /* negative: ignored */
            {.fd = e->port->fd, .events = POLLIN},
        };
        const uint64_t ns = end == UINT64_MAX ? 1000000000u : (end - now + 999) / 1000;
        struct timespec left = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
        if (ppoll(fds, 3, &left, NULL) > 0) {
            uint64_t rings;
            if (fds[0].revents & POLLIN)
                (void)!read(e->wake_fd, &rings, sizeof rings);
            if (fds[2].revents)
                ina_port_drain(e->port);
            if (fds[1].revents) {
                turn(e, BURST, ina_now()); /* the last results may lie in the port */
                e->protocol->abort(e->state, INA_ERR_PEER, ina_now());
                pthread_mutex_lock(&e->lock);
                fail(e, &(struct ina_event){.type = INA_EVENT_FAILED, .code = INA_ERR_PEER});
                pthread_mutex_unlock(&e->lock);
                atomic_store(&e->calls, 1);
            }
        }
    }
    atomic_store(&e->asleep, 0);
}

static int wanted(const struct ina_endpoint *e) /* with the lock */
{
    return e->in_flight > 0 || e->abort_code;
}

/* Drives until nothing is in flight, ticket `number` is done (if not 0), `until`, or stop. */
static void drive(struct ina_endpoint *e, int64_t number, uint64_t until)
{
    uint64_t last = ina_now(); /* when frames moved */
    ina_idle_busy(&e->idle);
    for (;;) {
        const int moved = turn(e, BURST, ina_now());
        pthread_mutex_lock(&e->lock);
        const int go_on = wanted(e) && !(number && e->tickets[number % INA_TICKETS].done) && !e->stop;
        publish(e); /* a tensor may take long: its counters show whether it moves */
        pthread_mutex_unlock(&e->lock);
        const uint64_t now = ina_now();
        if (!go_on || now >= until)
            return;
        if (moved) {
            last = now;
            ina_idle_busy(&e->idle);
        } else if (now - last >= atomic_load_explicit(&e->spin, memory_order_relaxed) && !ina_idle_yield(&e->idle)) {
            rest(e, until);
        }
    }
}

static struct timespec at(uint64_t ps)
{
    return (struct timespec){.tv_sec = (time_t)(ps / 1000000000000u), .tv_nsec = (long)(ps / 1000u % 1000000000u)};
}

/* The endpoint's own thread drives what callers have left in flight, once they have had time to come back for it: who begins a sum and
 * soon waits for it drives it, and no thread has to be woken up. */
static void *run_thread(void *argument)
{
    struct ina_endpoint *e = argument;
    pthread_mutex_lock(&e->lock);
    while (!e->stop) {
        const uint64_t now = ina_now();
        if (e->driver == NO_DRIVER && wanted(e) && (e->abort_code || now >= e->left + GRACE_PS)) {
            e->driver = THREAD_DRIVES;
            pthread_mutex_unlock(&e->lock);
            drive(e, 0, UINT64_MAX);
            pthread_mutex_lock(&e->lock);
            e->driver = NO_DRIVER;
            pthread_cond_broadcast(&e->changed);
        } else if (now < e->left + WATCH_PS) {
            const struct timespec until = at(now + GRACE_PS);
            pthread_cond_timedwait(&e->work, &e->lock, &until);
        } else {
            e->watching = 0;
            pthread_cond_wait(&e->work, &e->lock);
            e->watching = 1;
        }
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

/* ---- callers ---------------------------------------------------------------------------------------------------- */

/* With the lock: wakes the driver, if there is one. */
static void call_driver(struct ina_endpoint *e)
{
    atomic_fetch_add(&e->calls, 1);
    if (e->driver != NO_DRIVER && atomic_exchange(&e->asleep, 0)) {
        const uint64_t one = 1;
        (void)!write(e->wake_fd, &one, sizeof one);
    }
}

static uint64_t end_of(uint64_t timeout_ns)
{
    const uint64_t now = ina_now();
    return timeout_ns > (UINT64_MAX - now) / 1000 ? UINT64_MAX - 1 : now + timeout_ns * 1000;
}

/* With the lock: waits for a change, or until the time is over. */
static void wait_changed(struct ina_endpoint *e, uint64_t end)
{
    const struct timespec until = at(end);
    e->waiters++;
    pthread_cond_timedwait(&e->changed, &e->lock, &until);
    e->waiters--;
}

/* With the lock. Nobody drives yet: faster done here than to wait until the thread has woken up. `end` 0: sends at once what is due, but
 * does not wait. */
static void drive_here(struct ina_endpoint *e, int64_t number, uint64_t end)
{
    e->driver = CALLER_DRIVES;
    pthread_mutex_unlock(&e->lock);
    if (end)
        drive(e, number, end);
    else
        turn(e, BATCH, ina_now()); /* the caller has something else to do than to send all of a window */
    pthread_mutex_lock(&e->lock);
    publish(e);
    e->driver = NO_DRIVER;
    if (e->stop || e->waiters)
        pthread_cond_broadcast(&e->changed);
    if (!wanted(e))
        return;
    e->left = ina_now(); /* other tensors, or this one, are still on their way */
    if (!e->watching || e->abort_code)
        pthread_cond_signal(&e->work);
}

/* With the lock: something is new for the driver. */
static void begin(struct ina_endpoint *e, int64_t number, uint64_t end)
{
    call_driver(e);
    if (e->driver == NO_DRIVER && !e->stop)
        drive_here(e, number, end);
}

static int is_forked(const struct ina_endpoint *e)
{
    return e->process != getpid();
}

/* With the lock: ticket or -errno. */
static int64_t enter_tensor(struct ina_endpoint *e, const struct ina_tensor *tensor)
{
    while (e->in_flight == INA_MAX_OPS && !e->failure.code && !e->stop)
        wait_changed(e, end_of(1000000000u));
    if (e->failure.code || e->stop)
        return -EPIPE;
    const int64_t number = ++e->last_ticket;
    e->tickets[number % INA_TICKETS] = (struct ticket){.number = number, .offer = tensor->offer, .in = tensor->in, .count = tensor->count};
    e->queue[e->queue_end % INA_MAX_OPS] = *tensor;
    e->queue_ticket[e->queue_end % INA_MAX_OPS] = number;
    e->queue_end++;
    e->in_flight++;
    return number;
}

int64_t ina_endpoint_submit(struct ina_endpoint *e, const struct ina_tensor *tensor)
{
    if (!ina_protocol_takes(e->protocol, tensor))
        return -EINVAL;
    if (is_forked(e))
        return -ECHILD;
    pthread_mutex_lock(&e->lock);
    const int64_t number = enter_tensor(e, tensor);
    if (number > 0)
        begin(e, 0, 0);
    pthread_mutex_unlock(&e->lock);
    return number;
}

int ina_endpoint_amend(struct ina_endpoint *e, int64_t ticket, const struct ina_offer *offer, const void *in)
{
    if (!e->protocol->offers)
        return -EINVAL;
    if (is_forked(e))
        return -ECHILD;
    pthread_mutex_lock(&e->lock);
    struct ticket *t = &e->tickets[ticket % INA_TICKETS];
    int result = -EINVAL;
    if (ticket > 0 && t->number == ticket && offer->least && offer->state <= INA_OFFER_PASS && (offer->state != INA_OFFER_GIVE || in || !t->count)
        && (t->offer.state == offer->state || (t->offer.state == INA_OFFER_ASK && t->offer.least))) {
        result = t->done;
        if (!t->done) {
            t->offer = *offer;
            t->in = in;
            e->amends += !t->amended;
            t->amended = 1;
            begin(e, 0, 0);
        }
    }
    pthread_mutex_unlock(&e->lock);
    return result;
}

/* With the lock. */
static int wait_ticket(struct ina_endpoint *e, int64_t number, uint64_t end, struct ina_event *event)
{
    const struct ticket *t = &e->tickets[number % INA_TICKETS];
    while (t->number == number && !t->done) {
        if (ina_now() >= end)
            return 0;
        if (e->driver == NO_DRIVER && !e->stop)
            drive_here(e, number, end);
        else
            wait_changed(e, end);
    }
    if (t->number != number)
        return -ESTALE;
    *event = t->event;
    return 1;
}

int ina_endpoint_wait(struct ina_endpoint *e, int64_t ticket, uint64_t timeout_ns, struct ina_event *event)
{
    if (timeout_ns == UINT64_MAX)
        return -EINVAL;
    if (is_forked(e))
        return -ECHILD;
    pthread_mutex_lock(&e->lock);
    const int result = ticket < 1 || ticket > e->last_ticket ? -EINVAL : wait_ticket(e, ticket, end_of(timeout_ns), event);
    pthread_mutex_unlock(&e->lock);
    return result;
}

int64_t ina_endpoint_run(struct ina_endpoint *e, const struct ina_tensor *tensor, uint64_t timeout_ns,
                         struct ina_event *event)
{
    if (!ina_protocol_takes(e->protocol, tensor) || timeout_ns == UINT64_MAX)
        return -EINVAL;
    if (is_forked(e))
        return -ECHILD;
    const uint64_t end = end_of(timeout_ns);
    memset(event, 0, sizeof *event);
    pthread_mutex_lock(&e->lock);
    const int64_t number = enter_tensor(e, tensor);
    if (number > 0) {
        begin(e, number, end);
        wait_ticket(e, number, end, event);
    }
    pthread_mutex_unlock(&e->lock);
    return number;
}

int64_t ina_endpoint_next(struct ina_endpoint *e, uint64_t timeout_ns, struct ina_event *event)
{
    if (timeout_ns == UINT64_MAX)
        return -EINVAL;
    if (is_forked(e))
        return -ECHILD;
    const uint64_t end = end_of(timeout_ns);
    int64_t number = 0;
    pthread_mutex_lock(&e->lock);
    while (e->finished_begin == e->finished_end && !e->stop && ina_now() < end)
        wait_changed(e, end);
    if (e->finished_begin < e->finished_end) {
        number = e->finished[e->finished_begin++ % INA_TICKETS];
        *event = e->tickets[number % INA_TICKETS].event;
    } else if (e->stop) {
        number = -EPIPE;
    }
    pthread_mutex_unlock(&e->lock);
    return number;
}

int ina_endpoint_failure(struct ina_endpoint *e, struct ina_event *event)
{
    pthread_mutex_lock(&e->lock);
    *event = e->failure;
    pthread_mutex_unlock(&e->lock);
    return event->code != 0;
}

void ina_endpoint_abort(struct ina_endpoint *e)
{
    if (is_forked(e))
        return;
    pthread_mutex_lock(&e->lock);
    if (!e->failure.code) {
        e->abort_code = INA_ERR_ABORTED;
        call_driver(e);
        pthread_cond_signal(&e->work);
        while (e->abort_code && !e->stop)
            wait_changed(e, end_of(1000000000u));
    }
    pthread_mutex_unlock(&e->lock);
}

void ina_endpoint_stats(struct ina_endpoint *e, struct ina_worker_stats *stats, struct ina_port_stats *port)
{
    const int forked = is_forked(e); /* then a thread that is not here may have had the lock */
    if (!forked)
        pthread_mutex_lock(&e->lock);
    if (e->driver == NO_DRIVER)
        publish(e);
    if (stats)
        *stats = e->stats;
    if (port)
        *port = e->port_stats;
    if (!forked)
        pthread_mutex_unlock(&e->lock);
}

/* ---- life ------------------------------------------------------------------------------------------------------- */

static void release(struct ina_endpoint *e)
{
    if (e->wake_fd >= 0)
        close(e->wake_fd);
    if (e->alive_fd >= 0)
        close(e->alive_fd);
    pthread_cond_destroy(&e->changed);
    pthread_cond_destroy(&e->work);
    pthread_mutex_destroy(&e->lock);
    free(e->state);
    free(e);
}

struct ina_endpoint *ina_endpoint_start(const struct ina_protocol *protocol, const struct ina_worker_config *config,
                                        struct ina_port *port, int alive_fd)
{
    const size_t size = protocol->state_size(config);
    if (!size || port->max_frame < protocol->frame_size(config)) {
        errno = EINVAL;
        return NULL;
    }
    struct ina_endpoint *e = calloc(1, sizeof *e);
    if (!e)
        return NULL;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC); /* the clock of ina_now */
    pthread_cond_init(&e->changed, &monotonic);
    pthread_cond_init(&e->work, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&e->lock, NULL);
    e->process = getpid();
    e->protocol = protocol;
    e->port = port;
    e->state = aligned_alloc(64, size); /* sizes are multiples of 64 */
    e->stats_offset = protocol->stats_offset(config);
    e->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    e->alive_fd = alive_fd < 0 ? -1 : fcntl(alive_fd, F_DUPFD_CLOEXEC, 0);
    int error = errno;
    if (e->state && e->wake_fd >= 0 && (alive_fd < 0 || e->alive_fd >= 0)) {
        e->caught_up = ina_now();
        ina_idle_init(&e->idle, port->fd < 0 ? YIELDS_POLLED : YIELDS);
        protocol->init(e->state, config, e->caught_up);
        publish(e);
        error = ina_thread_start(&e->thread, "ina-endpoint", run_thread, e);
        if (!error)
            return e;
    }
    release(e);
    errno = error;
    return NULL;
}

void ina_endpoint_spin(struct ina_endpoint *e, uint64_t spin_ps)
{
    atomic_store(&e->spin, spin_ps);
}

void ina_endpoint_yield(struct ina_endpoint *e, uint64_t span_ps)
{
    pthread_mutex_lock(&e->lock); /* a driver has it before it drives */
    e->idle.span = span_ps;
    pthread_mutex_unlock(&e->lock);
}

void ina_endpoint_close(struct ina_endpoint *e)
{
    if (is_forked(e))
        return;
    pthread_mutex_lock(&e->lock);
    const int again = e->stop;
    e->stop = 1;
    call_driver(e);
    pthread_cond_signal(&e->work);
    pthread_cond_broadcast(&e->changed);
    while (e->driver != NO_DRIVER || (again && !e->stopped))
        wait_changed(e, end_of(1000000000u));
    if (again) {
        pthread_mutex_unlock(&e->lock);
        return;
    }
    e->abort_code = e->failure.code ? 0 : INA_ERR_ABORTED;
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->thread, NULL);

    atomic_store(&e->calls, 1);
    exchange(e, ina_now()); /* nobody drives any more: remaining tensors end here */
    pthread_mutex_lock(&e->lock);
    publish(e);
    e->stopped = 1;
    ina_port_close(e->port);
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

void ina_endpoint_stop(struct ina_endpoint *e)
{
    if (!e || is_forked(e))
        return;
    ina_endpoint_close(e);
    release(e);
}
