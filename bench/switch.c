/* Workers' ends of a switch in memory, for bench/switch.py: every round each worker sends one distinct packet per slot,
 * the switch works them off (this alone is timed), every worker checks every value of every result. One thread.
 */
#include "values.h"

struct bench {
    struct ina_switch *sw;
    void (*input)(struct ina_switch *sw, struct ina_packet *pkts, unsigned n, uint64_t now);
    struct ina_port *host[32], *port[32];
    const uint8_t *header;   /* of each worker: 52 bytes, Ethernet to exponents */
    uint32_t workers, values, slots, batch;
    uint64_t rounds;
    uint64_t elapsed_ps, packets, results, wrong; /* out */
};

enum { HEADER = 52, TSI = 44, SLOT = 48, WORDS = 52 };

static void fill(const struct bench *b, uint32_t worker, uint32_t tsi, struct ina_packet *pkt)
{
    const uint32_t index = (tsi / b->slots & 1) << 15 | tsi % b->slots;
    uint8_t *frame = pkt->data;
    memcpy(frame, b->header + worker * HEADER, HEADER);
    store32(frame + TSI, tsi);
    frame[SLOT] = (uint8_t)(index >> 8);
    frame[SLOT + 1] = (uint8_t)index;
    store_values(frame + WORDS, worker, tsi, b->values);
    pkt->len = pkt->wire_len = WORDS + 4 * b->values;
}

static int is_right(const struct bench *b, const struct ina_packet *pkt)
{
    return pkt->len == WORDS + 4 * b->values && are_sums(pkt->data + WORDS, b->workers, load32(pkt->data + TSI), b->values);
}

static int send(struct bench *b, uint32_t worker, uint64_t round)
{
    struct ina_port *port = b->host[worker];
    for (uint32_t slot = 0; slot < b->slots;) {
        struct ina_packet pkts[64];
        int want = b->slots - slot < 64 ? (int)(b->slots - slot) : 64;
        int n = port->ops->tx_get(port, pkts, want);
        if (n != want)
            return -1;
        for (int i = 0; i < n; i++, slot++)
            fill(b, worker, (uint32_t)round * b->slots + slot, &pkts[i]);
        port->ops->tx_put(port, pkts, n, 0);
    }
    return 0;
}

static void verify(struct bench *b, uint32_t worker, uint64_t round)
{
    struct ina_port *port = b->host[worker];
    const uint8_t *header = b->header + worker * HEADER;
    struct ina_packet pkts[64];
    uint32_t slot = 0;
    for (int n; (n = port->ops->rx(port, pkts, 64, 0)) > 0; port->ops->rx_done(port, n))
        for (int i = 0; i < n; i++, slot++) {
            const uint32_t tsi = (uint32_t)round * b->slots + slot;
            b->wrong += !is_right(b, &pkts[i]) || load32(pkts[i].data + TSI) != tsi
                        || memcmp(pkts[i].data, header + 6, 6) != 0; /* to my address */
            b->results++;
        }
    b->wrong += slot != b->slots;
}

int run(struct bench *b)
{
    for (uint64_t round = 0; round < b->rounds; round++) {
        for (uint32_t w = 0; w < b->workers; w++)
            if (send(b, w, round))
                return -1;
        uint64_t start = cpu_time();
        b->packets += work_off(b->sw, b->input, b->port, 0, b->workers - 1, b->batch, round);
        b->elapsed_ps += cpu_time() - start;
        for (uint32_t w = 0; w < b->workers; w++)
            verify(b, w, round);
    }
    return 0;
}

/* The limit: a hand-written loop of the arithmetic alone. As many packets of the same size are added into rows and, as each
 * row is complete, copied out once per worker. ps of processor time. */
uint64_t limit(const struct bench *b, const uint32_t *in, uint32_t *rows, uint32_t *out)
{
    const size_t values = b->values;
    uint64_t start = cpu_time();
    for (uint64_t round = 0; round < b->rounds; round++)
        for (uint32_t slot = 0; slot < b->slots; slot++) {
            const uint32_t *restrict packet = in + slot * b->workers * values;
            uint32_t *restrict row = rows + slot * values;
            uint32_t *restrict sum = out + slot * b->workers * values;
            for (size_t k = 0; k < values; k++)
                row[k] = __builtin_bswap32(packet[k]);
            for (uint32_t w = 1; w < b->workers; w++)
                for (size_t k = 0; k < values; k++)
                    row[k] += __builtin_bswap32(packet[w * values + k]);
            for (size_t k = 0; k < values; k++)
                sum[k] = __builtin_bswap32(row[k]);
            for (uint32_t w = 1; w < b->workers; w++)
                memcpy(sum + w * values, sum, 4 * values);
            __asm__ volatile("" ::: "memory");
        }
    return cpu_time() - start;
}
