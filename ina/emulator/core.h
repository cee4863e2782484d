/* What the emulator's files share. */
#ifndef INA_EMULATOR_CORE_H
#define INA_EMULATOR_CORE_H

#include "emulator.h"

/* ---- frames.c: buffers by handle, in chunks that never move */
struct ina_frames {
    uint8_t **chunks;
    uint32_t *free;
    uint32_t stride, chunk_count, free_count;
};
struct ina_stored_frame {      /* in front of each buffer */
    uint32_t len, wire_len, offset, reserved;
};
int ina_frames_init(struct ina_frames *frames, uint32_t max_frame);
void ina_frames_destroy(struct ina_frames *frames);
uint64_t ina_frames_used(const struct ina_frames *frames);
uint32_t ina_frames_get(struct ina_frames *frames);            /* UINT32_MAX: out of memory */
void ina_frames_put(struct ina_frames *frames, uint32_t handle);
void ina_frames_lend(const struct ina_frames *frames, uint32_t handle, struct ina_packet *pkt);  /* as stored */
void ina_frames_blank(const struct ina_frames *frames, uint32_t handle, struct ina_packet *pkt); /* empty, with headroom */
void ina_frames_store(const struct ina_frames *frames, uint32_t handle, const struct ina_packet *pkt); /* after writing */
uint32_t ina_frames_copy(struct ina_frames *frames, const uint8_t *data, uint32_t len, uint32_t wire_len);

/* ---- events.c: arrivals by (time, number), and one indexed heap of timers */
struct ina_arrival {
    uint64_t time, number;
    uint32_t frame;
    struct ina_wire_end at;
};
struct ina_arrivals {
    struct ina_arrival *heap;
    uint32_t count, capacity;
    uint64_t next_number;
};
int ina_arrivals_push(struct ina_arrivals *arrivals, uint64_t time, uint32_t frame, struct ina_wire_end at); /* 0, -ENOMEM */
int ina_arrivals_pop(struct ina_arrivals *arrivals, struct ina_arrival *out);

struct ina_timers {            /* timer i is due at due[i]; UINT64_MAX: off */
    uint64_t *due;
    uint32_t *heap, *place;
    uint32_t count, capacity;
};
int ina_timers_add(struct ina_timers *timers);                  /* index, -ENOMEM */
void ina_timers_set(struct ina_timers *timers, uint32_t timer, uint64_t due);
uint64_t ina_timers_first(const struct ina_timers *timers, uint32_t *timer); /* UINT64_MAX: all off */

/* ---- emulator.c: the loop, the wires, the switches */
struct ina_wire {              /* one direction, kept at the end that sends */
    struct ina_wire_end to;
    struct ina_fault fault;
    uint64_t lost_bytes, duplicated_bytes;
    uint64_t rx_packets, rx_bytes; /* of the other direction: what arrived at this end */
    int connected, faulty;
};

struct ina_submission {
    uint64_t at, ticket;
    struct ina_tensor tensor;
    struct ina_submission *next;
};

struct ina_machine {           /* what a host runs */
    const struct ina_protocol *protocol;
    void *state;
    struct ina_tensor tensors[INA_MAX_OPS];
    uint64_t tickets[INA_MAX_OPS];
    struct ina_submission *first, *last;
    size_t stats_offset;
    uint32_t host, timer;
    uint16_t udp_port;
    int failed, owned;         /* owned: the state is the emulator's */
};

/* What waits in the arrivals beside frames at the ends of wires: frames that a host's processor is done with. */
enum { INA_AT_MACHINE = 2, INA_AT_NIC = 3 };

struct ina_host {
    struct ina_cpu_config cpu;
    uint64_t *core_free;       /* by core, ps; NULL: processing takes no time */
    uint64_t cpu_busy;
    struct ina_link *nic;
    struct ina_wire wire;
    uint32_t *machines;
    uint32_t machine_count, nic_packets, nic_timer, index;
};

struct ina_node {              /* a switch */
    struct ina_emulator *em;
    struct ina_switch *sw;
    struct ina_wire *wires;    /* by port */
    uint64_t latency;
    uint32_t timer;
};

enum ina_timer_kind { INA_TIMER_MACHINE = 0, INA_TIMER_NIC = 1, INA_TIMER_SWITCH = 2 };
struct ina_timer_owner {
    uint32_t kind, index;      /* enum ina_timer_kind; of the machine, host or switch */
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
    struct ina_arrivals arrivals;
    struct ina_timers timers;
    struct ina_completion *completions;
    struct ina_emulator_stats stats;
    uint64_t next_ticket;
    int stop_at_completions;
    int error;                 /* -ENOMEM: sticky, ends every run */
};

int ina_emulator_add_timer(struct ina_emulator *em, enum ina_timer_kind kind, uint32_t index); /* timer, -ENOMEM */
/* A frame has crossed the wire at `time`, but for what the faults say. Takes the frame. */
void ina_wire_cross(struct ina_emulator *em, struct ina_wire *wire, uint32_t frame, uint64_t time);

/* ---- host.c: NICs and machines */
void ina_host_receive(struct ina_emulator *em, uint32_t host, uint32_t frame); /* from the wire; takes the frame */
void ina_host_processed(struct ina_emulator *em, uint32_t kind, uint32_t host, uint32_t frame); /* INA_AT_...; takes it */
void ina_host_poll(struct ina_emulator *em, struct ina_host *host);            /* its NIC */
void ina_machine_run(struct ina_emulator *em, uint32_t machine); /* everything it does at one instant after something happened */
void ina_host_destroy(struct ina_host *host);
void ina_machine_destroy(struct ina_machine *machine);

#endif
