/* The switch core under sanitizers: random packets ask the probe program for everything there is, over mem ports, links and
 * the callback, while ports, groups and sessions come and go. Nothing may be lost uncounted and no buffer may leak.
 *
 * usage: test_switch_core ROUNDS SEED
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"
#include "rounds.h"
#include "table.h"

extern const struct ina_program ina_program;

enum { PORTS = 6, HOSTS = 3 /* ports 0..2 are mem ports, 3..4 have links, 5 is the callback */ };

static uint64_t delivered;

static void output(void *context, uint16_t port, const struct ina_packet *pkt, uint64_t now)
{
    (void)context, (void)now;
    check(port >= HOSTS && port < PORTS, "output on a port without memory of its own");
    volatile uint8_t last = pkt->data[pkt->len - 1]; /* must be readable */
    (void)last;
    delivered++;
}

static void command(struct ina_switch *sw, struct ina_command c, int expected)
{
    int result = ina_switch_execute(sw, &c);
    if (result != expected) {
        fprintf(stderr, "command %u: %d, expected %d\n", c.op, result, expected);
        exit(1);
    }
}

static void set_members(struct ina_switch *sw, uint32_t op, uint32_t id)
{
    struct ina_replica replicas[200];
    uint32_t n = 1 + pick(pick(4) ? 6 : 200);
    for (uint32_t i = 0; i < n; i++)
        replicas[i] = (struct ina_replica){(uint16_t)pick(PORTS + 1), (uint16_t)i};
    command(sw, (struct ina_command){.op = op, .id = id, .count = n, .data = replicas, .size = pick(2) * pick(80)}, 0);
}

static void add_link_port(struct ina_switch *sw, uint32_t id)
{
    struct ina_link_config link = {
        .rate_bps = pick(2) * 1000000000u, .delay_ps = pick(2) * 3000000u, .queue_bytes = pick(2) * 900, .ecn_bytes = 300};
    command(sw, (struct ina_command){.op = INA_ADD_PORT, .id = id, .link = &link}, 0);
}

int main(int argc, char **argv)
{
    unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 20000;
    rng = argc > 2 ? (uint64_t)atoll(argv[2]) : 1;

    struct {
        struct ina_table table;
        uint32_t bucket[2];
    } image = {{.kind = INA_MATCH_EXACT, .key_words = 1, .param_offset = 1, .entry_bytes = 24, .default_action = 1,
                .default_params = {5}}, {~0u, ~0u}};
    struct ina_tables *tables = malloc(sizeof *tables + sizeof(void *));
    tables->count = 1;
    tables->reserved = 0;
    tables->table[0] = &image.table;
    struct ina_switch_config config = {.buffer = 3000, .reentries = 20, .max_frame = 1600, .max_passes = 9, .digests = 7, .seed = 3};
    struct ina_switch *sw = ina_switch_create(&ina_program, tables, &config);
    check(sw != NULL, "create");
    ina_switch_set_output(sw, output, NULL);

    struct ina_port *pair[HOSTS][2];
    for (uint32_t p = 0; p < HOSTS; p++) {
        check(!ina_port_mem_pair(32, 1600, pair[p]), "mem pair");
        command(sw, (struct ina_command){.op = INA_ADD_PORT, .id = p, .port = pair[p][0]}, 0);
    }
    add_link_port(sw, 3);
    add_link_port(sw, 4);
    command(sw, (struct ina_command){.op = INA_ADD_PORT, .id = 5}, 0);

    uint64_t now = 0, received = 0;
    struct ina_packet pkts[INA_BATCH];
    for (unsigned round = 0; round < rounds; round++) {
        now += pick(2000000);
        switch (pick(12)) {
        case 0:
            set_members(sw, INA_SET_GROUP, 1 + pick(4));
            break;
        case 1:
            set_members(sw, INA_SET_SESSION, 1 + pick(4));
            break;
        case 2:
            if (pick(4) == 0) {
                uint32_t id = 3 + pick(2);
                command(sw, (struct ina_command){.op = INA_REMOVE_PORT, .id = id}, 0);
                add_link_port(sw, id);
            }
            break;
        case 3:
            ina_switch_poll(sw, now);
            break;
        default: {
            uint32_t p = pick(HOSTS);
            unsigned n = (unsigned)ina_port_tx_get(pair[p][1], pkts, (int)(1 + pick(20)));
            for (unsigned i = 0; i < n; i++) {
                pkts[i].len = pick(50) ? 18 + pick(pick(8) ? 200 : 1582) : pick(2) ? 1 + pick(18) : 1600 - pick(4);
                pkts[i].wire_len = pkts[i].len;
                memset(pkts[i].data, 0, pkts[i].len);
                if (pkts[i].len >= 34) {
                    pkts[i].data[14] = (uint8_t)pick(8);
                    pkts[i].data[15] = (uint8_t)pick(7);
                    pkts[i].data[16] = (uint8_t)pick(8);
                    pkts[i].data[17] = (uint8_t)pick(7);
                }
            }
            ina_port_tx_put(pair[p][1], pkts, (int)n, now);
            n = (unsigned)ina_port_rx(pair[p][0], pkts, INA_BATCH, now);
            for (unsigned i = 0; i < n; i++)
                pkts[i].ingress_port = (uint16_t)p;
            ina_switch_input(sw, pkts, n, now);
            ina_port_rx_done(pair[p][0], (int)n);
        }
        }
        uint32_t p = pick(HOSTS);
        int n = ina_port_rx(pair[p][1], pkts, INA_BATCH, now);
        ina_port_rx_done(pair[p][1], n);
        received += (uint64_t)n;
    }
    for (uint64_t due; (due = ina_switch_next_due(sw)) != UINT64_MAX;)
        ina_switch_poll(sw, due > now ? due : now);
    for (uint32_t p = 0; p < HOSTS; p++)
        for (int n; (n = ina_port_rx(pair[p][1], pkts, INA_BATCH, now)) > 0; received += (uint64_t)n)
            ina_port_rx_done(pair[p][1], n);
    check(!ina_pool_used(&sw->buffers) && !sw->waiting_bytes, "every buffer is free again");

    uint64_t sent = 0, drops[INA_DROP_REASONS] = {0};
    for (unsigned p = 0; p < PORTS; p++) {
        struct ina_switch_port_stats stats;
        command(sw, (struct ina_command){.op = INA_READ_PORT, .id = p, .data = &stats}, 0);
        if (p < HOSTS)
            sent += stats.tx_packets;
        for (unsigned r = 0; r < INA_DROP_REASONS; r++)
            drops[r] += stats.drops[r];
    }
    check(sent == received, "what mem ports sent was received");
    check(delivered > 0, "the callback was used");
    for (unsigned r = 0; r < INA_DROP_REASONS; r++)
        /* counters of ports that come and go start again, and mem ports refuse malformed frames first */
        if (!drops[r] && r != INA_DROPPED_TAIL && r != INA_DROPPED_MALFORMED && r != INA_DROPPED_NO_MEMORY) {
            fprintf(stderr, "broken: no drop for reason %u\n", r);
            return 1;
        }
    ina_switch_destroy(sw);
    for (uint32_t p = 0; p < HOSTS; p++) {
        ina_port_close(pair[p][0]);
        ina_port_close(pair[p][1]);
    }
    free(tables);
    return 0;
}
