/* Endpoints, their callers and a switch, a thread each, over memory ports: for the thread sanitizer. With an argument
 * "bench": time of an all-reduce between two workers, by size and by way of calling. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "endpoint.h"
#include "model_switch.h"

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            abort(); \
        } \
    } while (0)

enum { WORKERS = 2, BATCH = 32 };

struct world {
    struct model_switch model;
    struct ina_port *ports[WORKERS]; /* the switch's ends */
    struct ina_endpoint *endpoints[WORKERS];
    atomic_int over;
    pthread_t thread;
    uint32_t frame_size;
};

static void answer(struct world *w, uint32_t to, const struct ina_packet *pkt)
{
    for (uint32_t i = 0; i < WORKERS; i++) {
        struct ina_packet out;
        if (!(to >> i & 1) || !ina_port_tx_get(w->ports[i], &out, 1))
            continue;
        memcpy(out.data, pkt->data, pkt->len);
        out.len = out.wire_len = pkt->len;
        model_address(&w->model, i, &out);
        ina_port_tx_put(w->ports[i], &out, 1, 0);
    }
}

static void *run_switch(void *argument)
{
    struct world *w = argument;
    struct ina_packet pkts[BATCH];
    for (int quiet = 0; !atomic_load(&w->over); quiet++) {
        for (uint32_t i = 0; i < WORKERS; i++) {
            const int n = ina_port_rx(w->ports[i], pkts, BATCH, 0);
            for (int k = 0; k < n; k++)
                answer(w, model_switch_process(&w->model, i, &pkts[k]), &pkts[k]);
            ina_port_rx_done(w->ports[i], n);
            quiet = n ? 0 : quiet;
        }
        if (quiet < 20) {
            sched_yield();
        } else if (!ina_port_arm(w->ports[0]) && !ina_port_arm(w->ports[1])) {
            struct pollfd fds[] = {{.fd = w->ports[0]->fd, .events = POLLIN}, {.fd = w->ports[1]->fd, .events = POLLIN}};
            poll(fds, 2, 10);
            ina_port_drain(w->ports[0]);
            ina_port_drain(w->ports[1]);
        }
    }
    return NULL;
}

static void start(struct world *w, uint32_t slots, uint32_t values)
{
    struct ina_worker_config configs[WORKERS];
    memset(w, 0, sizeof *w);
    for (uint32_t i = 0; i < WORKERS; i++)
        configs[i] = model_config(i, WORKERS, slots, values);
    model_switch_init(&w->model, configs);
    for (uint32_t i = 0; i < WORKERS; i++) {
        struct ina_port *pair[2];
        CHECK(ina_port_mem_pair(1024, ina_switchml.frame_size(configs), pair) == 0);
        w->ports[i] = pair[0];
        w->endpoints[i] = ina_endpoint_start(&ina_switchml, &configs[i], pair[1], -1);
        CHECK(w->endpoints[i]);
    }
    pthread_create(&w->thread, NULL, run_switch, w);
}

static void stop(struct world *w)
{
    for (uint32_t i = 0; i < WORKERS; i++)
        ina_endpoint_stop(w->endpoints[i]);
    atomic_store(&w->over, 1);
    pthread_join(w->thread, NULL);
    for (uint32_t i = 0; i < WORKERS; i++)
        ina_port_close(w->ports[i]);
    model_switch_free(&w->model);
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

enum { TENSORS = 400, MOST = 700 };

struct caller {
    struct world *world;
    uint32_t rank, submitting;
    int32_t data[TENSORS][MOST];
};

static void *submit_all(void *argument)
{
    struct caller *c = argument;
    struct ina_endpoint *e = c->world->endpoints[c->rank];
    struct ina_event event;
    for (uint32_t t = 0; t < TENSORS; t++) {
        const uint32_t count = t * 37 % MOST;
        for (uint32_t i = 0; i < count; i++)
            c->data[t][i] = (int32_t)(i + t + c->rank);
        struct ina_tensor tensor = {.in = c->data[t], .out = c->data[t], .count = count, .tag = t};
        int64_t ticket = t % 5 == 0 ? ina_endpoint_run(e, &tensor, t % 2 ? 0 : 5000000000u, &event)
                                    : ina_endpoint_submit(e, &tensor);
        CHECK(ticket == t + 1);
        if (t % 7 == 0) {
            CHECK(ina_endpoint_wait(e, ticket, 10000000000u, &event) == 1 && event.type == INA_EVENT_DONE);
            for (uint32_t i = 0; i < count; i++)
                CHECK(c->data[t][i] == (int32_t)(2 * (i + t) + 1));
        }
        if (t % 50 == 0)
            ina_endpoint_stats(e, &(struct ina_worker_stats){0}, &(struct ina_port_stats){0});
    }
    return NULL;
}

static void *complete_all(void *argument)
{
    struct caller *c = argument;
    struct ina_event event;
    for (uint32_t n = 0; n < TENSORS; n++) {
        const int64_t ticket = ina_endpoint_next(c->world->endpoints[c->rank], 10000000000u, &event);
        CHECK(ticket > 0 && event.type == INA_EVENT_DONE);
        const uint32_t t = (uint32_t)ticket - 1;
        for (uint32_t i = 0; i < t * 37 % MOST; i++)
            CHECK(c->data[t][i] == (int32_t)(2 * (i + t) + 1));
    }
    return NULL;
}

/* Goes on until its endpoint is aborted or closed under it. */
static void *run_until_the_end(void *argument)
{
    struct caller *c = argument;
    struct ina_event event;
    struct ina_tensor tensor = {.in = c->data[0], .out = c->data[0], .count = MOST};
    int64_t ticket;
    do {
        ticket = ina_endpoint_run(c->world->endpoints[c->rank], &tensor, 20000000000u, &event);
        CHECK(ticket == -EPIPE || event.type == INA_EVENT_DONE || event.code == INA_ERR_ABORTED);
    } while (ticket > 0 && event.type == INA_EVENT_DONE);
    return NULL;
}

static void turns(void)
{
    struct world world;
    struct caller *callers = calloc(WORKERS, sizeof *callers);
    pthread_t threads[2 * WORKERS];
    start(&world, 32, 64);
    for (uint32_t i = 0; i < WORKERS; i++) {
        callers[i].world = &world;
        callers[i].rank = i;
        pthread_create(&threads[2 * i], NULL, submit_all, &callers[i]);
        pthread_create(&threads[2 * i + 1], NULL, complete_all, &callers[i]);
    }
    for (uint32_t i = 0; i < 2 * WORKERS; i++)
        pthread_join(threads[i], NULL);
    pthread_create(&threads[0], NULL, run_until_the_end, &callers[0]);
    pthread_create(&threads[1], NULL, run_until_the_end, &callers[1]);
    ina_endpoint_abort(world.endpoints[0]);
    ina_endpoint_close(world.endpoints[1]);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    stop(&world);
    free(callers);
}

/* ---- calls that come in the middle of a round --------------------------------------------------------------------------- */

enum { POKES = 25 };

/* A worker whose driver is called, by another tensor, when it has just found nothing to send, for the `in`-th time in a row: before its
 * round ends, after which it may go to sleep. */
static struct {
    struct ina_endpoint *endpoint;
    struct ina_tensor tensor;
    atomic_int in; /* 0: not again */
    atomic_int submitted;
} late;

static int late_frames(void *state, const struct ina_tensor *tensors, struct ina_packet *pkts, int n, uint64_t now)
{
    const int filled = ina_switchml.frames_to_send(state, tensors, pkts, n, now);
    if (filled || !atomic_load(&late.in))
        return filled;
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL); /* longer than a driver yields before it sleeps */
    if (atomic_fetch_sub(&late.in, 1) == 1) {
        const int64_t ticket = ina_endpoint_submit(late.endpoint, &late.tensor);
        CHECK(ticket > 0 || ticket == -EPIPE); /* at the end of the test */
        atomic_fetch_add(&late.submitted, ticket > 0);
    }
    return 0;
}

/* Frames of a tensor that comes at any moment are sent, although no timer of it runs yet and nobody calls again. */
static void late_calls(void)
{
    struct ina_protocol protocol = ina_switchml;
    struct ina_worker_config config = model_config(0, 2, 64, 64);
    struct ina_port *pair[2];
    struct ina_worker_stats stats;
    int32_t one = 1;
    protocol.frames_to_send = late_frames;
    config.rto_min_ps = config.rto_max_ps = config.timeout_ps = 1000000000000000u; /* 1,000 s: nothing is sent again */
    CHECK(ina_port_mem_pair(1024, ina_switchml.frame_size(&config), pair) == 0);
    late.tensor = (struct ina_tensor){.in = &one, .out = &one, .count = 1};
    late.endpoint = ina_endpoint_start(&protocol, &config, pair[1], -1);
    CHECK(late.endpoint);
    for (int poke = 1; poke <= POKES; poke++) {
        atomic_store(&late.in, 1 + poke % 6);
        CHECK(ina_endpoint_submit(late.endpoint, &late.tensor) > 0);
        for (int i = 0; i < 20 && atomic_load(&late.in); i++) /* it may sleep before */
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        const uint64_t end = ina_now() + 20000000000000u;
        do {
            ina_endpoint_stats(late.endpoint, &stats, NULL);
            CHECK(ina_now() < end); /* a tensor lies in the endpoint, and none of its frames is sent */
            sched_yield();
        } while (stats.tx_packets < (uint64_t)(poke + atomic_load(&late.submitted)));
    }
    CHECK(atomic_load(&late.submitted));
    ina_endpoint_stop(late.endpoint);
    ina_port_close(pair[0]);
}

/* ---- callers that do not wait ------------------------------------------------------------------------------------------- */

/* Whoever begins a sum sends its first frames, by itself; if nobody waits for it, it goes on all the same. */
static void unattended(void)
{
    enum { MANY = 300 /* frames: more than are sent in the call */ };
    struct world world;
    struct ina_event event;
    static int32_t data[WORKERS][64 * MANY];
    start(&world, 512, 64);
    for (uint32_t round = 0; round < 20; round++) {
        const uint32_t count = round % 2 ? 64 * MANY : 1;
        int64_t tickets[WORKERS];
        struct ina_worker_stats before, after;
        for (uint32_t i = 0; i < WORKERS; i++) {
            for (uint32_t k = 0; k < count; k++)
                data[i][k] = (int32_t)(k + i);
            struct ina_tensor tensor = {.in = data[i], .out = data[i], .count = count};
            ina_endpoint_stats(world.endpoints[i], &before, NULL);
            tickets[i] = round % 4 < 2 ? ina_endpoint_submit(world.endpoints[i], &tensor) : ina_endpoint_run(world.endpoints[i], &tensor, 0, &event);
            CHECK(tickets[i] > 0);
            ina_endpoint_stats(world.endpoints[i], &after, NULL);
            CHECK(round || after.tx_packets > before.tx_packets); /* later its thread may have the port, still */
        }
        for (uint32_t i = 0; i < WORKERS; i++) {
            const uint64_t end = ina_now() + 20000000000000u;
            while (!ina_endpoint_wait(world.endpoints[i], tickets[i], 0, &event)) {
                CHECK(ina_now() < end); /* nobody drives what nobody waits for */
                sched_yield();
            }
            CHECK(event.type == INA_EVENT_DONE);
            for (uint32_t k = 0; k < count; k++)
                CHECK(data[i][k] == (int32_t)(2 * k + 1));
        }
    }
    stop(&world);
}

/* ---- bench ------------------------------------------------------------------------------------------------------- */

struct timing {
    struct world *world;
    uint32_t rank, run;
    uint64_t count;
    double seconds;
};

static void *time_one(void *argument)
{
    struct timing *t = argument;
    struct ina_endpoint *e = t->world->endpoints[t->rank];
    float *data = aligned_alloc(64, (4 * t->count + 63) & ~63ull);
    memset(data, 0, 4 * t->count);
    const int rounds = t->count < 1000 ? 3000 : t->count < 1000000 ? 100 : 8;
    uint64_t began = 0;
    for (int i = -rounds / 10; i < rounds; i++) {
        struct ina_tensor tensor = {.in = data, .out = data, .count = t->count, .dtype = INA_FLOAT32};
        struct ina_event event;
        began = i == 0 ? ina_now() : began;
        if (t->run) {
            CHECK(ina_endpoint_run(e, &tensor, 10000000000u, &event) > 0);
        } else {
            const int64_t ticket = ina_endpoint_submit(e, &tensor);
            CHECK(ina_endpoint_wait(e, ticket, 10000000000u, &event) == 1);
        }
        CHECK(event.type == INA_EVENT_DONE);
    }
    t->seconds = (double)(ina_now() - began) / 1e12 / rounds;
    free(data);
    return NULL;
}

static void bench(uint32_t values, uint32_t slots)
{
    for (uint64_t count = 1; count <= 10000000; count *= count == 1 ? 1000 : 100) {
        for (uint32_t run = 0; run < 2; run++) {
            struct world world;
            struct timing timings[WORKERS];
            pthread_t threads[WORKERS];
            start(&world, slots, values);
            for (uint32_t i = 0; i < WORKERS; i++) {
                timings[i] = (struct timing){.world = &world, .rank = i, .run = run, .count = count};
                pthread_create(&threads[i], NULL, time_one, &timings[i]);
            }
            for (uint32_t i = 0; i < WORKERS; i++)
                pthread_join(threads[i], NULL);
            struct ina_worker_stats stats;
            ina_endpoint_stats(world.endpoints[0], &stats, NULL);
            printf("%4u values, %4u slots, %9llu B, %s: %10.1f us, %5.2f GB/s, %llu sent again\n", values, slots,
                   (unsigned long long)(4 * count), run ? "run   " : "submit", timings[0].seconds * 1e6,
                   (double)(4 * count) / timings[0].seconds / 1e9, (unsigned long long)stats.retransmissions);
            stop(&world);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "bench")) {
        bench(256, 256);
        bench(1024, 128);
    } else {
        turns();
        late_calls();
        unattended();
    }
    return 0;
}
