/* Protocol: the host side of in-network aggregation as a sans-IO state machine (protocols.h lists them).
 *
 *     submit(tensor) . receive(frames, now) . frames_to_send(now) . next_timer() . events()
 *
 * No socket, no clock, no allocation, no pointer inside: `state` is one caller-owned block of state_size(config) bytes,
 * statistics and times in a tail from stats_offset(config); a snapshot is memcpy, equality of behaviour is memcmp of
 * the head, a time-out is also an explicit call. Tensors are in a caller-owned table, by handle.
 */
#ifndef INA_PROTOCOL_H
#define INA_PROTOCOL_H

#include <stddef.h>
#include <stdint.h>

#include "address.h"
#include "completion.h"
#include "lane.h"
#include "packet.h"

enum { INA_WIRE_VERSION = 2 };  /* of the frames: p4/include/frame.p4 */
/* INA_OWN: the protocol's own reduction (a vote, say), used only where a caller names it. */
enum ina_reduction { INA_SUM = 0, INA_MAX = 1, INA_OWN = 2 };
/* Workers of a job: one for each bit of a bitmap on the wire; more where a protocol has no such bitmap, and switches of a tree
 * have bits for their children only (struct ina_protocol: max_workers). */
enum { INA_BITMAP_WORKERS = 32, INA_MAX_WORKERS = 1024, INA_MAX_OPS = 64 /* tensors in flight per worker */,
       INA_MAX_OPTIONS = 8 /* of a protocol */, INA_KEY_BYTES = 16 };

struct ina_worker_config {
    struct ina_address self, peer; /* peer: the switch */
    struct ina_address server; /* the job's parameter server; all zero: none */
    uint32_t job;            /* 0..255 */
    uint32_t life;           /* of the job's number, in its packets: 1..255, ATP 1..65535; 0: none, refused */
    uint32_t worker;         /* rank, 0..workers-1 */
    uint32_t workers;        /* fan-in n, 1..max_workers of the protocol */
    uint32_t slots;          /* window: slots of this job, power of two <= 8192 */
    uint32_t values;         /* per packet: 32, 64, 128, 256, 1024 or 2048 */
    uint32_t lane;           /* what they are: lane.h */
    uint64_t rto_min_ps, rto_max_ps;
    uint64_t timeout_ps;     /* deadline of a tensor from its first possible transmission */
    uint32_t reply_in_place; /* 1: receive() may turn received frames into the next ones (ports that can send it) */
    uint32_t rto_fixed;      /* 1: each packet is sent again after rto_min, whatever is heard (as published) */
    uint64_t first_packet;   /* number of the job's first packet, equal on all workers; 0 except in tests of the wrap */
    struct ina_rule rule;    /* the job's, equal on all workers */
    uint32_t options_set;    /* bit i: option i of the protocol is set, to option[i]; others have their default */
    int64_t option[INA_MAX_OPTIONS];
    uint8_t key[INA_KEY_BYTES]; /* the job's, for check words of mode keyed; all zero: none, and that mode is refused */
};

struct ina_option {          /* what a protocol, and no other, can be told */
    const char *name, *meaning;
    int64_t least, most;     /* of what can be set */
    int64_t unset;           /* its value where it is not set: any */
    uint32_t power_of_two;   /* 1: only powers of two can be set */
};

struct ina_piece {           /* of a tensor with a route: elements whose values come from some workers and go to some */
    uint64_t count;          /* elements; no block straddles pieces */
    uint64_t at;             /* where this worker has them, in elements of `in` and `out`, if it is in one of the sets */
    uint32_t sources, receivers; /* worker i in bit i; at all workers the same, as is the count */
};

/* Which workers' values a sum has, decided by the switch before it (p4/quorum.p4), or ATP's server (ps.c): an *offer*, a tensor without elements, asks for that,
 * and the next tensor, which is *chosen*, is a sum of those that it says. The others take part with zeros, and an average is over
 * those that have values. Both are submitted one right after the other, at all workers. */
enum ina_part { INA_PART_PLAIN = 0 /* neither */, INA_PART_OFFER = 1, INA_PART_CHOSEN = 2 };
enum ina_offer_state { INA_OFFER_ASK = 0, INA_OFFER_GIVE = 1, INA_OFFER_PASS = 2, INA_OFFER_OPEN = 3, INA_OFFER_DECIDED = 4 }; /* p4/include/quorum/headers.p4 */
struct ina_offer {
    uint32_t state;          /* ASK: this worker may contribute, GIVE: it can, PASS: it never will. After an ASK one of the others may follow */
    uint32_t least;          /* 1..workers: so many contributors are enough, once all have asked; may be lowered */
    uint32_t rivals;         /* bitmap of workers that would contribute the same: one of them is enough */
};

struct ina_tensor {          /* argument of submit; also the caller's table entry */
    const void *in;          /* contiguous; may equal out */
    void *out;
    uint64_t count;          /* elements */
    uint32_t dtype;          /* enum ina_dtype: floats, or the integers of the job's lane */
    uint32_t average;        /* float32: 1 divides the sum by workers */
    uint32_t reduction;      /* enum ina_reduction, one that the protocol has; INA_MAX: integers only */
    uint32_t routed;         /* 1, only in protocols with `routes`: its `pieces` say from whom and for whom; 0: from all, for all */
    uint64_t tag;            /* mixed into the agreement check (operation, ordinal): must be equal on all workers */
    const struct ina_piece *pieces; /* valid until the tensor is done; `count` elements together. Floats come from all workers */
    uint64_t *ends;          /* room for one of each piece, this tensor's alone until it is done; submit writes blocks up to the piece's end */
    uint64_t pieces_count;
    uint32_t part;           /* enum ina_part; of a chosen tensor `in` may be NULL until its offer says GIVE, and is then valid until it is done */
    struct ina_offer offer;  /* of an offer */
};

enum ina_event_type {
    INA_EVENT_DONE = 1,      /* tensor `op` is complete */
    INA_EVENT_FAILED = 2     /* the job is over: `code` is the reason; one for every tensor in flight, the failing one's first */
};
enum ina_error {
    INA_OK = 0,
    INA_ERR_TIMEOUT = 1,     /* deadline passed: slot, tsi, missing, last_rx */
    INA_ERR_MISMATCH = 2,    /* workers do not agree on dtype, op, size or tag of tensor `op` */
    INA_ERR_ABORTED = 3,     /* by the caller */
    INA_ERR_PEER = 4,        /* the switch or its process went away (endpoint) */
    INA_ERR_CORRUPT = 5,     /* a sum does not have its check words, however often it is sent: slot, tsi */
    INA_ERR_VERSION = 6,     /* a switch speaks another wire version: `tsi` */
    INA_ERR_RANK = 7,        /* deadline passed between hosts, without a switch's sums: rank `tsi` waits for rank `slot`, whose last_rx it is */
    INA_ERR_REFUSED = 8      /* the protocol does not reduce tensor `op` so: nothing of it was sent, and the job goes on */
};
struct ina_event {
    uint32_t type, code;
    uint32_t op;             /* handle of the tensor */
    uint32_t overflow;       /* 1: a signed overflow happened in some block (integers: the sum wrapped) */
    uint32_t slot, tsi;      /* TIMEOUT: oldest unfinished slot and its packet number */
    uint32_t missing;        /* TIMEOUT: bitmap of workers that a switch waited for, as of its last `pending` reply; in a job of
                              * more than INA_BITMAP_WORKERS, of the children of some switch of its tree */
    uint32_t have_missing;   /* 0: the switch never answered for this slot */
    uint64_t last_rx;        /* time of the last accepted frame, 0: none */
    uint32_t contributors;   /* DONE, of an offer or a chosen tensor: bitmap of the workers whose values the sum has */
};

struct ina_worker_stats {
    uint64_t tx_packets, tx_bytes, rx_packets, rx_bytes;
    uint64_t retransmissions; /* frames sent again: after a time-out, as a probe, since later ones had results, or for a result that did not fit */
    uint64_t timeouts, probes; /* of them: no answer to anything; the oldest packet, when its result is overdue */
    uint64_t fast_resends;    /* of them: results of packets sent later had come, or a parameter server lacked the values of one sent once */
    uint64_t spurious;        /* of them, needless: the result of the earlier transmission came, too */
    uint64_t delays;          /* timers that it came to too late, and needless probes after a silence: processors are busy */
    uint64_t pending_replies; /* answers "others are missing": of the switch, or of the parameter server */
    uint64_t results, duplicates;     /* accepted results; results already had */
    uint64_t drop_malformed, drop_foreign, drop_stale; /* not parseable; other job, life, address; old tsi */
    uint64_t drop_corrupt;      /* the checksum of the headers, or the check words of the values, do not fit */
    uint64_t drop_version;      /* of another wire version */
    uint64_t refusals;          /* of packets by a switch of another wire version: the first fails the job */
    uint64_t tensors, elements; /* of reductions that are done */
    uint64_t overflows;         /* results in which the switch marked a sum that has wrapped; of words that hold lanes it means nothing */
    uint64_t nonfinite_blocks;  /* results whose values include an infinity or a NaN */
    uint64_t srtt_ps, rttvar_ps, rto_ps; /* now: smoothed round-trip time, its variation, retransmission time-out (RFC 6298) */
    uint64_t float_blocks;            /* blocks that integers cannot represent, summed as floats (ATP) */
    uint64_t marked;                  /* results marked with ECN: a queue on the way was long (ATP) */
    uint64_t collided;                /* results whose aggregator another packet held (ATP) */
    uint64_t flushed;                 /* values of this worker other than zero that became zero, far below the largest of their block */
    uint64_t window;                  /* congestion window now, packets (ATP) */
    uint64_t waits_for;               /* now: bitmap of workers, as `missing` of struct ina_event, by the last pending reply since any result */
};

struct ina_protocol {
    const char *name;        /* also of its switch program: p4/<name>.p4 */
    uint32_t reductions;     /* bit i: it has enum ina_reduction i, exactly; callers do others without it, or refuse them */
    uint32_t keyed;          /* those of them whose check words can have a key */
    uint32_t routes;         /* 1: sums may be from and to some workers only (struct ina_tensor), but with keyed check words */
    uint32_t offers;         /* 1: tensors may be offers, and chosen; but with keyed check words */
    uint32_t max_workers;    /* of a job; 0: INA_BITMAP_WORKERS */
    const struct ina_option *options; /* up to INA_MAX_OPTIONS, then one without a name; NULL: there are none */
    size_t (*state_size)(const struct ina_worker_config *config);    /* 0: bad config */
    size_t (*stats_offset)(const struct ina_worker_config *config);
    int (*init)(void *state, const struct ina_worker_config *config, uint64_t now); /* 0 or -EINVAL */
    /* Handle of the tensor (index into `tensors`, < INA_MAX_OPS) or -EAGAIN (all in flight), -EINVAL, -EPIPE (job failed).
     * The caller has put it at tensors[handle] where handle = next_handle(state) before the call. */
    int (*next_handle)(const void *state);
    int (*submit)(void *state, const struct ina_tensor *tensors, int handle, uint64_t now);
    /* Takes n frames that have come by now, in order. Any bytes are safe: only a result of the packet in flight of its slot is
     * taken; others are dropped and counted. Returns how many of them were rewritten into frames to send back (only with
     * reply_in_place): their descriptors are the first ones of pkts then. */
    int (*receive)(void *state, const struct ina_tensor *tensors, struct ina_packet *pkts, int n, uint64_t now);
    /* Fills up to n lent frames (tailroom >= frame size); returns how many. Call again until it returns less than n. */
    int (*frames_to_send)(void *state, const struct ina_tensor *tensors, struct ina_packet *pkts, int n, uint64_t now);
    uint64_t (*next_timer)(const void *state);                       /* UINT64_MAX: none */
    /* Explicit time-out of one slot at any time: for the explorer. 0, or -ENOENT: nothing in flight there. */
    int (*expire)(void *state, uint32_t slot, uint64_t now);
    int (*abort)(void *state, uint32_t code, uint64_t now);          /* fails every tensor in flight, and the job */
    int (*events)(void *state, struct ina_event *events, int max);
    /* tensors[handle].offer has changed, as its states may: what is new is sent at once. 0, or -EINVAL: no offer, or no such change. Only
     * with `offers`. */
    int (*amend)(void *state, const struct ina_tensor *tensors, int handle, uint64_t now);
    uint32_t (*frame_size)(const struct ina_worker_config *config);  /* longest frame, bytes */
};

/* 1: known dtype, buffers not NULL, average only of sums of floats, maxima only of integers, only sums from or to some workers; an offer
 * without elements, and of enough. */
int ina_tensor_valid(const struct ina_tensor *tensor);
/* Submits a copy of *tensor; of a chosen one (enum ina_part) first its offer, whose handle is the one before. The tensor's handle, or what
 * next_handle or submit says: then there is no offer either, unless the job has failed. */
int ina_protocol_submit(const struct ina_protocol *protocol, void *state, struct ina_tensor *tensors, const struct ina_tensor *tensor, uint64_t now);
/* Says of the offer of the chosen tensor `handle` what it is now, and where the tensor's values are. 0, or -EINVAL: it stays as it was. */
int ina_protocol_amend(const struct ina_protocol *protocol, void *state, struct ina_tensor *tensors, int handle, const struct ina_offer *offer,
                       const void *in, uint64_t now);
#ifndef INA_CDEF
/* 1: options that are set are there, and within their ranges. */
static inline int ina_options_valid(const struct ina_option *options, const struct ina_worker_config *config)
{
    uint32_t set = config->options_set;
    for (uint32_t i = 0; options && options[i].name; i++, set >>= 1) {
        const int64_t value = config->option[i];
        if (set & 1 && (value < options[i].least || value > options[i].most || (options[i].power_of_two && (value & (value - 1)))))
            return 0;
    }
    return !set;
}

static inline int64_t ina_option(const struct ina_option *options, const struct ina_worker_config *config, uint32_t index)
{
    return config->options_set >> index & 1 ? config->option[index] : options[index].unset;
}

static inline int ina_protocol_has(const struct ina_protocol *protocol, uint32_t reduction)
{
    return reduction <= INA_OWN && (protocol->reductions >> reduction & 1);
}

static inline int ina_tensor_is_routed(const struct ina_tensor *tensor)
{
    return tensor->routed != 0;
}

/* 1: the tensor is valid, and the protocol has its reduction, and its route. */
static inline int ina_protocol_takes(const struct ina_protocol *protocol, const struct ina_tensor *tensor)
{
    return ina_tensor_valid(tensor) && ina_protocol_has(protocol, tensor->reduction)
           && (!ina_tensor_is_routed(tensor) || protocol->routes) && (tensor->part == INA_PART_PLAIN || protocol->offers);
}
#endif

#endif
