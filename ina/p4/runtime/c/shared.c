/* A switch in shared memory: see shared.h for the layout and for who runs it. */
#define _GNU_SOURCE 1 /* memfd_create, seals */
#include "shared.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core.h"
#include "segment.h"

enum { ABI = 1, PAGE = 4096, HASH = 72 /* of the program's source, with its end */, REPORT = 1 << 16 /* packets */ };
static const uint64_t MAGIC = 0x696e612d73686172; /* "ina-shar" */

struct header {
    uint64_t magic;
    uint32_t abi, seats, frames, max_frame;
    uint32_t table_count, group_count;
    uint64_t control_bytes, state_size;
    char source_hash[HASH];
};

/* Places in the memory that follow from the header. */
struct places {
    uint64_t control, live, state, segments, segment, size;
};

struct seat {
    _Alignas(INA_LINE_PAIR) struct ina_shared_turns turns;
    struct ina_switch_port_stats stats;
};

struct live {
    _Alignas(INA_LINE_PAIR) pthread_mutex_t lock;
    uint32_t last;                                   /* with the lock: the seat that held it before, plus one */
    _Atomic uint32_t holder;                         /* the seat that holds it, plus one */
    _Atomic uint32_t dead;                           /* a process ended while it held it */
    _Alignas(INA_LINE_PAIR) _Atomic uint32_t pending; /* frames have been sent since a holder began to look */
    struct seat seats[];
};

struct group { /* in the control plane; its replicas follow */
    uint32_t id, count;
};

struct ina_shared {
    uint8_t *base; /* up to the segments */
    struct header header;
    struct places places;
    struct live *live;
};

/* ---- layout ---------------------------------------------------------------------------------------------------- */

static uint64_t whole_pages(uint64_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* False: numbers out of range. */
static bool place(const struct header *header, struct places *places)
{
    const uint64_t most = UINT64_C(1) << 40, segment = ina_segment_size(header->frames, header->max_frame);
    if (!segment || !header->seats || header->seats > INA_SHARED_SEATS || header->control_bytes > most || header->state_size > most)
        return false;
    places->control = sizeof *header;
    places->live = whole_pages(places->control + header->control_bytes);
    places->state = places->live + whole_pages(sizeof(struct live) + header->seats * sizeof(struct seat));
    places->segments = places->state + whole_pages(header->state_size);
    places->segment = segment;
    places->size = places->segments + header->seats * segment;
    return true;
}

static uint64_t words(uint64_t bytes)
{
    return (bytes + 7) & ~UINT64_C(7);
}

/* ---- the maker ------------------------------------------------------------------------------------------------- */

/* Writes tables and groups to `to`, unless that is NULL; returns their bytes, and counts the groups. */
static uint64_t write_control(uint8_t *to, const struct ina_switch *sw, const struct ina_shared_config *config, uint32_t *groups)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < sw->tables->count; i++) {
        const uint64_t bytes = config->table_bytes[i];
        if (to) {
            memcpy(to + at, &bytes, sizeof bytes);
            memcpy(to + at + sizeof bytes, sw->tables->table[i], bytes);
        }
        at += sizeof bytes + words(bytes);
    }
    *groups = 0;
    for (uint32_t id = 1; id < INA_SWITCH_GROUPS; id++) {
        const struct ina_members *members = sw->groups[id];
        if (!members)
            continue;
        const struct group group = {id, members->count};
        const uint64_t bytes = members->count * sizeof members->member[0];
        if (to) {
            memcpy(to + at, &group, sizeof group);
            memcpy(to + at + sizeof group, members->member, bytes);
        }
        at += sizeof group + words(bytes);
        ++*groups;
    }
    return at;
}

static bool has_sessions(const struct ina_switch *sw)
{
    for (uint32_t id = 1; id < INA_SWITCH_GROUPS; id++)
        if (sw->sessions[id])
            return true;
    return false;
}

static int init_lock(pthread_mutex_t *lock)
{
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    const int error = pthread_mutex_init(lock, &attr);
    pthread_mutexattr_destroy(&attr);
    return error;
}

int ina_shared_create(const struct ina_switch *sw, const struct ina_shared_config *config)
{
    if (sw->tna || has_sessions(sw))
        return -ENOTSUP;
    struct header header = {
        .magic = MAGIC, .abi = ABI, .seats = config->seats, .frames = config->frames, .max_frame = config->max_frame,
        .table_count = sw->tables->count, .state_size = sw->state_size};
    struct places places;
    const size_t hash = strlen(sw->program->source_hash);
    header.control_bytes = write_control(NULL, sw, config, &header.group_count);
    if (hash >= HASH || !place(&header, &places))
        return -EINVAL;
    memcpy(header.source_hash, sw->program->source_hash, hash);
    const int fd = memfd_create("ina-switch", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    uint8_t *base = MAP_FAILED;
    int error = 0;
    if (ftruncate(fd, (off_t)places.size) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        base = mmap(NULL, places.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        error = errno;
    } else {
        memcpy(base, &header, sizeof header);
        write_control(base + places.control, sw, config, &header.group_count);
        if (sw->program->init)
            sw->program->init(base + places.state, sw->config.seed);
        for (uint32_t seat = 0; seat < header.seats; seat++)
            ina_segment_format(base + places.segments + seat * places.segment, header.frames, header.max_frame);
        error = init_lock(&((struct live *)(base + places.live))->lock);
        munmap(base, places.size);
    }
    if (error)
        close(fd);
    return error ? -error : fd;
}

/* Maps all but the segments, and checks it. 0 or an errno. */
static int map(int memfd, struct ina_shared *shared)
{
    struct stat st;
    const int seals = fcntl(memfd, F_GET_SEALS);
    if (fstat(memfd, &st) < 0)
        return errno;
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || pread(memfd, &shared->header, sizeof shared->header, 0) != sizeof shared->header
        || shared->header.magic != MAGIC || shared->header.abi != ABI || !place(&shared->header, &shared->places)
        || shared->places.size != (uint64_t)st.st_size || shared->header.source_hash[HASH - 1])
        return EPROTO;
    shared->base = mmap(NULL, shared->places.segments, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
    if (shared->base == MAP_FAILED)
        return errno;
    shared->live = (struct live *)(shared->base + shared->places.live);
    return 0;
}

struct ina_shared *ina_shared_map(int memfd)
{
    struct ina_shared *shared = calloc(1, sizeof *shared);
    const int error = shared ? map(memfd, shared) : ENOMEM;
    if (!error)
        return shared;
    free(shared);
    errno = error;
    return NULL;
}

void ina_shared_unmap(struct ina_shared *shared)
{
    munmap(shared->base, shared->places.segments);
    free(shared);
}

void *ina_shared_state(struct ina_shared *shared)
{
    return shared->base + shared->places.state;
}

/* All fields are 64-bit counters. */
static void read_counters(void *to, const void *from, size_t bytes)
{
    for (size_t i = 0; i < bytes / sizeof(uint64_t); i++)
        ((uint64_t *)to)[i] = __atomic_load_n((const uint64_t *)from + i, __ATOMIC_RELAXED);
}

/* Adds a process's own counters, and sets them to zero. */
static void add_counters(void *to, void *from, size_t bytes)
{
    for (size_t i = 0; i < bytes / sizeof(uint64_t); i++) {
        uint64_t *own = (uint64_t *)from + i;
        if (*own)
            __atomic_fetch_add((uint64_t *)to + i, *own, __ATOMIC_RELAXED);
        *own = 0;
    }
}

int ina_shared_read(const struct ina_shared *shared, uint32_t seat, struct ina_shared_turns *turns,
                    struct ina_switch_port_stats *stats)
{
    if (seat >= shared->header.seats)
        return -EINVAL;
    read_counters(turns, &shared->live->seats[seat].turns, sizeof *turns);
    read_counters(stats, &shared->live->seats[seat].stats, sizeof *stats);
    return 0;
}

/* Tries to take the lock: 0, EBUSY, or EOWNERDEAD: nobody can any more. */
static int try_lock(struct live *live)
{
    if (atomic_load_explicit(&live->dead, memory_order_relaxed))
        return EOWNERDEAD;
    const int error = pthread_mutex_trylock(&live->lock);
    if (error == EOWNERDEAD) {
        atomic_store(&live->dead, 1); /* for ever, although the mutex would offer to go on */
        pthread_mutex_unlock(&live->lock);
    }
    return error == ENOTRECOVERABLE ? EOWNERDEAD : error;
}

int ina_shared_holder(const struct ina_shared *shared)
{
    return (int)atomic_load_explicit(&shared->live->holder, memory_order_relaxed) - 1;
}

/* ---- a process at a seat --------------------------------------------------------------------------------------- */

struct shared_port {
    struct ina_port port;
    struct ina_port *own;      /* the host's side of this seat's segment */
    struct ina_shared shared;
    uint32_t seat, taken;      /* taken: packets since the counters were last handed on */
    pid_t process;
    struct ina_switch *sw;
    uint64_t *control;         /* a copy of tables and groups */
    struct ina_tables *tables; /* which lie in it */
    struct ina_shared_turns turns; /* not reported yet */
    struct ina_shared_own *told;
    struct ina_port *ports[INA_SHARED_SEATS]; /* the switch's sides of all segments */
};

/* Hands counters on for the maker to read. */
static void report(struct shared_port *p)
{
    p->taken = 0;
    add_counters(&p->shared.live->seats[p->seat].turns, &p->turns, sizeof p->turns);
    for (uint32_t seat = 0; seat < p->shared.header.seats; seat++)
        add_counters(&p->shared.live->seats[seat].stats, &p->sw->ports[seat].stats, sizeof p->sw->ports[seat].stats);
}

/* With the lock: runs the program on all that lies in the segments. */
static unsigned run_all(struct shared_port *p)
{
    struct live *live = p->shared.live;
    struct ina_packet pkts[INA_BATCH];
    unsigned total = 0, found;
    if (live->last != p->seat + 1) {
        live->last = p->seat + 1;
        for (uint32_t seat = 0; seat < p->shared.header.seats; seat++)
            ina_segment_resume(p->ports[seat]);
    }
    do {
        found = 0;
        for (uint32_t seat = 0; seat < p->shared.header.seats; seat++) {
            struct ina_port *port = p->ports[seat];
            const uint64_t now = ina_now();
            const int n = port->ops->rx(port, pkts, INA_BATCH, now);
            if (n <= 0)
                continue;
            for (int i = 0; i < n; i++)
                pkts[i].ingress_port = (uint16_t)seat;
            ina_switch_input(p->sw, pkts, (unsigned)n, now);
            port->ops->rx_done(port, n);
            found += (unsigned)n;
        }
        if (!found && ina_switch_next_due(p->sw) != UINT64_MAX) { /* frames that are to enter again */
            ina_switch_poll(p->sw, ina_now());
            found = 1;
        }
        total += found;
    } while (found);
    return total;
}

/* Runs the switch as long as there is something to run and the lock is to be had. */
static void run(struct shared_port *p)
{
    struct live *live = p->shared.live;
    while (atomic_load(&live->pending)) {
        if (try_lock(live)) {
            p->told->kept_by = atomic_load_explicit(&live->holder, memory_order_relaxed);
            break;
        }
        p->told->kept_by = 0;
        atomic_store_explicit(&live->holder, p->seat + 1, memory_order_relaxed);
        atomic_exchange(&live->pending, 0); /* before looking: frames that come later set it again */
        const unsigned packets = run_all(p);
        p->turns.turns += packets != 0;
        p->turns.packets += packets;
        p->told->turns.turns += packets != 0;
        p->told->turns.packets += packets;
        p->taken += packets;
        atomic_store_explicit(&live->holder, 0, memory_order_relaxed);
        pthread_mutex_unlock(&live->lock);
        atomic_thread_fence(memory_order_seq_cst); /* unlocks before it looks; a sender stores before it tries the lock */
    }
    if (p->taken >= REPORT)
        report(p);
}

static int shared_rx(struct ina_port *port, struct ina_packet *pkts, int max, uint64_t now)
{
    struct shared_port *p = (struct shared_port *)port;
    int n = p->own->ops->rx(p->own, pkts, max, now);
    if (n <= 0) {
        run(p);
        n = p->own->ops->rx(p->own, pkts, max, now);
    }
    return n;
}

static void shared_rx_done(struct ina_port *port, int n)
{
    struct ina_port *own = ((struct shared_port *)port)->own;
    own->ops->rx_done(own, n);
    port->stats = own->stats;
}

static int shared_tx_get(struct ina_port *port, struct ina_packet *pkts, int want)
{
    struct ina_port *own = ((struct shared_port *)port)->own;
    return own->ops->tx_get(own, pkts, want);
}

static void shared_tx_put(struct ina_port *port, struct ina_packet *pkts, int n, uint64_t now)
{
    struct shared_port *p = (struct shared_port *)port;
    const uint64_t before = p->own->stats.tx_packets;
    p->own->ops->tx_put(p->own, pkts, n, now);
    port->stats = p->own->stats;
    if (p->own->stats.tx_packets == before)
        return;
    atomic_store(&p->shared.live->pending, 1);
    atomic_thread_fence(memory_order_seq_cst);
    run(p);
}

static int shared_arm(struct ina_port *port)
{
    struct shared_port *p = (struct shared_port *)port;
    run(p);
    const int waiting = ina_port_arm(p->own);
    if (!waiting)
        report(p);
    return waiting;
}

static uint64_t shared_next_due(const struct ina_port *port)
{
    return ina_port_next_due(((const struct shared_port *)port)->own);
}

static void shared_close(struct ina_port *port)
{
    struct shared_port *p = (struct shared_port *)port;
    if (p->sw && p->shared.live && p->process == getpid())
        report(p);
    ina_switch_destroy(p->sw);
    for (uint32_t seat = 0; seat < INA_SHARED_SEATS; seat++)
        ina_port_close(p->ports[seat]);
    ina_port_close(p->own);
    if (p->shared.live)
        munmap(p->shared.base, p->shared.places.segments);
    free(p->tables);
    free(p->control);
    free(p);
}

static const struct ina_port_ops SHARED_OPS = {
    .rx = shared_rx,
    .rx_done = shared_rx_done,
    .tx_get = shared_tx_get,
    .tx_put = shared_tx_put,
    .arm = shared_arm,
    .next_due = shared_next_due,
    .close = shared_close,
};

/* Copies the control plane and makes the tables of it; the groups begin at *groups. 0 or an errno. */
static int copy_control(struct shared_port *p, const struct ina_program *program, uint64_t *groups)
{
    const struct header *header = &p->shared.header;
    p->control = malloc(header->control_bytes + 8);
    p->tables = calloc(1, sizeof *p->tables + header->table_count * sizeof(void *));
    if (!p->control || !p->tables)
        return ENOMEM;
    if (header->table_count != program->table_count)
        return EPROTO;
    memcpy(p->control, p->shared.base + p->shared.places.control, header->control_bytes);
    const uint64_t end = header->control_bytes / 8;
    uint64_t at = 0;
    p->tables->count = header->table_count;
    for (uint32_t i = 0; i < header->table_count; i++) {
        if (at == end || p->control[at] < sizeof(struct ina_table) || p->control[at] > 8 * (end - at - 1))
            return EPROTO;
        p->tables->table[i] = (const struct ina_table *)&p->control[at + 1];
        at += 1 + words(p->control[at]) / 8;
    }
    *groups = at;
    return 0;
}

/* Writes the groups from word `at` of the control plane on to the switch. 0 or an errno. */
static int set_groups(struct shared_port *p, uint64_t at)
{
    const uint64_t end = p->shared.header.control_bytes / 8;
    for (uint32_t i = 0; i < p->shared.header.group_count; i++) {
        struct group group;
        if (at == end)
            return EPROTO;
        memcpy(&group, &p->control[at++], sizeof group);
        const uint64_t length = words((uint64_t)group.count * sizeof(struct ina_replica)) / 8;
        if (!group.count || length > end - at)
            return EPROTO;
        struct ina_command command = {.op = INA_SET_GROUP, .id = group.id, .count = group.count, .data = &p->control[at]};
        if (ina_switch_execute(p->sw, &command))
            return -command.result;
        at += length;
    }
    return 0;
}

/* Opens the switch's side of a seat, and the host's side of one's own, and adds the former to the switch. 0 or an errno. */
static int open_seat(struct shared_port *p, int memfd, uint32_t seat, int bell, int to_host)
{
    const struct places *places = &p->shared.places;
    struct ina_segment *segment = ina_segment_map(memfd, places->segments + seat * places->segment, places->segment);
    if (!segment)
        return errno;
    int error = 0;
    p->ports[seat] = ina_segment_port(segment, 0, 0, -1, to_host);
    if (!p->ports[seat]) {
        error = errno;
        ina_segment_release(segment);
        return error;
    }
    if (seat == p->seat) {
        atomic_fetch_add(&segment->owners, 1);
        p->own = ina_segment_port(segment, 1, 0, bell, -1);
        if (!p->own) {
            error = errno;
            ina_segment_release(segment);
            return error;
        }
    }
    struct ina_command command = {.op = INA_ADD_PORT, .id = seat, .port = p->ports[seat]};
    return -ina_switch_execute(p->sw, &command);
}

static int open_all(struct shared_port *p, int memfd, const struct ina_program *program, int bell, const int *to_hosts)
{
    uint64_t groups = 0;
    int error = map(memfd, &p->shared);
    if (error)
        return error;
    if (p->seat >= p->shared.header.seats || program->architecture != INA_V1MODEL || program->state_size != p->shared.header.state_size
        || strcmp(program->source_hash, p->shared.header.source_hash) != 0)
        return EPROTO;
    error = copy_control(p, program, &groups);
    if (error)
        return error;
    p->sw = ina_switch_create(program, p->tables, NULL);
    if (!p->sw)
        return errno;
    ina_switch_use_state(p->sw, ina_shared_state(&p->shared));
    for (uint32_t seat = 0; seat < p->shared.header.seats && !error; seat++)
        error = to_hosts[seat] < 0 ? EBADF : open_seat(p, memfd, seat, bell, to_hosts[seat]); /* who has none would not wake up */
    return error ? error : set_groups(p, groups);
}

struct ina_port *ina_port_shared_open(int memfd, const struct ina_program *program, uint32_t seat, int bell,
                                      const int *to_hosts, struct ina_shared_own *own)
{
    struct shared_port *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->seat = seat;
    p->process = getpid();
    p->told = own;
    const int error = open_all(p, memfd, program, bell, to_hosts);
    if (error) {
        shared_close(&p->port);
        errno = error;
        return NULL;
    }
    p->port = (struct ina_port){.ops = &SHARED_OPS, .fd = p->own->fd, .bell = p->own->bell, .max_frame = p->own->max_frame};
    return &p->port;
}
