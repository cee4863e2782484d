/* A shared switch under sanitizers: a thread at each seat, which all run it, and a process that ends in the middle of a packet.
 *
 * The program numbers frames and sends each to all seats: whoever ran it, all get the same numbers in the same order, and none
 * waits for a frame that nobody runs. */
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared.h"

#include <stdlib.h>
#include <string.h>

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            abort(); \
        } \
    } while (0)

enum { SEATS = 4, FRAMES = 5000, AHEAD = 4, RING = 64 /* 2 * SEATS * AHEAD, and more */, BYTES = 64 };
static const uint64_t SECOND = 1000000000000u, FATAL = 99;

struct frame {
    uint8_t ethernet[16];
    uint64_t number, seat, sequence;
};

static void ingress(void *state, const struct ina_tables *tables, struct ina_packet *pkts, unsigned n, uint64_t now)
{
    uint64_t *count = state;
    (void)tables;
    (void)now;
    for (unsigned i = 0; i < n; i++) {
        struct frame frame;
        memcpy(&frame, pkts[i].data, sizeof frame);
        if (frame.seat == FATAL)
            _exit(9);
        frame.number = (*count)++;
        memcpy(pkts[i].data, &frame, sizeof frame);
        pkts[i].verdict = INA_MULTICAST;
        pkts[i].mcast_grp = 1;
    }
}

static void egress(void *state, const struct ina_tables *tables, struct ina_packet *pkts, unsigned n, uint64_t now)
{
    (void)state;
    (void)tables;
    (void)now;
    for (unsigned i = 0; i < n; i++)
        pkts[i].verdict = INA_UNICAST;
}

static const struct ina_program PROGRAM = {
    .abi = INA_PROGRAM_ABI, .architecture = INA_V1MODEL, .flags = INA_PROGRAM_READS_META, .pipeline = "", .name = "numbers",
    .source_hash = "numbers", .p4info = "{}", .layout = "{}", .state_size = 64, .stats_offset = 64, .meta_size = 64,
    .ingress = ingress, .egress = egress};

static int memory;
static struct ina_bells bells[SEATS];

static struct ina_port *open_seat(uint32_t seat, struct ina_shared_turns *turns)
{
    int to_hosts[SEATS];
    for (int i = 0; i < SEATS; i++)
        to_hosts[i] = bells[i].to_host;
    return ina_port_shared_open(memory, &PROGRAM, seat, bells[seat < SEATS ? seat : 0].of_host, to_hosts, turns);
}

static void send_frame(struct ina_port *port, uint64_t seat, uint64_t sequence)
{
    struct ina_packet pkt;
    const struct frame frame = {.seat = seat, .sequence = sequence};
    CHECK(ina_port_tx_get(port, &pkt, 1) == 1);
    memcpy(pkt.data, &frame, sizeof frame);
    pkt.len = BYTES;
    ina_port_tx_put(port, &pkt, 1, ina_now());
}

struct seat {
    uint32_t number;
    struct ina_shared_turns turns;
};

/* Sends FRAMES frames, none of them before those of all seats have come that were AHEAD earlier. */
static void *take_part(void *argument)
{
    struct seat *seat = argument;
    struct ina_port *port = open_seat(seat->number, &seat->turns);
    CHECK(port);
    uint64_t sent = 0, received[SEATS] = {0}, all = 0;
    while (all < (uint64_t)SEATS * FRAMES) {
        uint64_t least = FRAMES;
        for (int i = 0; i < SEATS; i++)
            least = received[i] < least ? received[i] : least;
        while (sent < FRAMES && sent < least + AHEAD)
            send_frame(port, seat->number, sent++);
        struct ina_packet pkts[7];
        const int n = ina_port_rx(port, pkts, 7, ina_now());
        for (int i = 0; i < n; i++) {
            struct frame frame;
            memcpy(&frame, pkts[i].data, sizeof frame);
            CHECK(frame.number == all++);
            CHECK(frame.seat < SEATS && frame.sequence == received[frame.seat]++);
        }
        ina_port_rx_done(port, n);
        if (!n)
            CHECK(ina_port_wait(port, 20 * SECOND) == 1); /* nobody has left a frame to nobody */
    }
    CHECK(!port->stats.rx_malformed && !port->stats.errors);
    ina_port_close(port);
    return NULL;
}

static struct ina_shared *make(struct ina_switch *sw)
{
    const struct ina_shared_config config = {.seats = SEATS, .frames = RING, .max_frame = BYTES};
    memory = ina_shared_create(sw, &config);
    CHECK(memory >= 0);
    struct ina_shared *shared = ina_shared_map(memory);
    CHECK(shared && ina_shared_holder(shared) == -1);
    return shared;
}

static void test_turns(struct ina_switch *sw)
{
    struct ina_shared *shared = make(sw);
    struct seat seats[SEATS] = {{0}};
    pthread_t threads[SEATS];
    uint64_t packets = 0, sent = 0, counted = 0;
    for (uint32_t i = 0; i < SEATS; i++) {
        seats[i].number = i;
        CHECK(!pthread_create(&threads[i], NULL, take_part, &seats[i]));
    }
    for (uint32_t i = 0; i < SEATS; i++) {
        struct ina_shared_turns turns;
        struct ina_switch_port_stats stats;
        pthread_join(threads[i], NULL);
        CHECK(!ina_shared_read(shared, i, &turns, &stats) && turns.packets == seats[i].turns.packets);
        packets += turns.packets;
    }
    for (uint32_t i = 0; i < SEATS; i++) {
        struct ina_shared_turns turns;
        struct ina_switch_port_stats stats;
        CHECK(!ina_shared_read(shared, i, &turns, &stats) && stats.drops[INA_DROPPED_BACK_PRESSURE] == 0);
        sent += stats.tx_packets;
        counted += stats.rx_packets;
    }
    CHECK(packets == SEATS * FRAMES && counted == packets && sent == SEATS * packets);
    CHECK(*(uint64_t *)ina_shared_state(shared) == packets);
    CHECK(ina_shared_read(shared, SEATS, &seats[0].turns, &(struct ina_switch_port_stats){0}) < 0);
    ina_shared_unmap(shared);
    close(memory);
}

static void test_end_within_a_packet(struct ina_switch *sw)
{
    struct ina_shared *shared = make(sw);
    struct ina_shared_turns turns[2] = {{0}};
    struct ina_packet pkt;
    const pid_t child = fork();
    if (!child) {
        struct ina_port *port = open_seat(2, &turns[0]);
        if (port)
            send_frame(port, FATAL, 0);
        _exit(1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 9);
    CHECK(ina_shared_holder(shared) == 2);
    struct ina_port *port = open_seat(0, &turns[1]);
    CHECK(port);
    send_frame(port, 0, 0);
    CHECK(ina_port_wait(port, SECOND / 100) == 0 && ina_port_rx(port, &pkt, 1, ina_now()) == 0); /* nobody runs it any more */
    CHECK(ina_shared_holder(shared) == 2 && turns[1].turns == 0);
    ina_port_close(port);
    ina_shared_unmap(shared);
    close(memory);
}

static void test_refusals(struct ina_switch *sw)
{
    struct ina_shared *shared = make(sw);
    struct ina_shared_turns turns;
    struct ina_program other = PROGRAM;
    int to_hosts[SEATS] = {-1, -1, -1, -1};
    other.source_hash = "letters";
    CHECK(!open_seat(SEATS, &turns) && !ina_port_shared_open(memory, &other, 0, bells[0].of_host, to_hosts, &turns));
    other = PROGRAM;
    other.state_size = 128;
    CHECK(!ina_port_shared_open(memory, &other, 0, bells[0].of_host, to_hosts, &turns));
    other = PROGRAM;
    other.table_count = 1;
    CHECK(!ina_port_shared_open(memory, &other, 0, bells[0].of_host, to_hosts, &turns));
    CHECK(!ina_port_shared_open(0, &PROGRAM, 0, bells[0].of_host, to_hosts, &turns) && !ina_shared_map(0));
    const struct ina_shared_config wrong[] = {{.seats = 0, .frames = RING, .max_frame = BYTES},
                                              {.seats = INA_SHARED_SEATS + 1, .frames = RING, .max_frame = BYTES},
                                              {.seats = 1, .frames = 3, .max_frame = BYTES}};
    for (int i = 0; i < 3; i++)
        CHECK(ina_shared_create(sw, &wrong[i]) < 0);
    ina_shared_unmap(shared);
    close(memory);
}

int main(void)
{
    struct ina_switch *sw = ina_switch_create(&PROGRAM, NULL, NULL);
    struct ina_replica replicas[SEATS];
    for (uint16_t i = 0; i < SEATS; i++) {
        replicas[i] = (struct ina_replica){i, i};
        CHECK(!ina_bells_create(&bells[i]));
    }
    struct ina_command command = {.op = INA_SET_GROUP, .id = 1, .count = SEATS, .data = replicas};
    CHECK(sw && !ina_switch_execute(sw, &command));
    test_refusals(sw);
    test_end_within_a_packet(sw);
    test_turns(sw);
    for (int i = 0; i < SEATS; i++)
        ina_bells_close(&bells[i]);
    ina_switch_destroy(sw);
    return 0;
}
