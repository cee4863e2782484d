/* A shared switch under sanitizers: a thread at each seat, which all run it, and a process that ends in the middle of a packet. With
 * "turns N": the threads alone, N frames of each. With "steps N": a process that runs it is killed, and stopped, after each of its
 * instructions, or each N-th.
 *
 * The program numbers frames and sends each to all seats: whoever ran it, all get the same numbers in the same order, and none
 * waits for a frame that nobody runs. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
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

enum { SEATS = 4, AHEAD = 4, RING = 64 /* 2 * SEATS * AHEAD, and more */, BYTES = 64 };
static const uint64_t SECOND = 1000000000000u, FATAL = 99;
static uint64_t frames = 5000; /* of each seat */

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

static struct ina_port *open_seat(uint32_t seat, struct ina_shared_own *own)
{
    int to_hosts[SEATS];
    for (int i = 0; i < SEATS; i++)
        to_hosts[i] = bells[i].to_host;
    return ina_port_shared_open(memory, &PROGRAM, seat, bells[seat < SEATS ? seat : 0].of_host, to_hosts, own);
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
    struct ina_shared_own own;
};

/* Sends its frames, none of them before those of all seats have come that were AHEAD earlier. */
static void *take_part(void *argument)
{
    struct seat *seat = argument;
    struct ina_port *port = open_seat(seat->number, &seat->own);
    CHECK(port);
    uint64_t sent = 0, received[SEATS] = {0}, all = 0;
    while (all < SEATS * frames) {
        uint64_t least = frames;
        for (int i = 0; i < SEATS; i++)
            least = received[i] < least ? received[i] : least;
        while (sent < frames && sent < least + AHEAD)
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
        CHECK(!ina_shared_read(shared, i, &turns, &stats) && turns.packets == seats[i].own.turns.packets);
        packets += turns.packets;
    }
    for (uint32_t i = 0; i < SEATS; i++) {
        struct ina_shared_turns turns;
        struct ina_switch_port_stats stats;
        CHECK(!ina_shared_read(shared, i, &turns, &stats) && stats.drops[INA_DROPPED_BACK_PRESSURE] == 0);
        sent += stats.tx_packets;
        counted += stats.rx_packets;
    }
    CHECK(packets == SEATS * frames && counted == packets && sent == SEATS * packets);
    CHECK(*(uint64_t *)ina_shared_state(shared) == packets);
    CHECK(ina_shared_read(shared, SEATS, &seats[0].own.turns, &(struct ina_switch_port_stats){0}) < 0);
    ina_shared_unmap(shared);
    close(memory);
}

static void test_end_within_a_packet(struct ina_switch *sw)
{
    struct ina_shared *shared = make(sw);
    struct ina_shared_own owns[2] = {{.kept_by = 0}};
    struct ina_packet pkt;
    const pid_t child = fork();
    if (!child) {
        struct ina_port *port = open_seat(2, &owns[0]);
        if (port)
            send_frame(port, FATAL, 0);
        _exit(1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 9);
    CHECK(ina_shared_holder(shared) == 2);
    struct ina_port *port = open_seat(0, &owns[1]);
    CHECK(port);
    send_frame(port, 0, 0);
    CHECK(ina_port_wait(port, SECOND / 100) == 0 && ina_port_rx(port, &pkt, 1, ina_now()) == 0); /* nobody runs it any more */
    CHECK(ina_shared_holder(shared) == 2 && owns[1].turns.turns == 0 && owns[1].kept_by == 3);
    ina_port_close(port);
    ina_shared_unmap(shared);
    close(memory);
}

static void test_refusals(struct ina_switch *sw)
{
    struct ina_shared *shared = make(sw);
    struct ina_shared_own own;
    struct ina_program other = PROGRAM;
    int to_hosts[SEATS] = {-1, -1, -1, -1};
    other.source_hash = "letters";
    CHECK(!open_seat(SEATS, &own) && !ina_port_shared_open(memory, &other, 0, bells[0].of_host, to_hosts, &own));
    other = PROGRAM;
    other.state_size = 128;
    CHECK(!ina_port_shared_open(memory, &other, 0, bells[0].of_host, to_hosts, &own));
    other = PROGRAM;
    other.table_count = 1;
    CHECK(!ina_port_shared_open(memory, &other, 0, bells[0].of_host, to_hosts, &own));
    CHECK(!ina_port_shared_open(0, &PROGRAM, 0, bells[0].of_host, to_hosts, &own) && !ina_shared_map(0));
    const struct ina_shared_config wrong[] = {{.seats = 0, .frames = RING, .max_frame = BYTES},
                                              {.seats = INA_SHARED_SEATS + 1, .frames = RING, .max_frame = BYTES},
                                              {.seats = 1, .frames = 3, .max_frame = BYTES}};
    for (int i = 0; i < 3; i++)
        CHECK(ina_shared_create(sw, &wrong[i]) < 0);
    ina_shared_unmap(shared);
    close(memory);
}

/* ---- ends and stops at every instruction --------------------------------------------------------------------------------- */

enum { OTHER = 2 /* the seat of the process that ends or stops */, BOTH = 1 | 1 << OTHER };

/* Receives what there is; returns the seats whose frame has come. Numbers are in order, and each frame comes once, whole. */
static unsigned collect(struct ina_port *port, unsigned seats)
{
    struct ina_packet pkt;
    while (ina_port_rx(port, &pkt, 1, ina_now()) == 1) {
        struct frame frame;
        memcpy(&frame, pkt.data, sizeof frame);
        CHECK(pkt.len == BYTES && frame.number == (seats != 0) && (frame.seat == 0 || frame.seat == OTHER));
        CHECK(!(seats >> frame.seat & 1) && frame.sequence == 0);
        seats |= 1u << frame.seat;
        ina_port_rx_done(port, 1);
    }
    return seats;
}

/* A process at seat OTHER that stops when it is about to send a frame, and when it has. 0: it may not be traced here. */
static pid_t start_traced(void)
{
    const pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        struct ina_shared_own own;
        struct ina_port *port = open_seat(OTHER, &own);
        if (!port || ptrace(PTRACE_TRACEME, 0, NULL, NULL))
            _exit(port ? 77 : 1);
        raise(SIGSTOP);
        send_frame(port, OTHER, 0);
        raise(SIGSTOP);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && (WIFSTOPPED(status) || WEXITSTATUS(status) == 77));
    return WIFSTOPPED(status) ? child : 0;
}

/* False: it has come to its next stop. */
static bool go_on(pid_t child, int one_step)
{
    int status;
    CHECK(!ptrace(one_step ? PTRACE_SINGLESTEP : PTRACE_CONT, child, NULL, NULL));
    CHECK(waitpid(child, &status, 0) == child && WIFSTOPPED(status));
    return WSTOPSIG(status) == SIGTRAP;
}

static void end(pid_t child)
{
    int status;
    CHECK(!kill(child, SIGKILL) && waitpid(child, &status, 0) == child && WIFSIGNALED(status));
}

struct outcomes {
    unsigned dead, nameless, untouched, run, taken_over, complete, held;
};

/* The process has ended: either its switch is dead for ever, or all frames are run, once. */
static void check_end(struct ina_shared *shared, struct ina_port *port, const struct ina_shared_own *own, struct outcomes *found)
{
    const unsigned before = collect(port, 0);
    CHECK(!(before & 1));
    const uint64_t ran = own->turns.packets;
    send_frame(port, 0, 0);
    const unsigned seats = collect(port, before);
    const uint64_t count = *(uint64_t *)ina_shared_state(shared);
    if (!(seats & 1)) {
        CHECK(ina_shared_holder(shared) == OTHER || ina_shared_holder(shared) == -1);
        CHECK(own->turns.packets == ran && collect(port, seats) == seats && ina_port_arm(port) == 0);
        found->dead++;
        found->nameless += ina_shared_holder(shared) == -1; /* it had just taken the lock, or was about to give it back */
        return;
    }
    CHECK(count == (seats == BOTH ? 2 : 1) && ina_shared_holder(shared) == -1);
    found->run += before != 0;
    found->taken_over += !before && seats == BOTH;
    found->untouched += seats == 1;
}

/* The process stands still: this one neither waits for it nor runs what it runs, and sleeps; once the other goes on, all frames are
 * run, and this one has been woken up. */
static void check_stop(struct ina_shared *shared, struct ina_port *port, const struct ina_shared_own *own, pid_t child, bool over,
                       struct outcomes *found)
{
    send_frame(port, 0, 0);
    unsigned seats = collect(port, 0);
    const bool asleep = seats != BOTH && !ina_port_arm(port);
    found->complete += seats == BOTH;
    found->held += !(seats & 1);
    CHECK((seats & 1) || own->kept_by == (uint64_t)(ina_shared_holder(shared) + 1)); /* who keeps it waiting can be named */
    CHECK(over || !go_on(child, 0));
    if (asleep) {
        struct pollfd bell = {.fd = port->fd, .events = POLLIN};
        CHECK(poll(&bell, 1, 0) == 1);
        ina_port_drain(port);
    }
    CHECK(collect(port, seats) == BOTH && *(uint64_t *)ina_shared_state(shared) == 2 && ina_shared_holder(shared) == -1);
}

/* 77: processes may not be traced here. */
static int test_steps(struct ina_switch *sw, unsigned every)
{
    struct outcomes found = {0};
    unsigned steps = 0, last = 1;
    for (unsigned number = 0; steps < last; number++) {
        struct ina_shared *shared = make(sw);
        struct ina_shared_own own = {.kept_by = 0};
        struct ina_port *port = open_seat(0, &own);
        CHECK(port);
        const pid_t child = start_traced();
        if (!child)
            return 77;
        if (number == 0) {
            for (last = 0; go_on(child, 1); last++)
                ;
            CHECK(collect(port, 0) == 1u << OTHER);
        } else {
            steps = (number - 1) / 2 * every;
            bool over = false;
            for (unsigned step = 0; step < steps && !over; step++)
                over = !go_on(child, 1);
            if (number % 2)
                check_stop(shared, port, &own, child, over, &found);
        }
        end(child);
        if (number && number % 2 == 0)
            check_end(shared, port, &own, &found);
        ina_port_close(port);
        ina_shared_unmap(shared);
        close(memory);
    }
    printf("%u instructions: ended: %u dead (%u without a name), %u as if never there, %u run, %u run by the other; "
           "stopped: %u complete, %u held\n",
           last, found.dead, found.nameless, found.untouched, found.run, found.taken_over, found.complete, found.held);
    CHECK(found.dead && found.untouched && found.run && found.complete && found.held);
    return 0;
}

/* ---- one mapping for all, so that the thread sanitizer sees who touches what ------------------------------------------------- */

#ifdef ONE_MAPPING
enum { MAPPINGS = 64 };
static struct mapping {
    void *at;
    ino_t file;
    off_t offset;
    size_t size;
    unsigned users;
} mappings[MAPPINGS];
static pthread_mutex_t mapping_lock = PTHREAD_MUTEX_INITIALIZER;

void *__real_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *at, size_t size);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
int __wrap_munmap(void *at, size_t size);

void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    struct stat st;
    if (fd < 0 || fstat(fd, &st))
        return __real_mmap(at, size, protection, flags, fd, offset);
    pthread_mutex_lock(&mapping_lock);
    struct mapping *mapping = mappings, *const end_of_all = mappings + MAPPINGS;
    while (mapping < end_of_all && !(mapping->users && mapping->file == st.st_ino && mapping->offset == offset && mapping->size == size))
        mapping++;
    if (mapping == end_of_all) {
        mapping = mappings;
        while (mapping < end_of_all && mapping->users)
            mapping++;
        CHECK(mapping < end_of_all);
        *mapping = (struct mapping){__real_mmap(at, size, protection, flags, fd, offset), st.st_ino, offset, size, 0};
        CHECK(mapping->at != MAP_FAILED);
    }
    mapping->users++;
    pthread_mutex_unlock(&mapping_lock);
    return mapping->at;
}

int __wrap_munmap(void *at, size_t size)
{
    int users = 0;
    pthread_mutex_lock(&mapping_lock);
    for (struct mapping *mapping = mappings; mapping < mappings + MAPPINGS; mapping++)
        if (mapping->users && mapping->at == at)
            users = (int)mapping->users--;
    pthread_mutex_unlock(&mapping_lock);
    return users > 1 ? 0 : __real_munmap(at, size);
}
#endif

int main(int argc, char **argv)
{
    int result = 0;
    struct ina_switch *sw = ina_switch_create(&PROGRAM, NULL, NULL);
    struct ina_replica replicas[SEATS];
    for (uint16_t i = 0; i < SEATS; i++) {
        replicas[i] = (struct ina_replica){i, i};
        CHECK(!ina_bells_create(&bells[i]));
    }
    struct ina_command command = {.op = INA_SET_GROUP, .id = 1, .count = SEATS, .data = replicas};
    CHECK(sw && !ina_switch_execute(sw, &command));
    if (argc == 3 && !strcmp(argv[1], "steps")) {
        result = test_steps(sw, (unsigned)strtoul(argv[2], NULL, 10));
    } else if (argc == 3) {
        frames = strtoull(argv[2], NULL, 10);
        test_turns(sw);
    } else {
        test_refusals(sw);
        test_end_within_a_packet(sw);
        test_turns(sw);
    }
    for (int i = 0; i < SEATS; i++)
        ina_bells_close(&bells[i]);
    ina_switch_destroy(sw);
    return result;
}
