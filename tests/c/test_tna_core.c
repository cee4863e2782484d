/* TNA's runtime under sanitizers: random packets ask tna_probe.c for everything there is, in and out of both pipes, over
 * links, loopback ports and the callback, while groups, LAGs, prunes, sessions and ports change. No buffer may leak, and
 * images that point outside themselves are refused.
 *
 * usage: test_tna_core ROUNDS SEED
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"
#include "rounds.h"
#include "table.h"
#include "tna_switch.h"

extern const struct ina_program ina_program;

static const uint16_t PORTS[] = {0, 1, 2, 128, 129, 200};
enum { N_PORTS = sizeof PORTS / sizeof *PORTS, OPERATIONS = 34 };

static uint64_t delivered;

static void output(void *context, uint16_t port, const struct ina_packet *pkt, uint64_t now)
{
    (void)context, (void)now, (void)port;
    volatile uint8_t first = pkt->data[0], last = pkt->data[pkt->len - 1]; /* must be readable */
    (void)first, (void)last;
    delivered++;
}

static int command(struct ina_switch *sw, struct ina_command c)
{
    return ina_switch_execute(sw, &c);
}

static uint16_t some_port(void)
{
    return pick(8) ? PORTS[pick(N_PORTS)] : pick(2) ? (uint16_t)(68 + pick(4) + 128 * pick(2)) : (uint16_t)pick(512);
}

static void set_group(struct ina_switch *sw, uint32_t id)
{
    uint32_t image[400], words = 0, branches = pick(5);
    image[words++] = branches;
    words += branches;
    for (uint32_t b = 0; b < branches; b++) {
        const uint32_t by_hash = pick(2), choices = by_hash ? 1 + pick(4) : 1, at = words;
        image[1 + b] = at;
        image[words++] = pick(3) | pick(2) << 16 | by_hash << 17;
        image[words++] = choices;
        words += choices;
        for (uint32_t c = 0; c < choices; c++) {
            image[at + 2 + c] = pick(4) ? words : 0;
            if (!image[at + 2 + c])
                continue;
            const uint32_t ports = pick(6), lags = pick(3);
            image[words++] = pick(4);
            image[words++] = ports;
            image[words++] = lags;
            for (uint32_t p = 0; p < ports; p++)
                image[words++] = some_port();
            for (uint32_t l = 0; l < lags; l++)
                image[words++] = pick(4);
        }
    }
    check(!command(sw, (struct ina_command){.op = INA_TNA_SET_GROUP, .id = id, .count = words, .data = image}), "a group");
    /* damaged anywhere, it is refused or harmless */
    uint32_t *damaged = malloc(words * sizeof *damaged);
    memcpy(damaged, image, words * sizeof *damaged);
    damaged[pick(words)] = pick(2) ? pick(600) : (uint32_t)rng;
    if (command(sw, (struct ina_command){.op = INA_TNA_SET_GROUP, .id = 60 + pick(3), .count = words - pick(words), .data = damaged}))
        command(sw, (struct ina_command){.op = INA_TNA_SET_GROUP, .id = 60});
    free(damaged);
}

/* Something of a packet generator, right or wrong. */
static void generator(struct ina_switch *sw, bool off)
{
    struct ina_tna_app app = {.timer_ps = pick(5000000), .packet_gap_ps = pick(2) * pick(100000), .batches = pick(4),
                              .batch_gap_ps = pick(2) * pick(1000000), .packets = pick(6), .at = pick(18000),
                              .length = pick(3) ? pick(300) : pick(20000), .mask = pick(2) ? 0 : 0xff000000,
                              .port = (uint16_t)pick(130), .trigger = (uint8_t)pick(5), .enabled = !off && pick(3),
                              .increment = (uint8_t)pick(2)};
    static uint8_t packet[INA_TNA_PKTGEN_BUFFER];
    memset(packet, 1, sizeof packet);
    switch (off ? 0 : pick(5)) {
    case 0:
        if (off)
            app.batches = app.packets = 1, app.length = 0, app.at = 0, app.port = 68, app.trigger = 0;
        for (unsigned id = off ? 0 : pick(18), last = off ? 15 : id; id <= last; id++)
            check(!command(sw, (struct ina_command){.op = INA_TNA_SET_APP, .id = id, .data = &app}) || !off, "an application");
        break;
    case 1: {
        struct ina_tna_app_counters counters = {0};
        command(sw, (struct ina_command){.op = INA_TNA_READ_APP, .id = pick(18), .data = &counters, .count = pick(2)});
        break;
    }
    case 2:
        command(sw, (struct ina_command){.op = INA_TNA_SET_PKTGEN_BUFFER, .id = pick(3), .data = packet, .count = pick(17000),
                                         .offset = pick(17000)});
        break;
    case 3:
        command(sw, (struct ina_command){.op = INA_TNA_SET_PKTGEN_PORT, .id = pick(2) ? 68 + 128 * pick(2) : some_port(),
                                         .count = pick(8)});
        break;
    default:
        command(sw, (struct ina_command){.op = INA_TNA_SET_PKTGEN_PORT, .id = PORTS[pick(N_PORTS)],
                                         .count = INA_TNA_PKTGEN_CLEAR});
        const uint16_t port = PORTS[pick(N_PORTS)];
        check(!command(sw, (struct ina_command){.op = INA_TNA_SET_ENABLED, .id = port, .count = 0}), "a port goes down");
        check(!command(sw, (struct ina_command){.op = INA_TNA_SET_ENABLED, .id = port, .count = 1}), "a port comes up");
    }
}

static void change(struct ina_switch *sw)
{
    uint16_t ports[8];
    for (unsigned i = 0; i < 8; i++)
        ports[i] = some_port();
    switch (pick(7)) {
    case 0:
        set_group(sw, pick(5));
        break;
    case 1:
        command(sw, (struct ina_command){.op = INA_TNA_SET_GROUP, .id = pick(5)});
        break;
    case 2:
        check(!command(sw, (struct ina_command){.op = INA_TNA_SET_LAG, .id = pick(4), .count = pick(8), .data = ports,
                                                .offset = pick(2), .stride = pick(2)}), "a LAG");
        break;
    case 3:
        check(!command(sw, (struct ina_command){.op = INA_TNA_SET_PRUNE, .id = pick(4), .count = pick(8), .data = ports}), "a prune");
        break;
    case 4: {
        struct ina_tna_port port = {.backup = some_port(), .down = (uint8_t)!pick(4)};
        check(!command(sw, (struct ina_command){.op = INA_TNA_SET_PORT, .id = some_port(), .data = &port}), "a port");
        struct ina_tna_replication replication = {(uint16_t)pick(4), some_port(), (uint8_t)pick(2)};
        check(!command(sw, (struct ina_command){.op = INA_TNA_SET_REPLICATION, .data = &replication}), "replication");
        break;
    }
    case 5: {
        struct ina_tna_session session = {.enabled = pick(8) != 0, .directions = (uint8_t)pick(4), .max_len = pick(2) * pick(100)};
        session.to.has_ucast = (uint8_t)pick(2);
        session.to.ucast_egress_port = some_port();
        session.to.has_mcast_a = (uint8_t)pick(2);
        session.to.mcast_grp_a = (uint16_t)pick(6);
        session.to.copy_to_cpu = (uint8_t)pick(2);
        check(!command(sw, (struct ina_command){.op = INA_TNA_SET_SESSION, .id = 1 + pick(5), .data = &session}), "a session");
        break;
    }
    default:
        check(!command(sw, (struct ina_command){.op = INA_TNA_SET_LOOPBACK, .id = 2, .count = pick(2)}), "loopback");
    }
}

int main(int argc, char **argv)
{
    unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 20000;
    rng = argc > 2 ? (uint64_t)atoll(argv[2]) : 1;
    struct ina_switch_config config = {.buffer = 6000, .reentries = 20, .max_frame = 1600, .max_passes = 6, .digests = 7};
    struct ina_switch *sw = ina_switch_create(&ina_program, NULL, &config);
    check(sw != NULL, "create");
    ina_switch_set_output(sw, output, NULL);
    for (unsigned p = 0; p < N_PORTS; p++) {
        struct ina_link_config link = {.rate_bps = 1000000000u, .delay_ps = 3000000, .queue_bytes = 4000, .ecn_bytes = 300};
        check(!command(sw, (struct ina_command){.op = INA_ADD_PORT, .id = PORTS[p], .link = p % 3 == 1 ? &link : NULL}), "add port");
    }
    check(command(sw, (struct ina_command){.op = INA_ADD_PORT, .id = 256}) == -22, "a port of no pipe");

    uint64_t now = 0;
    for (unsigned round = 0; round < rounds; round++) {
        now += pick(2000000);
        if (!pick(4))
            change(sw);
        if (!pick(4))
            generator(sw, false);
        if (!pick(3))
            ina_switch_poll(sw, now);
        static uint8_t memory[INA_BATCH][INA_HEADROOM + 1600];
        struct ina_packet pkts[INA_BATCH] = {{0}};
        const unsigned n = 1 + pick(20);
        for (unsigned i = 0; i < n; i++) {
            uint8_t *data = memory[i] + INA_HEADROOM;
            const uint32_t len = pick(50) ? 15 + pick(pick(8) ? 200 : 1500) : 1 + pick(20);
            pkts[i] = (struct ina_packet){.data = data, .len = len, .wire_len = len, .headroom = INA_HEADROOM,
                                          .tailroom = 1600 - len, .ingress_port = some_port()};
            memset(data, 0, len);
            for (uint32_t at = 14, left = pick(6); left-- && at + 3 < len; at += 3) {
                data[at] = (uint8_t)(pick(3) ? 1 + pick(OPERATIONS) : 1);
                const uint16_t argument = data[at] == 1 ? some_port() : data[at] == 11 ? (uint16_t)(pick(4) ? 0 : pick(8)) : (uint16_t)pick(6);
                data[at + 1] = (uint8_t)(argument >> 8);
                data[at + 2] = (uint8_t)argument;
            }
        }
        ina_switch_input(sw, pkts, n, now);
    }
    generator(sw, true);
    uint64_t generated = 0;
    for (unsigned id = 0; id < 16; id++) {
        struct ina_tna_app_counters counters;
        check(!command(sw, (struct ina_command){.op = INA_TNA_READ_APP, .id = id, .data = &counters}), "counters");
        generated += counters.packets;
    }
    check(generated > rounds / 100, "packets were generated");
    for (uint64_t due; (due = ina_switch_next_due(sw)) != UINT64_MAX;)
        ina_switch_poll(sw, due > now ? due : now);
    check(!ina_pool_used(&sw->buffers) && !sw->waiting_bytes, "every buffer is free again");
    check(delivered > rounds, "frames were sent");
    uint64_t drops[INA_DROP_REASONS] = {0};
    for (unsigned p = 0; p < INA_SWITCH_PORTS; p++)
        for (unsigned r = 0; r < INA_DROP_REASONS; r++)
            drops[r] += sw->ports[p].stats.drops[r];
    for (unsigned r = 0; r < INA_DROP_REASONS; r++)
        if (!drops[r] && r != INA_DROPPED_BACK_PRESSURE && r != INA_DROPPED_TOO_LONG && r != INA_DROPPED_NO_MEMORY) {
            fprintf(stderr, "broken: no drop for reason %u\n", r);
            return 1;
        }
    ina_switch_destroy(sw);
    return 0;
}
