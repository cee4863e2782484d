/* Declarations that the files of the switch core share; not for Python or other code. */
#ifndef INA_CORE_H
#define INA_CORE_H

#include <stdbool.h>
#include <string.h>

#include "kernel.h"
#include "memory.h"
#include "pool.h"
#include "switch.h"
#include "tna.h"

enum { INA_NONE = -1, INA_EMISSIONS = 4096 };

struct ina_members { /* multicast group or clone session */
    uint32_t count;
    uint32_t truncate;
    bool one_each; /* no port has two */
    struct ina_replica member[];
};

/* A frame that waits: in a link's queue, in flight, or to enter again. Metadata and frame follow in the same block. */
struct ina_buffer {
    struct ina_packet pkt;
    uint32_t next; /* loop queue */
    uint8_t passes;
    uint8_t marked; /* ECN */
    uint32_t enq_backlog; /* bytes that waited on the link when it was queued */
};

/* One copy to make of a packet of the current batch. */
struct ina_emission {
    uint16_t source; /* index in the batch */
    uint16_t rid;
    uint8_t instance_type;
    int32_t next; /* of the same port */
};

struct ina_switch_port {
    struct ina_port *port; /* NULL: the output callback */
    struct ina_link *link; /* NULL: straight through */
    bool present;
    bool loopback;         /* TNA: frames that leave by it enter by it again */
    bool disabled;         /* TNA: it was present, and will be again */
    bool outlet;           /* its link hands over to the outlet, and is not among `linked` */
    bool active;           /* has emissions in the current batch */
    int32_t first, last;   /* its emissions */
    uint32_t copies;       /* their number */
    ina_merge merge;       /* discipline of its queue, NULL: none */
    void *merge_context;
    struct ina_switch_port_stats stats;
};

struct ina_switch {
    const struct ina_program *program;
    const struct ina_tables *tables;
    uint8_t *state;            /* TNA: of all pipes, state_stride apart */
    uint64_t state_size, state_stride;
    bool borrowed;             /* the state is the caller's memory */
    uint64_t meta_size;        /* TNA: the largest of all pipelines */
    uint64_t carried;          /* bytes of metadata that go from ingress to egress with a packet */
    bool shared;               /* all copies of a packet have the same metadata, at one place */
    struct ina_tna_runtime *tna; /* NULL: the program is v1model's */
    void (*output)(void *context, uint16_t port, const struct ina_packet *pkt, uint64_t now);
    void *output_context;
    struct ina_outlet outlet;  /* put NULL: none */
    struct ina_pool parked;    /* frames that wait for links: outlet.c */
    bool lent;                 /* the batch is in the outlet's memory: its last copy may go out from there */
    struct ina_switch_config config;
    uint32_t meta_stride, frame_stride;

    /* scratch of one batch: INA_BATCH each */
    uint8_t *ingress_meta, *egress_meta;
    uint8_t *frames; /* lent to egress when the port has no memory of its own */
    struct ina_packet *out;
    uint32_t uses[INA_BATCH]; /* emissions that still need a source packet's metadata */
    uint8_t passes[INA_BATCH];

    struct ina_emission *emissions;
    uint32_t emission_count;
    uint16_t active[INA_SWITCH_PORTS]; /* ports with emissions, in order of their first */
    uint32_t active_count;

    struct ina_pool buffers;
    uint64_t waiting_bytes;    /* in all queues */
    uint32_t loop_head, loop_tail, loop_count;

    uint8_t *digests;
    uint32_t digest_stride;
    uint64_t digest_written, digest_read, digest_lost;

    uint16_t linked[INA_SWITCH_PORTS]; /* ports with a link that are to be polled */
    uint32_t linked_count;
    struct ina_members **groups, **sessions; /* INA_SWITCH_GROUPS each */
    struct ina_switch_port ports[INA_SWITCH_PORTS];
};

static inline struct ina_buffer *ina_buffer_at(const struct ina_switch *sw, uint32_t i)
{
    return ina_pool_at(&sw->buffers, i);
}

/* True if all queues together have room for a frame of `bytes`. */
static inline bool ina_has_room(const struct ina_switch *sw, uint32_t bytes)
{
    return !sw->config.buffer || sw->waiting_bytes + bytes <= sw->config.buffer;
}

/* The drop reason for a verdict; `otherwise` unless an assertion failed or a loop did not end. */
static inline enum ina_drop_reason ina_end_of(uint8_t verdict, enum ina_drop_reason otherwise)
{
    return verdict == INA_FAILED ? INA_DROPPED_ASSERTION : verdict == INA_ENDLESS ? INA_DROPPED_LOOP_LIMIT : otherwise;
}

static inline void ina_count_drop(struct ina_switch *sw, uint16_t port, enum ina_drop_reason why)
{
    sw->ports[port].stats.drops[why]++;
}

/* A field's value, shifted to the field's place in its 64-bit word of the descriptor. */
#define INA_IN_WORD(field, value) ((uint64_t)(value) << 8 * (offsetof(struct ina_packet, field) % 8))

/* Makes `to`, which already describes memory, the descriptor of a copy of `from`: word by word, so that parts that many copies
 * share are computed once. */
INA_KERNEL_PART void ina_describe(struct ina_packet *restrict to, const struct ina_packet *restrict from,
                                  struct ina_replica replica, uint8_t instance_type, bool keep_tag)
{
    typedef uint64_t word __attribute__((may_alias));
    enum { PORTS = offsetof(struct ina_packet, ingress_port), VERDICT = offsetof(struct ina_packet, verdict) };
    _Static_assert(VERDICT == PORTS + 8 && offsetof(struct ina_packet, clone_session) == VERDICT + 4, "two words");
    const uint64_t ports = INA_IN_WORD(egress_port, UINT16_MAX) | INA_IN_WORD(rid, UINT16_MAX);
    const word *const f = (const word *)((const uint8_t *)from + PORTS);
    word *const t = (word *)((uint8_t *)to + PORTS);
    to->tailroom += to->len - from->len;
    to->len = from->len;
    to->wire_len = from->wire_len;
    t[0] = (f[0] & ~ports) | INA_IN_WORD(egress_port, replica.port) | INA_IN_WORD(rid, replica.rid);
    t[1] = (f[1] & ~INA_IN_WORD(verdict, UINT32_MAX)) | INA_IN_WORD(verdict, INA_UNICAST) | INA_IN_WORD(instance_type, instance_type);
    memcpy(t + 2, f + 2, offsetof(struct ina_packet, tag) - PORTS - 16);
    to->clone_list = from->clone_list;
    if (!keep_tag)
        to->tag = from->tag;
}

/* Copies metadata: whole cache lines on both sides. */
INA_KERNEL_PART void ina_copy_lines(uint8_t *to, const uint8_t *from, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += 64)
        memcpy(to + at, from + at, 64);
}

/* Copies a frame to the same offset in a cache line, as ports' frames have: whole lines except at both ends. */
INA_KERNEL_PART void ina_copy_frame(uint8_t *restrict to, const uint8_t *restrict from, uint32_t len)
{
    if (len < 64) {
        memcpy(to, from, len);
        return;
    }
    memcpy(to, from, 64);
    uint32_t at = 64 - ((uintptr_t)to & 63);
    for (; at + 64 < len; at += 64)
        memcpy(to + at, from + at, 64);
    memcpy(to + len - 64, from + len - 64, 64);
}

/* Takes `more` bytes of headroom: headers that TNA's ingress puts before a frame make it longer than the port's frames until
 * egress removes them. False: there is too little. */
static inline bool ina_into_headroom(struct ina_packet *to, uint32_t more)
{
    if (to->headroom < more + INA_TNA_EGRESS_FRONT)
        return false;
    to->data -= more;
    to->headroom -= more;
    to->tailroom += more;
    return true;
}

/* queue.c */
uint32_t ina_buffer_take(struct ina_switch *sw, const struct ina_packet *pkt); /* a copy of a frame that fits, or INA_NO_BLOCK */
void ina_buffer_give(struct ina_switch *sw, uint32_t i);
/* Queues a frame that enters again; returns its buffer, NULL: it was dropped and counted. */
struct ina_buffer *ina_loop_push(struct ina_switch *sw, const struct ina_packet *pkt, uint8_t instance_type,
                                 unsigned passes);
void ina_loop_back(struct ina_switch *sw, uint16_t port, const struct ina_packet *pkt, unsigned passes); /* of a loopback port */
void ina_link_push(struct ina_switch *sw, uint16_t port, const struct ina_packet *pkt, uint8_t passes, uint64_t now);
void ina_links_poll(struct ina_switch *sw, uint64_t now);
void ina_link_drop_all(struct ina_switch *sw, uint16_t port);
void ina_mark(struct ina_switch *sw, uint16_t port, const struct ina_packet *pkt); /* congestion experienced (ECN) */

void ina_outlet_drop_all(struct ina_switch *sw, uint16_t port); /* frames that wait there */
/* outlet.c: one copy of packet `source` of the batch leaves by a port of the outlet. `last`: it is the last one. */
void ina_outlet_send(struct ina_switch *sw, struct ina_packet *batch, unsigned source, struct ina_replica to,
                     uint8_t instance_type, bool last, uint64_t now);

/* egress.c: runs egress on `n` packets in memory from which they can be sent, and carries out its verdicts. Sets len 0 for
 * packets that are not to be sent. */
void ina_run_egress(struct ina_switch *sw, uint16_t port, struct ina_packet *pkts, unsigned n, const uint8_t *passes,
                    uint64_t now);
void ina_emit(struct ina_switch *sw, struct ina_packet *batch, uint64_t now); /* all emissions of the batch */
/* Copies of `n` packets of the batch, `sources`, to each member of a group with one copy for each port. */
void ina_emit_group(struct ina_switch *sw, const struct ina_members *group, const struct ina_packet *batch,
                    const struct ina_packet *const *sources, unsigned n, uint64_t now);
unsigned ina_lend(struct ina_switch *sw, uint16_t port, struct ina_packet *pkts, unsigned want);
void ina_send(struct ina_switch *sw, uint16_t port, struct ina_packet *pkts, unsigned n, uint64_t now);

/* switch.c: one more copy of packet `source` of the batch; ina_emit makes it. */
void ina_copy_to(struct ina_switch *sw, struct ina_packet *batch, unsigned source, struct ina_replica to,
                 uint8_t instance_type, uint64_t now);

/* tna_pipes.c: the counterparts of v1model's process and ina_run_egress */
int ina_tna_create(struct ina_switch *sw); /* before the switch's blocks are made, which it may enlarge: 0 or an errno */
int ina_tna_boot(struct ina_switch *sw);   /* after that */
void ina_tna_destroy(struct ina_tna_runtime *tna);
void ina_tna_process(struct ina_switch *sw, struct ina_packet *batch, unsigned n, const uint32_t *again, uint64_t now);
void ina_tna_run_egress(struct ina_switch *sw, uint16_t port, struct ina_packet *pkts, unsigned n, const uint8_t *passes,
                        uint64_t now);
bool ina_tna_has(const struct ina_tna_runtime *tna, uint32_t port); /* some pipe's */
void ina_tna_poll(struct ina_switch *sw, uint64_t now); /* tna_pktgen.c: generated packets enter */
uint64_t ina_tna_next_due(const struct ina_switch *sw);
int ina_tna_execute(struct ina_switch *sw, const struct ina_command *c); /* tna_control.c */

/* observe.c */
void ina_digest_add(struct ina_switch *sw, const struct ina_packet *pkt, uint32_t number, uint64_t now);
unsigned ina_digest_drain(struct ina_switch *sw, uint8_t *into, uint64_t stride, unsigned max, uint64_t *lost);

#endif
