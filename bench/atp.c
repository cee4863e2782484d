/* For bench/atp.py, one thread. run(): workers' ends and the server's end of a switch in memory: every round each worker sends
 * one distinct packet for each aggregator, the server turns every sum round, every worker checks every value of every result;
 * the switch alone is timed. serve(): the same packets into a parameter server, which alone is timed.
 */
#include "values.h"

struct bench {
    struct ina_switch *sw;
    void (*input)(struct ina_switch *sw, struct ina_packet *pkts, unsigned n, uint64_t now);
    void *server;
    int (*receive)(void *state, struct ina_packet *pkt, uint64_t now);
    int (*frames_to_send)(void *state, struct ina_packet *pkts, int n, uint64_t now);
    struct ina_port *host[33], *port[33]; /* of each worker, then of the server */
    const uint8_t *header;   /* of each worker's packets, then of a result: 58 bytes, Ethernet to bitmap */
    uint8_t *frames;         /* serve: room for workers * slots + 1 frames */
    uint32_t workers, values, slots, batch;
    uint64_t rounds;
    uint64_t elapsed_ps, packets, results, wrong; /* out */
};

enum { HEADER = 58, KIND = 42, INDEX = 44, SEQUENCE = 50, RESULT = 0x30 };

static void write_frame(const struct bench *b, uint8_t *frame, uint32_t worker, uint64_t round, uint32_t slot)
{
    const uint32_t sequence = (uint32_t)round * b->slots + slot;
    memcpy(frame, b->header + worker * HEADER, HEADER);
    store32(frame + SEQUENCE, sequence);
    frame[INDEX] = (uint8_t)(slot >> 8);
    frame[INDEX + 1] = (uint8_t)slot;
    store_values(frame + HEADER, worker, sequence, b->values);
}

static void check(struct bench *b, const uint8_t *frame, uint32_t len)
{
    b->wrong += len != HEADER + 4 * b->values || (frame[KIND] & 0xf0) != RESULT
                || !are_sums(frame + HEADER, b->workers, load32(frame + SEQUENCE), b->values);
    b->results++;
}

static int send(struct bench *b, uint32_t worker, uint64_t round)
{
    struct ina_port *port = b->host[worker];
    struct ina_packet pkts[64];
    for (uint32_t slot = 0; slot < b->slots;) {
        int want = b->slots - slot < 64 ? (int)(b->slots - slot) : 64;
        if (port->ops->tx_get(port, pkts, want) != want)
            return -1;
        for (int i = 0; i < want; i++, slot++) {
            write_frame(b, pkts[i].data, worker, round, slot);
            pkts[i].len = pkts[i].wire_len = HEADER + 4 * b->values;
        }
        port->ops->tx_put(port, pkts, want, 0);
    }
    return 0;
}

static void drive(struct bench *b, uint32_t first, uint32_t last, uint64_t now)
{
    const uint64_t start = cpu_time();
    work_off(b->sw, b->input, b->port, first, last, b->batch, now);
    b->elapsed_ps += cpu_time() - start;
}

static int turn_round(struct bench *b)
{
    struct ina_port *port = b->host[b->workers];
    struct ina_packet in[64], out[64];
    for (int n; (n = port->ops->rx(port, in, 64, 0)) > 0; port->ops->rx_done(port, n)) {
        if (port->ops->tx_get(port, out, n) != n)
            return -1;
        for (int i = 0; i < n; i++) {
            memcpy(out[i].data, in[i].data, in[i].len);
            memcpy(out[i].data, b->header + b->workers * HEADER, KIND + 1);
            out[i].len = out[i].wire_len = in[i].len;
        }
        port->ops->tx_put(port, out, n, 0);
    }
    return 0;
}

int run(struct bench *b)
{
    for (uint64_t round = 0; round < b->rounds; round++) {
        for (uint32_t w = 0; w < b->workers; w++)
            if (send(b, w, round))
                return -1;
        drive(b, 0, b->workers - 1, round);
        if (turn_round(b))
            return -1;
        drive(b, b->workers, b->workers, round);
        b->packets += (uint64_t)b->workers * b->slots;
        for (uint32_t w = 0; w < b->workers; w++) {
            struct ina_port *port = b->host[w];
            struct ina_packet pkts[64];
            for (int n; (n = port->ops->rx(port, pkts, 64, 0)) > 0; port->ops->rx_done(port, n))
                for (int i = 0; i < n; i++)
                    check(b, pkts[i].data, pkts[i].len);
        }
    }
    return 0;
}

int serve(struct bench *b)
{
    const uint32_t len = HEADER + 4 * b->values, count = b->workers * b->slots;
    uint8_t *answer = b->frames + (size_t)count * len;
    for (uint64_t round = 0; round < b->rounds; round++) {
        for (uint32_t i = 0; i < count; i++)
            write_frame(b, b->frames + (size_t)i * len, i % b->workers, round, i / b->workers);
        uint64_t start = cpu_time();
        for (uint32_t i = 0; i < count; i++) {
            struct ina_packet pkt = {.data = b->frames + (size_t)i * len, .len = len, .wire_len = len};
            b->receive(b->server, &pkt, round);
            pkt = (struct ina_packet){.data = answer, .tailroom = len};
            if (b->frames_to_send(b->server, &pkt, 1, round) && i % 61 == 60) {
                const uint64_t now = cpu_time();
                check(b, answer, pkt.len);
                start += cpu_time() - now;
            }
        }
        b->elapsed_ps += cpu_time() - start;
        b->packets += count;
    }
    return 0;
}
