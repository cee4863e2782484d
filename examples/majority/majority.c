/* The worker of majority: stop and wait. One packet at a time goes to the switch, again and again until its result comes back;
 * then the next. What a packet of a tensor carries, and what its result means, host/protocol/tensors.h knows.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "internet.h"
#include "protocol.h"
#include "tensors.h"

struct frame {
    struct ina_internet internet;
    uint8_t job, life;
    int8_t exponent;
    uint8_t kind;                    /* of the values: enum ina_contents */
    uint32_t number;
    uint8_t values[];
} __attribute__((packed));

struct state {                       /* the head: what decides what the worker does */
    struct ina_worker_config config;
    uint64_t seq;                    /* the packet that it sends, or has sent */
    uint32_t flying, reserved;
    struct ina_tensors tensors;      /* last: it has a tail of its own */
};

struct tail {                        /* statistics and times */
    struct ina_worker_stats stats;
    struct ina_tensor_times times;
    uint64_t due, wait;              /* when it sends again, and how long it waits then */
};

static size_t stats_offset(const struct ina_worker_config *config)
{
    return (offsetof(struct state, tensors) + ina_tensors_size(1) + 63) & ~(size_t)63;
}

static struct tail *tail_of(const struct state *st)
{
    return (struct tail *)((uint8_t *)st + stats_offset(&st->config));
}

static size_t state_size(const struct ina_worker_config *c)
{
    const int ok = c->workers >= 1 && c->workers <= INA_BITMAP_WORKERS && c->worker < c->workers && c->job <= 255 && c->life && c->life <= 255
                   && c->values
                   && c->rto_min_ps && c->rto_min_ps <= c->rto_max_ps && c->timeout_ps;
    return ok ? (stats_offset(c) + sizeof(struct tail) + 63) & ~(size_t)63 : 0;
}

static uint32_t frame_size(const struct ina_worker_config *config)
{
    return (uint32_t)sizeof(struct frame) + (uint32_t)ina_lane_bytes(config->lane, config->values);
}

static int init(void *state, const struct ina_worker_config *config, uint64_t now)
{
    struct state *st = state;
    if (!state_size(config))
        return -EINVAL;
    memset(st, 0, state_size(config));
    st->config = *config;
    st->config.slots = 1;            /* the window */
    st->seq = config->first_packet;
    ina_tensors_init(&st->tensors, &st->config, INA_EXP_AGREED, 0);
    return 0;
}

static int next_handle(const void *state)
{
    return ina_tensors_next_handle(&((const struct state *)state)->tensors);
}

static int submit(void *state, const struct ina_tensor *tensors, int handle, uint64_t now)
{
    struct state *st = state;
    if (tensors[handle].dtype != INA_INT32)
        return -EINVAL;              /* blocks of floats are scaled: the operation is of integers */
    return ina_tensors_submit(&st->tensors, &tail_of(st)->times, tensors, handle);
}

static int frames_to_send(void *state, const struct ina_tensor *tensors, struct ina_packet *pkts, int n, uint64_t now)
{
    struct state *st = state;
    struct tail *tail = tail_of(st);
    struct ina_tensors *ts = &st->tensors;
    const struct ina_worker_config *c = &st->config;
    uint32_t handle = 0;
    if (ina_tensors_status(ts, &tail->times, st->seq, &handle, now) != INA_PACKET_READY || ts->failed)
        return 0;
    if (ina_tensors_deadline(ts, &tail->times, c->timeout_ps) <= now) {
        ts->failure = (struct ina_event){.tsi = (uint32_t)st->seq};
        ina_tensors_fail(ts, INA_ERR_TIMEOUT, ina_tensors_oldest(ts));
        return 0;
    }
    if (!n || (st->flying && now < tail->due) || pkts->len + pkts->tailroom < frame_size(c))
        return 0;

    struct frame *f = (struct frame *)pkts->data;
    ina_internet_write(&f->internet, &c->self, &c->peer, frame_size(c) - INA_INTERNET_SIZE);
    f->job = (uint8_t)c->job;
    f->life = (uint8_t)c->life;
    f->kind = (uint8_t)ina_tensors_contents(ts, handle, st->seq);
    f->number = htonl((uint32_t)st->seq);
    memset(f->values, 0, ina_lane_bytes(c->lane, c->values));
    f->exponent = (int8_t)ina_tensors_encode(ts, tensors, handle, st->seq, f->values);
    pkts->tailroom -= frame_size(c) - pkts->len;
    pkts->len = pkts->wire_len = frame_size(c);
    tail->wait = !st->flying ? c->rto_min_ps : 2 * tail->wait < c->rto_max_ps ? 2 * tail->wait : c->rto_max_ps;
    tail->due = now + tail->wait;
    tail->stats.tx_packets++;
    tail->stats.tx_bytes += pkts->len;
    tail->stats.retransmissions += st->flying;
    st->flying = 1;
    return 1;
}

static void take(struct state *st, const struct ina_tensor *tensors, const struct ina_packet *pkt, uint64_t now)
{
    struct tail *tail = tail_of(st);
    const struct ina_worker_config *c = &st->config;
    const struct frame *f = (const struct frame *)pkt->data;
    uint32_t handle = 0;
    tail->stats.rx_packets++;
    tail->stats.rx_bytes += pkt->len;
    if (pkt->len < frame_size(c)
        || ina_internet_payload(&f->internet, pkt->len) != (int)frame_size(c) - INA_INTERNET_SIZE) {
        tail->stats.drop_malformed++;
    } else if (!ina_internet_is(&f->internet, &c->peer, &c->self) || f->job != c->job || f->life != (uint8_t)c->life) {
        tail->stats.drop_foreign++;
    } else if (!st->flying || st->tensors.failed || f->number != htonl((uint32_t)st->seq)) {
        tail->stats.drop_stale++;
    } else {
        ina_tensors_status(&st->tensors, &tail->times, st->seq, &handle, now);
        const int with_values = ina_tensors_contents(&st->tensors, handle, st->seq) != INA_CONTENTS_NONE;
        const struct ina_result result = {.wire = with_values ? f->values : NULL, .exponent = f->exponent};
        uint64_t unblocked;
        int failing = -1;
        tail->times.last_rx = now;
        st->flying = 0;
        if (ina_tensors_result(&st->tensors, tensors, handle, st->seq, &result, &tail->stats, &unblocked, &failing)
            == INA_OUTCOME_OK)
            st->seq++;
        else
            ina_tensors_fail(&st->tensors, INA_ERR_MISMATCH, handle);
    }
}

static int receive(void *state, const struct ina_tensor *tensors, struct ina_packet *pkts, int n, uint64_t now)
{
    for (int i = 0; i < n; i++)
        take(state, tensors, &pkts[i], now);
    return 0;
}

static uint64_t next_timer(const void *state)
{
    const struct state *st = state;
    const struct tail *tail = tail_of(st);
    const uint64_t end = ina_tensors_deadline(&st->tensors, &tail->times, st->config.timeout_ps);
    return st->tensors.failed ? UINT64_MAX : st->flying && tail->due < end ? tail->due : end;
}

static int expire(void *state, uint32_t slot, uint64_t now)
{
    struct state *st = state;
    if (!st->flying)
        return -ENOENT;
    tail_of(st)->due = now;
    return 0;
}

static int abort_job(void *state, uint32_t code, uint64_t now)
{
    struct state *st = state;
    if (!st->tensors.failed)
        ina_tensors_fail(&st->tensors, code, ina_tensors_oldest(&st->tensors));
    return 0;
}

static int events(void *state, struct ina_event *out, int max)
{
    struct state *st = state;
    return ina_tensors_events(&st->tensors, &tail_of(st)->times, out, max);
}

const struct ina_protocol ina_majority = {
    .name = "majority",
    .reductions = 1 << INA_OWN,
    .state_size = state_size,
    .stats_offset = stats_offset,
    .init = init,
    .next_handle = next_handle,
    .submit = submit,
    .receive = receive,
    .frames_to_send = frames_to_send,
    .next_timer = next_timer,
    .expire = expire,
    .abort = abort_job,
    .events = events,
    .frame_size = frame_size,
};
