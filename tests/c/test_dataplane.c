/* The data plane under sanitizers: packets flow while two threads post commands, some with deadlines that cannot be met, and
 * the thread is stopped and started again.
 *
 * usage: test_dataplane ROUNDS
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "switch.h"

extern const struct ina_program ina_program;

enum { PORTS = 2, COMMANDS = 1000 };
static const uint64_t SECONDS_60 = 60000000000000u;

struct world {
    struct ina_port *pair[PORTS][2];
    struct ina_dataplane *dp;
    atomic_int stop;
    uint64_t received;
};

static void check(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "broken: %s\n", what);
    exit(1);
}

static void *traffic(void *argument)
{
    struct world *w = argument;
    struct ina_packet pkts[32];
    while (!w->stop) {
        int n = ina_port_tx_get(w->pair[0][1], pkts, 8), received = 0;
        for (int i = 0; i < n; i++) {
            memset(pkts[i].data, 0, 60);
            pkts[i].data[14] = 2; /* multicast to group 1 */
            pkts[i].data[15] = 1;
            pkts[i].len = pkts[i].wire_len = 60;
        }
        ina_port_tx_put(w->pair[0][1], pkts, n, 0);
        for (int p = 0; p < PORTS; p++) {
            n = ina_port_rx(w->pair[p][1], pkts, 32, 0);
            ina_port_rx_done(w->pair[p][1], n);
            received += n;
        }
        w->received += (uint64_t)received;
        if (!received)
            ina_port_wait(w->pair[0][1], 1000000000u);
    }
    return NULL;
}

static void *control(void *argument)
{
    struct world *w = argument;
    uint64_t before = 0;
    for (int i = 0; i < COMMANDS; i++) {
        struct ina_switch_port_stats stats = {0};
        struct ina_replica members[PORTS] = {{0, 1}, {1, 2}};
        struct ina_command commands[3] = {
            {.op = INA_SET_GROUP, .id = 1, .count = 1 + (uint32_t)i % PORTS, .data = members},
            {.op = INA_SET_GROUP, .id = 0},
            {.op = INA_READ_PORT, .id = 0, .data = &stats},
        };
        int hopeless = i % 50 == 0, stop_on_error = i % 2;
        int result = ina_dataplane_call(w->dp, commands, 3, stop_on_error, hopeless ? 1000 : SECONDS_60);
        check(!result || (hopeless && result == -ETIMEDOUT), "a call returns in time");
        if (result)
            continue;
        check(!commands[0].result && commands[1].result == -EINVAL, "results of a batch");
        check(commands[2].result == (stop_on_error ? -ECANCELED : 0), "what follows an error");
        check(stop_on_error || stats.rx_packets >= before, "counters grow");
        before = stop_on_error ? before : stats.rx_packets;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 3;
    struct world w = {0};
    struct {
        struct ina_table table;
        uint32_t bucket[2];
    } image = {{.kind = INA_MATCH_EXACT, .key_words = 1, .param_offset = 1, .entry_bytes = 24}, {~0u, ~0u}};
    struct ina_tables *tables = calloc(1, sizeof *tables + sizeof(void *));
    tables->count = 1;
    tables->table[0] = &image.table;
    struct ina_switch *sw = ina_switch_create(&ina_program, tables, NULL);
    check(sw != NULL, "create");
    for (uint32_t p = 0; p < PORTS; p++) {
        check(!ina_port_mem_pair(64, 256, w.pair[p]), "mem pair");
        struct ina_command add = {.op = INA_ADD_PORT, .id = p, .port = w.pair[p][0]};
        check(!ina_switch_execute(sw, &add), "add port");
    }
    struct ina_dataplane_config config = {.yields = 2};
    for (int round = 0; round < rounds; round++) {
        pthread_t threads[3];
        w.dp = ina_dataplane_start(sw, &config);
        check(w.dp != NULL, "start");
        w.stop = 0;
        uint64_t before = w.received;
        pthread_create(&threads[0], NULL, traffic, &w);
        pthread_create(&threads[1], NULL, control, &w);
        pthread_create(&threads[2], NULL, control, &w);
        pthread_join(threads[1], NULL);
        pthread_join(threads[2], NULL);
        w.stop = 1;
        pthread_join(threads[0], NULL);
        check(w.received > before, "packets flow");
        check(!ina_dataplane_stop(w.dp, SECONDS_60), "stop in time");
    }
    ina_switch_destroy(sw);
    for (int p = 0; p < PORTS; p++) {
        ina_port_close(w.pair[p][0]);
        ina_port_close(w.pair[p][1]);
    }
    free(tables);
    return 0;
}
