#include "flow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { ACK_EVERY = 4, REORDERING = 3, FIRST_WINDOW = 10 /* RFC 6928 */, MOST_BACKOFF = 6, UNKNOWN = 16 /* least time-outs to wait before the first sample */ };
enum { GAIN = 16 }; /* 1 / g of DCTCP §3.3 */
static const uint64_t ONE = INA_FLOW_ONE;

int ina_flow_init(struct ina_flow *flow, uint32_t window, uint32_t congestion, uint64_t rto)
{
    *flow = (struct ina_flow){
        .window = window,
        .congestion = congestion,
        .rto = rto,
        .limit = window,
        .cwnd = (uint64_t)(congestion == INA_DCTCP && window > FIRST_WINDOW ? FIRST_WINDOW : window) * ONE,
        .alpha = ONE,
        .slow_start = congestion == INA_DCTCP,
        .out = calloc(window, sizeof *flow->out),
        .got = calloc(window, 1),
    };
    return flow->out && flow->got ? 0 : -ENOMEM;
}

void ina_flow_destroy(struct ina_flow *flow)
{
    free(flow->out);
    free(flow->got);
}

/* ---- sending */

static struct ina_flow_packet *out_at(const struct ina_flow *flow, uint32_t number)
{
    return &flow->out[number % flow->window];
}

static uint32_t may_send_below(const struct ina_flow *flow)
{
    uint32_t below = flow->una + (uint32_t)(flow->cwnd / ONE);
    below = below < flow->limit ? below : flow->limit;
    return below < flow->available ? below : flow->available;
}

static int shut_out(const struct ina_flow *flow)
{
    return flow->una == flow->next && flow->next < flow->available && flow->next >= flow->limit;
}

void ina_flow_offer(struct ina_flow *flow, uint32_t packets, uint64_t now)
{
    if (!shut_out(flow))
        flow->heard = now;
    flow->available += packets;
}

int ina_flow_idle(const struct ina_flow *flow)
{
    return flow->una == flow->available;
}

static uint64_t patience(const struct ina_flow *flow, uint32_t times)
{
    uint64_t rto = flow->srtt ? flow->srtt + 4 * flow->deviation : UNKNOWN * flow->rto;
    return (rto > flow->rto ? rto : flow->rto) << (times < MOST_BACKOFF ? times : MOST_BACKOFF);
}

static void sample(struct ina_flow *flow, uint64_t round_trip)
{
    uint64_t off = round_trip > flow->srtt ? round_trip - flow->srtt : flow->srtt - round_trip;
    flow->deviation = flow->srtt ? (3 * flow->deviation + off) / 4 : round_trip / 2;
    flow->srtt = flow->srtt ? (7 * flow->srtt + round_trip) / 8 : round_trip;
}

uint64_t ina_flow_next_timer(const struct ina_flow *flow)
{
    if (flow->una < flow->next) {
        const struct ina_flow_packet *oldest = out_at(flow, flow->una);
        return oldest->sent + patience(flow, oldest->times - 1u);
    }
    return shut_out(flow) ? flow->heard + patience(flow, 0) : UINT64_MAX;
}

static void lose(struct ina_flow *flow, uint32_t number)
{
    if (!out_at(flow, number)->lost) {
        out_at(flow, number)->lost = 1;
        flow->lost++;
    }
}

int ina_flow_hurries(const struct ina_flow *flow, uint64_t now)
{
    return flow->ack_due || flow->lost || ina_flow_next_timer(flow) <= now;
}

int ina_flow_open(const struct ina_flow *flow)
{
    return flow->next < may_send_below(flow);
}

int ina_flow_send(struct ina_flow *flow, uint64_t now, uint32_t *number, int *push)
{
    if (ina_flow_next_timer(flow) <= now) {
        flow->timeouts++;
        if (flow->una == flow->next) {
            flow->heard = now;
            return 2;
        }
        lose(flow, flow->una);
        if (flow->congestion == INA_DCTCP)
            flow->cwnd = ONE;
    }
    uint32_t send = flow->next;
    if (flow->lost) {
        for (send = flow->una; !out_at(flow, send)->lost; send++)
            ;
        flow->lost--;
        flow->again++;
    } else if (flow->next < may_send_below(flow)) {
        memset(out_at(flow, flow->next++), 0, sizeof *flow->out);
    } else {
        return 0;
    }
    struct ina_flow_packet *packet = out_at(flow, send);
    packet->lost = 0;
    packet->sent = now;
    if (packet->times < UINT8_MAX)
        packet->times++;
    flow->sent++;
    *number = send;
    *push = packet->times > 1 || send + 1 == flow->available || flow->cwnd < 2 * ONE * ACK_EVERY;
    return 1;
}

/* Updates the share of marked packets, once a window. */
static void dctcp(struct ina_flow *flow, uint32_t newly, uint32_t marked)
{
    flow->round_packets += newly;
    flow->round_marked += marked;
    if (marked)
        flow->slow_start = 0;
    flow->cwnd += flow->slow_start ? (uint64_t)newly * ONE : (uint64_t)newly * ONE * ONE / flow->cwnd;
    if (flow->una >= flow->round_end) {
        uint64_t share = flow->round_packets ? (uint64_t)flow->round_marked * ONE / flow->round_packets : 0;
        flow->alpha = flow->alpha - flow->alpha / GAIN + (share < ONE ? share : ONE) / GAIN;
        if (flow->round_marked)
            flow->cwnd -= flow->cwnd * flow->alpha / (2 * ONE);
        flow->round_end = flow->next;
        flow->round_packets = flow->round_marked = 0;
    }
    uint64_t most = (uint64_t)flow->window * ONE;
    flow->cwnd = flow->cwnd < ONE ? ONE : flow->cwnd > most ? most : flow->cwnd;
}

void ina_flow_acknowledged(struct ina_flow *flow, const struct ina_ack *ack, uint64_t now)
{
    if (ack->cumulative > flow->next || ack->limit > ack->cumulative + flow->window)
        return; /* from another flow */
    flow->heard = now;
    flow->limit = ack->limit > flow->limit ? ack->limit : flow->limit;
    uint32_t newly = 0, highest = flow->una;
    if (ack->echo && ack->echo < now)
        sample(flow, now - ack->echo);
    for (; flow->una < ack->cumulative; flow->una++) {
        flow->lost -= out_at(flow, flow->una)->lost;
        newly += !out_at(flow, flow->una)->acked;
    }
    for (uint32_t i = 0; i < 64 && ack->selective >> i; i++) {
        uint32_t number = ack->cumulative + 1 + i;
        if (!(ack->selective >> i & 1) || number < flow->una || number >= flow->next)
            continue;
        struct ina_flow_packet *packet = out_at(flow, number);
        newly += !packet->acked;
        packet->acked = 1;
        flow->lost -= packet->lost;
        packet->lost = 0;
        highest = number;
    }
    for (uint32_t number = flow->una; number + REORDERING <= highest; number++)
        if (!out_at(flow, number)->acked && out_at(flow, number)->times == 1) {
            lose(flow, number);
            if (flow->congestion == INA_DCTCP) {
                flow->round_marked++;
                flow->slow_start = 0;
            }
        }
    if (flow->congestion == INA_DCTCP)
        dctcp(flow, newly, ack->marked);
}

/* ---- receiving */

int ina_flow_accept(struct ina_flow *flow, uint32_t number, uint64_t sent, int push, int marked)
{
    flow->echo = sent;
    flow->marked += (uint32_t)marked;
    uint32_t first = flow->consumed < flow->cumulative ? flow->consumed : flow->cumulative;
    if (number < flow->cumulative || number >= first + flow->window || flow->got[number % flow->window]) {
        flow->duplicates++;
        flow->ack_due = 1;
        return 0;
    }
    flow->accepted++;
    flow->got[number % flow->window] = 1;
    if (number != flow->cumulative)
        flow->ack_due = 1;
    for (; flow->got[flow->cumulative % flow->window]; flow->cumulative++)
        flow->got[flow->cumulative % flow->window] = 0;
    if (push || ++flow->unacknowledged >= ACK_EVERY)
        flow->ack_due = 1;
    return 1;
}

void ina_flow_consume(struct ina_flow *flow, uint32_t until, int tell)
{
    flow->consumed = until;
    flow->ack_due |= tell;
}

int ina_flow_acknowledge(struct ina_flow *flow, struct ina_ack *ack)
{
    if (!flow->ack_due)
        return 0;
    uint32_t first = flow->consumed < flow->cumulative ? flow->consumed : flow->cumulative;
    *ack = (struct ina_ack){.cumulative = flow->cumulative, .limit = first + flow->window, .marked = flow->marked,
                            .echo = flow->echo};
    for (uint32_t i = 0; i < 64 && i + 1 < flow->window; i++)
        ack->selective |= (uint64_t)flow->got[(flow->cumulative + 1 + i) % flow->window] << i;
    flow->ack_due = 0;
    flow->unacknowledged = flow->marked = 0;
    flow->echo = 0;
    return 1;
}
