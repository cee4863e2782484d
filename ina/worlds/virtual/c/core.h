/* Declarations that the emulator's files share. */
#ifndef INA_EMULATOR_CORE_H
#define INA_EMULATOR_CORE_H

#include "emulator.h"
#include "memory.h"
#include "pool.h"

/* ---- frames.c: frames by handle, in a pool. With payload a frame is stored whole, and is read and written in place. Without,
 * only its first INA_KEPT_BYTES are stored: it is read and written at a place of the scratch memory, where the rest is zeros. */
enum { INA_SCRATCH_OUT = INA_BATCH, INA_SCRATCH }; /* places: of a batch, and one for its output */
struct ina_frames {
    struct ina_pool pool;
    uint8_t *scratch;
    uint32_t headroom, max_frame, scratch_stride;
    int bare;
};
struct ina_stored_frame {      /* in front of each buffer */
    uint32_t len, wire_len;    /* bytes of the frame, stored or not; and on the wire */
    uint32_t offset;           /* of its first byte */
    uint32_t entered;          /* it is in a switch that may send it on unchanged */
    uint64_t left;             /* ps at which its last bit began to cross the wire that it is on */
};
int ina_frames_init(struct ina_frames *frames, uint32_t max_frame, uint32_t headroom, int bare); /* 0, -ENOMEM */
void ina_frames_destroy(struct ina_frames *frames);
static inline uint32_t ina_frames_get(struct ina_frames *frames) /* UINT32_MAX: out of memory */
{
    return ina_pool_get(&frames->pool);
}
static inline void ina_frames_put(struct ina_frames *frames, uint32_t handle)
{
    ina_pool_put(&frames->pool, handle);
}
static inline struct ina_stored_frame *ina_frames_at(const struct ina_frames *frames, uint32_t handle)
{
    return ina_pool_at(&frames->pool, handle);
}
/* Prefetches a frame that is read soon. */
static inline void ina_frames_prefetch(const struct ina_frames *frames, uint32_t handle)
{
    const uint8_t *at = (const uint8_t *)ina_frames_at(frames, handle);
    for (uint32_t line = 0; line < frames->pool.stride && line < 640; line += 64)
        __builtin_prefetch(at + line);
}
/* Points a descriptor (data, len, wire_len, headroom, tailroom) at the frame, or an empty one. `place`: of the scratch memory. */
void ina_frames_open(const struct ina_frames *frames, uint32_t handle, uint32_t place, struct ina_packet *pkt);
void ina_frames_blank(const struct ina_frames *frames, uint32_t handle, uint32_t place, struct ina_packet *pkt);
void ina_frames_store(const struct ina_frames *frames, uint32_t handle, const struct ina_packet *pkt); /* after writing */
uint32_t ina_frames_twin(struct ina_frames *frames, uint32_t handle);

/* ---- events.c: events that happen once, by time and then in the order of their addition; and an indexed heap of timers */
enum ina_timed_event_kind {
    INA_AT_HOST = 0,           /* a frame has crossed the wire to a host */
    INA_AT_SWITCH = 1,         /* to a switch: its latency has passed, too */
    INA_AT_MACHINE = 2,        /* a host's processor is done with a frame that came in */
    INA_AT_NIC = 3,            /* with one that goes out */
    INA_AT_QUEUE = 4           /* a switch port can send the next of its queue */
};
enum { INA_MOST_NODES = 1 << 19 };
struct ina_timed_event {
    uint64_t time;
    uint32_t frame;
    uint32_t place;            /* kind 3 | node 19 | port 10 bits */
};
static inline uint32_t ina_place(uint32_t kind, uint32_t node, uint32_t port)
{
    return kind << 29 | node << 10 | port;
}

struct ina_far {
    struct ina_timed_event event;
    uint64_t number;
};
struct ina_calendar {
    struct ina_bucket *bucket;
    uint64_t *occupied;        /* bit by bucket */
    struct ina_timed_event *spare[32], *merging;
    struct ina_far *far;
    uint64_t base;             /* number of the first bucket in the array: time >> shift */
    uint64_t sorted;           /* of the bucket that is being emptied; UINT64_MAX: none is sorted */
    uint64_t far_number, ahead, pushes, period, arrays; /* arrays: bytes of all of them */
    uint32_t buckets, shift, next, count, far_count, far_capacity, merging_capacity;
};
int ina_calendar_push(struct ina_calendar *calendar, const struct ina_timed_event *event, uint64_t now); /* 0, -ENOMEM */
uint64_t ina_calendar_first(struct ina_calendar *calendar);    /* time of the first event; UINT64_MAX: none */
int ina_calendar_pop(struct ina_calendar *calendar, struct ina_timed_event *out); /* the calendar is not empty; 0, -ENOMEM */
/* 1: the next event is at `time`, and at `place` except for the bits of `mask`. Call after a pop. */
int ina_calendar_next_is(const struct ina_calendar *calendar, uint64_t time, uint32_t place, uint32_t mask);
/* The frame of the event that is so many after the next one, if it is known; else UINT32_MAX. Call after a pop. */
uint32_t ina_calendar_ahead(const struct ina_calendar *calendar, uint32_t ahead);
uint64_t ina_calendar_memory(const struct ina_calendar *calendar); /* bytes */
void ina_calendar_destroy(struct ina_calendar *calendar);

struct ina_timer {
    uint64_t key;              /* at most its due time */
    uint32_t timer;
};
struct ina_timers {            /* timer i is due at due[i]; UINT64_MAX: off */
    uint64_t *due;
    struct ina_timer *heap;
    uint32_t *place;
    uint32_t count, capacity;
};
int ina_timers_add(struct ina_timers *timers);                  /* index, -ENOMEM */
void ina_timers_move(struct ina_timers *timers, uint32_t timer);
uint64_t ina_timers_settle(struct ina_timers *timers);
static inline void ina_timers_set(struct ina_timers *timers, uint32_t timer, uint64_t due)
{
    timers->due[timer] = due;
    if (due < timers->heap[timers->place[timer]].key)
        ina_timers_move(timers, timer);
}
static inline uint64_t ina_timers_first(struct ina_timers *timers, uint32_t *timer) /* UINT64_MAX: all off */
{
    if (!timers->count)
        return UINT64_MAX;
    const uint64_t key = timers->heap[0].key == timers->due[timers->heap[0].timer] ? timers->heap[0].key : ina_timers_settle(timers);
    *timer = timers->heap[0].timer;
    return key;
}

/* ---- emulator.c: the loop, the wires, the switches */
struct ina_wire {              /* one direction, kept at the end that sends */
    uint64_t rx_packets, rx_bytes; /* arrivals at this end, from the other direction */
    uint64_t latency;          /* of the switch that it leads to */
    uint32_t place;            /* of the arrivals there */
    int connected, faulty;
    struct ina_wire_end to;
    struct ina_fault fault;
    uint64_t lost_bytes, duplicated_bytes;
    uint64_t delay;
    /* Of the other direction, which ends here: */
    uint64_t failed_at, healed_at; /* the last time that it was down; UINT64_MAX: never, and not healed yet */
    uint64_t down, down_bytes; /* lost meanwhile */
};

struct ina_submission {
    uint64_t at, ticket;
    struct ina_tensor tensor;
    struct ina_submission *next;
};

enum { INA_SEND_BATCH = 32 };  /* most frames that a machine fills in one call */

struct ina_machine {           /* a protocol machine of a host */
    const struct ina_protocol *protocol;
    void *state;
    struct ina_tensor tensors[INA_MAX_OPS];
    uint64_t tickets[INA_MAX_OPS];
    struct ina_submission *first, *last;
    size_t stats_offset;
    uint32_t host, timer;
    uint16_t udp_port;
    int failed, owned;         /* owned: the state is the emulator's */
    int held;                  /* its host's NIC has no room for its frames */
    int stopped;
    uint32_t held_next;
};

struct ina_host {
    struct ina_cpu_config cpu;
    uint64_t *core_free;       /* by core, ps; NULL: processing takes no time */
    uint64_t cpu_busy;
    struct ina_link *nic;
    uint64_t room;             /* bytes on their way to the wire from which on machines are held back; 0: never */
    uint64_t working;          /* bytes that processors have not yet handed to the NIC */
    struct ina_wire wire;
    uint32_t *machines;
    uint32_t machine_count, index;
    uint32_t held_first, held_last, held_count; /* machines that wait for room, in the order of their turns */
    uint32_t timer;            /* of the room, if there is a limit */
};

struct ina_node {              /* a switch */
    struct ina_emulator *em;
    struct ina_switch *sw;
    struct ina_wire *wires;    /* by port */
    uint64_t latency;
    uint32_t timer, index;
};

enum ina_timer_kind { INA_TIMER_MACHINE = 0, INA_TIMER_SWITCH = 1, INA_TIMER_NIC = 2 };
struct ina_timer_owner {
    uint32_t kind, index;      /* enum ina_timer_kind; of the machine, switch or host */
};

struct ina_emulator {
    uint64_t now;
    uint32_t max_frame, hosts, switches, machines;
    uint32_t completion_count, completion_capacity, completion_read;
    struct ina_host **host;
    struct ina_node **node;
    struct ina_machine **machine;
    struct ina_timer_owner *owners;
    struct ina_frames frames;
    struct ina_calendar calendar;
    struct ina_timers timers;
    struct ina_completion *completions;
    struct ina_emulator_stats stats;
    uint64_t next_ticket;
    uint32_t spare[INA_SEND_BATCH], spare_count; /* frames for machines that may send */
    int stop_at_completions;
    int error;                 /* -ENOMEM: sticky, ends every run */
};

int ina_emulator_add_timer(struct ina_emulator *em, enum ina_timer_kind kind, uint32_t index); /* timer, -ENOMEM */
/* Adds an event at `time`. Takes the frame. */
void ina_emulator_later(struct ina_emulator *em, uint64_t time, uint32_t place, uint32_t frame);
/* Delivers a frame that crosses the wire by `time`, unless a fault loses or delays it. Takes the frame. */
void ina_wire_cross(struct ina_emulator *em, struct ina_wire *wire, uint32_t frame, uint64_t time);

/* ---- host.c: NICs and machines */
void ina_host_receive(struct ina_emulator *em, uint32_t host, uint32_t frame); /* from the wire; takes the frame */
void ina_host_processed(struct ina_emulator *em, uint32_t kind, uint32_t host, uint32_t frame); /* INA_AT_...; takes it */
int ina_host_connect(struct ina_emulator *em, struct ina_host *host, const struct ina_link_config *link); /* 0, -ENOMEM */
void ina_host_has_room(struct ina_emulator *em, uint32_t host); /* runs the next machine that waits for room at its NIC */
void ina_machine_run(struct ina_emulator *em, uint32_t machine); /* runs a machine at one instant, after an event for it */
void ina_host_destroy(struct ina_host *host);
void ina_machine_destroy(struct ina_machine *machine);

#endif
