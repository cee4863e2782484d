/* For bench/complete.py and bench/dpdk.py. Workers, switch and back: each worker's protocol machine quantises its tensors into
 * frames, the switch parses, aggregates and replicates them, the workers decode, in place. Tensors follow one another without
 * a gap, none has values of another, and every value of every sum is compared with what it must be. A thread plays the
 * workers, the switch, or both (run to completion). Cycles are those of the time-stamp counter.
 */
#define _GNU_SOURCE 1 /* affinity */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <x86intrin.h>

#include "program.h"
#include "protocol.h"
#include "values.h"

enum { WORKERS = 4, MAX_BATCH = 64, LONG = 100000, HEADERS = 64 };
enum stage { WORKER_PORTS, BUILD, SWITCH_PORTS, SWITCH, DECODE, INGRESS, EGRESS, WAITING };

struct complete {
    struct ina_switch *sw;
    void (*input)(struct ina_switch *sw, struct ina_packet *pkts, unsigned n, uint64_t now);
    const struct ina_protocol *protocol;
    void *state[WORKERS];
    struct ina_tensor *tensors[WORKERS];    /* [INA_MAX_OPS] of each worker */
    const struct ina_tensor *work[WORKERS]; /* `ahead` tensors of each worker, reduced one after the other */
    const int32_t *own[WORKERS], *sums;     /* values of each worker, and of all */
    struct ina_port *host[WORKERS], *port[WORKERS];
    int (*exponent)(const float *x, size_t count); /* the codec, for limit() */
    void (*encode)(uint32_t lane, uint8_t *wire, const float *x, size_t count, int exponent, int shift);
    void (*decode)(uint32_t lane, float *x, const uint8_t *wire, size_t count, int exponent, int shift, int divisor);
    uint32_t batch, ahead, watch;           /* watch: 1 measures cycles */
    uint64_t count;                         /* tensors to reduce */
    uint64_t cycles[8];                     /* out: by stage; INGRESS and EGRESS are parts of SWITCH; WAITING: idle */
    uint64_t elapsed_ps, aside_ps;          /* out: processor time without comparing and new values; and theirs */
    uint64_t clock_ps;                      /* out: cost of reading that clock, a system call */
    uint64_t wall_ps, forwarded;            /* out: from the first to the last turn; frames into the switch */
    uint64_t sent, bare, wrong;             /* out: frames by workers, those without values; wrong values */
    const volatile int *stop;               /* of a switch without workers */
};

static const struct ina_program *program; /* the program whose phases are timed when the switch runs `timed` */
static uint64_t phase_cycles[2];

/* Returns the cycles since then. A batch takes a few microseconds: other processes ran during a longer lap. */
static uint64_t spent(uint64_t since, uint64_t now)
{
    return now - since < LONG ? now - since : 0;
}

static void ingress(void *state, const struct ina_tables *tables, struct ina_packet *pkts, unsigned n, uint64_t now)
{
    const uint64_t start = __rdtsc();
    program->ingress(state, tables, pkts, n, now);
    phase_cycles[0] += spent(start, __rdtsc());
}

static void egress(void *state, const struct ina_tables *tables, struct ina_packet *pkts, unsigned n, uint64_t now)
{
    const uint64_t start = __rdtsc();
    program->egress(state, tables, pkts, n, now);
    phase_cycles[1] += spent(start, __rdtsc());
}

/* The same program with a watch in each phase. */
void watch(struct ina_program *timed, const struct ina_program *original)
{
    program = original;
    *timed = *original;
    timed->ingress = ingress;
    timed->egress = egress;
}

/* Reads the watch, only on request: that takes as long as five instructions of each packet of a batch. */
static uint64_t look(const struct complete *c)
{
    return c->watch ? __rdtsc() : 0;
}

/* Ends a stage; returns the time at which the next one begins. `n`: frames that passed it; 0: it was waiting. */
static uint64_t lap(struct complete *c, enum stage stage, int n, uint64_t since)
{
    const uint64_t now = look(c);
    c->cycles[n ? stage : WAITING] += spent(since, now);
    return now;
}

/* Whole numbers, which fixed point carries without rounding and whose sums float32 has exactly: each worker has values of its
 * own, and each tensor another number added to all of them. */
static int32_t shift_of(uint64_t tensor)
{
    return (int32_t)(tensor * 40503u % 65536);
}

static void fill(struct complete *c, uint32_t worker, uint64_t tensor)
{
    const struct ina_tensor *t = &c->work[worker][tensor % c->ahead];
    const int32_t *restrict own = c->own[worker], shift = shift_of(tensor);
    float *restrict x = t->out;
    for (uint64_t i = 0; i < t->count; i++)
        x[i] = (float)(own[i] + shift);
}

static void verify(struct complete *c, uint32_t worker, uint64_t tensor)
{
    const struct ina_tensor *t = &c->work[worker][tensor % c->ahead];
    const int32_t *sums = c->sums, shift = WORKERS * shift_of(tensor);
    const float *x = t->out;
    uint32_t wrong = 0;
    for (uint64_t i = 0; i < t->count; i++)
        wrong += x[i] != (float)(sums[i] + shift);
    c->wrong += wrong;
}

/* Verifies finished tensors, fills and submits the next ones: `ahead` of each worker are on their way. */
static void exchange(struct complete *c, uint32_t worker, uint64_t *submitted, uint64_t *done, uint64_t now)
{
    struct ina_event events[INA_MAX_OPS];
    const int n = c->protocol->events(c->state[worker], events, INA_MAX_OPS);
    if (!n && *submitted)
        return;
    const uint64_t start = cpu_time();
    for (int i = 0; i < n; i++) {
        c->wrong += events[i].type != INA_EVENT_DONE || events[i].overflow;
        verify(c, worker, (*done)++);
    }
    uint64_t end = *submitted;
    for (; end < c->count && end - *done < c->ahead; end++)
        fill(c, worker, end);
    c->aside_ps += cpu_time() - start + c->clock_ps; /* one reading of the clock lies between the two */
    for (; *submitted < end; ++*submitted) {
        const int handle = c->protocol->next_handle(c->state[worker]);
        c->tensors[worker][handle] = c->work[worker][*submitted % c->ahead];
        c->protocol->submit(c->state[worker], c->tensors[worker], handle, now);
    }
}

/* One worker's turn: receives its frames, sends as many as it may. Returns the number of frames. */
static uint32_t serve(struct complete *c, uint32_t w, uint64_t *submitted, uint64_t *done, uint64_t now)
{
    struct ina_packet pkts[MAX_BATCH];
    struct ina_port *port = c->host[w];
    uint64_t at = look(c);
    uint32_t moved = 0;
    const int n = port->ops->rx(port, pkts, (int)c->batch, now);
    at = lap(c, WORKER_PORTS, n, at);
    c->protocol->receive(c->state[w], c->tensors[w], pkts, n, now);
    at = lap(c, DECODE, n, at);
    port->ops->rx_done(port, n);
    lap(c, WORKER_PORTS, n, at);
    moved += (uint32_t)n;
    exchange(c, w, submitted, done, now);
    at = look(c);
    const int lent = port->ops->tx_get(port, pkts, (int)c->batch);
    const uint64_t got = look(c);
    const int filled = c->protocol->frames_to_send(c->state[w], c->tensors[w], pkts, lent, now);
    const uint64_t built = look(c);
    c->cycles[filled ? WORKER_PORTS : WAITING] += spent(at, got);
    c->cycles[filled ? BUILD : WAITING] += spent(got, built);
    for (int i = 0; i < filled; i++)
        c->bare += pkts[i].len <= HEADERS;
    c->sent += (uint64_t)filled;
    at = look(c);
    port->ops->tx_put(port, pkts, filled, now);
    lap(c, WORKER_PORTS, filled, at);
    return moved + (uint32_t)filled;
}

static uint32_t forward(struct complete *c, uint32_t w, uint64_t now)
{
    struct ina_packet pkts[MAX_BATCH];
    struct ina_port *port = c->port[w];
    uint64_t at = look(c);
    const int n = port->ops->rx(port, pkts, (int)c->batch, now);
    for (int i = 0; i < n; i++)
        pkts[i].ingress_port = (uint16_t)w;
    at = lap(c, SWITCH_PORTS, n, at);
    if (!n)
        return 0;
    c->input(c->sw, pkts, (unsigned)n, now);
    at = lap(c, SWITCH, n, at);
    port->ops->rx_done(port, n);
    lap(c, SWITCH_PORTS, n, at);
    return (uint32_t)n;
}

/* Returns the time of the monotonic clock, which workers' timers use. */
static uint64_t wall(void)
{
    return clock_time(CLOCK_MONOTONIC);
}

/* Measures the time one way between two processors, ps: two threads pass a cache line back and forth. */
struct ball {
    _Alignas(128) _Atomic uint32_t turn;
};
static struct ball ball;
enum { THROWS = 100000 };

static void *catcher(void *cpu)
{
    cpu_set_t where;
    CPU_ZERO(&where);
    CPU_SET(*(const int *)cpu, &where);
    pthread_setaffinity_np(pthread_self(), sizeof where, &where);
    for (uint32_t i = 0; i < THROWS; i++) {
        while (atomic_load_explicit(&ball.turn, memory_order_acquire) != 2 * i + 1)
            __builtin_ia32_pause();
        atomic_store_explicit(&ball.turn, 2 * i + 2, memory_order_release);
    }
    return NULL;
}

/* The caller runs on another processor than `cpu`; 0: no thread. */
uint64_t latency(int cpu)
{
    pthread_t thread;
    atomic_store(&ball.turn, 0);
    if (pthread_create(&thread, NULL, catcher, &cpu))
        return 0;
    uint64_t best = UINT64_MAX, start = wall();
    for (uint32_t i = 0; i < THROWS; i++) {
        atomic_store_explicit(&ball.turn, 2 * i + 1, memory_order_release);
        while (atomic_load_explicit(&ball.turn, memory_order_acquire) != 2 * i + 2)
            __builtin_ia32_pause();
        if (i % 1000 == 999) { /* the best of a hundred, because of other load */
            const uint64_t now = wall(), one = (now - start) / 2000;
            best = one < best ? one : best;
            start = now;
        }
    }
    pthread_join(thread, NULL);
    return best;
}

/* Runs the workers, and the switch if it is in this thread. Returns 0, or -1: nothing moves any more. */
int work(struct complete *c)
{
    uint64_t submitted[WORKERS] = {0}, done[WORKERS] = {0}, left = WORKERS;
    c->clock_ps = UINT64_MAX;
    for (int i = 0; i < 100; i++) {
        const uint64_t before = cpu_time(), took = cpu_time() - before;
        c->clock_ps = took < c->clock_ps ? took : c->clock_ps;
    }
    const uint64_t start = cpu_time(), began = wall();
    phase_cycles[0] = phase_cycles[1] = 0;
    for (uint64_t now = began, moved_at = now; left; now = wall()) {
        uint32_t moved = 0;
        left = 0;
        for (uint32_t w = 0; w < WORKERS; w++) {
            moved += serve(c, w, &submitted[w], &done[w], now);
            left += done[w] < c->count;
        }
        for (uint32_t w = 0; w < WORKERS && c->sw; w++)
            moved += forward(c, w, now);
        moved_at = moved ? now : moved_at;
        if (now - moved_at > 10000000000000u)
            return -1;
    }
    c->wall_ps = wall() - began;
    c->elapsed_ps = cpu_time() - start - c->aside_ps;
    c->cycles[INGRESS] = phase_cycles[0];
    c->cycles[EGRESS] = phase_cycles[1];
    return 0;
}

/* Runs the switch alone, until `stop` is set. */
void serve_switch(struct complete *c)
{
    phase_cycles[0] = phase_cycles[1] = 0;
    while (!*c->stop) {
        const uint64_t now = wall();
        for (uint32_t w = 0; w < WORKERS; w++)
            c->forwarded += forward(c, w, now);
    }
    c->cycles[INGRESS] = phase_cycles[0];
    c->cycles[EGRESS] = phase_cycles[1];
}

/* The limit: a loop by hand with the same codec and nothing of a protocol. Blocks of all workers are quantised into frames,
 * added up, copied for each worker and turned back. `frames`: room for a batch of frames of each worker and direction; `rows`
 * for the sums. ps of processor time for each packet. */
double limit(const struct complete *c, uint32_t values, uint8_t *frames, uint32_t *rows)
{
    const struct ina_tensor *const *work = c->work;
    const uint64_t blocks = work[0]->count / values, bytes = 4 * (uint64_t)values, stride = bytes + 192;
    const uint32_t batch = c->batch;
    const uint64_t start = cpu_time();
    for (uint64_t block = 0; block + batch <= blocks; block += batch) {
        for (uint32_t w = 0; w < WORKERS; w++)
            for (uint32_t i = 0; i < batch; i++) {
                const float *x = (const float *)work[w]->in + (block + i) * values;
                uint8_t *frame = frames + (w * batch + i) * stride;
                c->encode(INA_LANE_INT32, frame, x, values, c->exponent(x, values), 28);
            }
        for (uint32_t w = 0; w < WORKERS; w++)
            for (uint32_t i = 0; i < batch; i++) {
                uint32_t *restrict row = rows + i * (size_t)values;
                const uint32_t *restrict in = (const uint32_t *)(frames + (w * batch + i) * stride);
                for (uint32_t k = 0; k < values; k++)
                    row[k] = (w ? row[k] : 0) + __builtin_bswap32(in[k]);
            }
        for (uint32_t w = 0; w < WORKERS; w++)
            for (uint32_t i = 0; i < batch; i++) {
                uint32_t *restrict out = (uint32_t *)(frames + ((WORKERS + w) * batch + i) * stride);
                const uint32_t *restrict row = rows + i * (size_t)values;
                for (uint32_t k = 0; k < values; k++)
                    out[k] = __builtin_bswap32(row[k]);
            }
        for (uint32_t w = 0; w < WORKERS; w++)
            for (uint32_t i = 0; i < batch; i++)
                c->decode(INA_LANE_INT32, (float *)work[w]->out + (block + i) * values, frames + ((WORKERS + w) * batch + i) * stride,
                          values, 20, 28, 1);
    }
    return (double)(cpu_time() - start) / (double)(blocks / batch * batch * WORKERS);
}
