/* A switch of one job in C, for tests of the compiled host side alone: the rules of tests/model_switch.py, no more. */
#ifndef MODEL_SWITCH_H
#define MODEL_SWITCH_H

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "protocols.h"
#include "wire.h"

struct model_row {
    uint32_t tsi, seen, check0, check1;
    int8_t exponent;
    uint8_t used, overflow;
    int32_t *values;
};

struct model_switch {
    uint32_t workers, values, slots;
    struct ina_address worker[INA_MAX_WORKERS], self;
    struct model_row *rows;
    int32_t *memory;
};

static inline void model_switch_init(struct model_switch *m, const struct ina_worker_config *configs)
{
    *m = (struct model_switch){.workers = configs->workers, .values = configs->values, .slots = configs->slots,
                               .self = configs->peer};
    for (uint32_t i = 0; i < m->workers; i++)
        m->worker[i] = configs[i].self;
    m->rows = calloc(2 * m->slots, sizeof *m->rows);
    m->memory = calloc((size_t)2 * m->slots * m->values, 4);
    for (uint32_t i = 0; i < 2 * m->slots; i++)
        m->rows[i].values = m->memory + (size_t)i * m->values;
}

static inline void model_switch_free(struct model_switch *m)
{
    free(m->rows);
    free(m->memory);
}

/* Takes the frame of a worker and turns it into the answer. Returns the bitmap of workers that get it (model_address
 * makes it theirs), 0: absorbed or stale. */
static inline uint32_t model_switch_process(struct model_switch *m, uint32_t worker, struct ina_packet *pkt)
{
    struct ina_wire_frame *h = (struct ina_wire_frame *)pkt->data;
    const uint32_t set_slot = ntohs(h->set_slot), tsi = ntohl(h->tsi), full = (uint32_t)((1ull << m->workers) - 1);
    const int bare = (h->type_overflow_size & INA_WIRE_SIZE) == INA_WIRE_SIZE_NONE;
    struct model_row *row = &m->rows[(set_slot & INA_WIRE_SLOT) * 2 + (set_slot >> 15)];

    if (!row->used || row->tsi != tsi) {
        if (row->used && (row->seen != full || (int32_t)(tsi - row->tsi) <= 0))
            return 0;
        *row = (struct model_row){.tsi = tsi, .exponent = -128, .used = 1, .values = row->values};
    }
    const int maximum = h->type_overflow_size >> 4 == INA_WIRE_MAXIMUM;
    uint32_t to = 1u << worker;
    if (!(row->seen & to)) {
        int32_t *values = row->values;
        uint32_t overflow = 0;
        for (uint32_t i = 0; !bare && i < m->values; i++) {
            uint32_t v;
            memcpy(&v, h->payload + 4 * i, 4);
            const uint32_t a = row->seen ? (uint32_t)values[i] : 0, b = ntohl(v), sum = a + b;
            overflow |= maximum ? 0 : (a ^ sum) & (b ^ sum);
            values[i] = maximum && row->seen ? ((int32_t)b > values[i] ? (int32_t)b : values[i]) : (int32_t)sum;
        }
        row->overflow |= overflow >> 31;
        row->check0 += ntohl(h->check.check0);
        row->check1 += ntohl(h->check.check1);
        row->exponent = h->e0 > row->exponent ? h->e0 : row->exponent;
        row->seen |= to;
        if (row->seen != full)
            return 0;
        to = full;
    }
    if (row->seen != full) {
        const uint32_t missing = htonl(full & ~row->seen);
        h->type_overflow_size = INA_WIRE_PENDING << 4 | INA_WIRE_SIZE_NONE;
        memcpy(h->payload, &missing, 4);
        pkt->len = INA_WIRE_PAYLOAD + 4;
        h->check.check0 = h->check.check1 = 0;
    } else {
        h->check.check0 = htonl(row->check0);
        h->check.check1 = htonl(row->check1);
        h->type_overflow_size |= row->overflow ? INA_WIRE_OVERFLOW : 0;
        h->e0 = row->exponent;
        for (uint32_t i = 0; !bare && i < m->values; i++) {
            const uint32_t v = htonl((uint32_t)row->values[i]);
            memcpy(h->payload + 4 * i, &v, 4);
        }
    }
    h->check.headers = 0;
    h->check.headers = ina_internet_checksum(&h->type_overflow_size, INA_WIRE_PAYLOAD - INA_INTERNET_SIZE);
    h->net.total_len = htons((uint16_t)(pkt->len - INA_INTERNET_IP));
    h->net.udp_len = htons((uint16_t)(pkt->len - INA_INTERNET_UDP));
    return to;
}

static inline void model_address(const struct model_switch *m, uint32_t worker, struct ina_packet *pkt)
{
    struct ina_wire_frame *h = (struct ina_wire_frame *)pkt->data;
    h->net.src_ip = htonl(m->self.ip);
    h->net.src_port = htons(m->self.port);
    h->net.dst_ip = htonl(m->worker[worker].ip);
    h->net.dst_port = htons(m->worker[worker].port);
}

static inline struct ina_worker_config model_config(uint32_t worker, uint32_t workers, uint32_t slots, uint32_t values)
{
    return (struct ina_worker_config){
        .self = {{0, 0, 0, 0, 0, (uint8_t)(worker + 1)}, 4000, 0x0a000001 + worker},
        .peer = {{2, 0, 0, 0, 0xff, 0xfe}, 0xbee0, 0x0a00fffe},
        .life = 1, .worker = worker, .workers = workers, .slots = slots, .values = values,
        .rto_min_ps = 1000000000, .rto_max_ps = 100000000000, .timeout_ps = 10000000000000,
    };
}

#endif
