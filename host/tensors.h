/* Tensors in flight as runs of numbered packets: what packet number q carries, and what its result means. Shared by the
 * protocols (switchml.c, atp.c), which know windows, timers and headers and nothing of this.
 *
 * Packets are numbered over the life of the job. A tensor is a run of them, number p = q - first:
 *
 *     p = 0        open: fingerprint of the tensor; and all of it, if it fits and is summed (int32 as it is, float32 exact)
 *     0 < p < m    float32: exponent of block p, no values; m = min(blocks, window). int32: none, m = 1
 *     p = m + j    block j
 *
 * Every float32 packet p carries the exponent of block p while there is one, so the exponent of block j is agreed by the
 * result of packet j, at least one round trip before packet m + j needs it. A protocol sends packet q only when it has
 * the result of q - window.
 *
 * Values without pointers: struct ina_tensors belongs to the head of a protocol's state, struct ina_tensor_times to the tail.
 */
#ifndef INA_TENSORS_H
#define INA_TENSORS_H

#include "protocol.h"

enum { INA_FINGERPRINT_WORDS = 3, INA_EXP_AGREED = -128 };

struct ina_op {                   /* a tensor in flight */
    uint64_t first, packets, unanswered;
    uint64_t count, blocks;
    uint64_t ahead;               /* m: packets before the first block */
    uint32_t fingerprint[INA_FINGERPRINT_WORDS];
    uint8_t dtype, average, is_inline, overflow;
    uint8_t opened, mismatch;     /* its open packet is answered; and the workers do not agree */
    uint8_t reduction, exponents; /* exponents: of every block, agreed one round trip ahead */
};

struct ina_tensors {
    uint32_t workers, values, window, shift;
    int32_t exponent;             /* fixed point: of every block; INA_EXP_AGREED: block floating point */
    uint32_t floats;              /* 1: the protocol has a way for blocks that integers cannot carry (INA_OUTCOME_FLOATS) */
    uint64_t next_seq;            /* packets given to tensors so far */
    uint64_t ops_begin, ops_open, ops_end; /* ordinals: oldest kept, oldest unfinished, next; handle = ordinal mod 64 */
    uint64_t fetched;             /* bit per handle: its event has been read */
    uint64_t done_begin, done_end;
    uint8_t done[INA_MAX_OPS];    /* handles in order of completion */
    struct ina_op op[INA_MAX_OPS];
    uint32_t failed;              /* enum ina_error; 0: the job lives */
    uint32_t suspect;             /* 1: some tensor is a mismatch, an older one may be */
    struct ina_event culprit;     /* slot, tsi, missing, have_missing of the events of a failed job */
    int8_t agreed[];              /* [INA_MAX_OPS][window]: exponents by block mod window; -128: not yet */
};

struct ina_tensor_times {
    uint64_t started[INA_MAX_OPS]; /* when the first packet could be sent; 0: not yet */
    uint64_t last_rx;             /* of the last accepted frame */
};

size_t ina_tensors_size(uint32_t window);
void ina_tensors_init(struct ina_tensors *ts, const struct ina_worker_config *config, int32_t exponent, uint32_t floats);

/* As in struct ina_protocol; submit appends the tensor's packets: ts->next_seq grows. */
int ina_tensors_next_handle(const struct ina_tensors *ts);
int ina_tensors_submit(struct ina_tensors *ts, struct ina_tensor_times *times, const struct ina_tensor *tensors, int handle);
int ina_tensors_events(struct ina_tensors *ts, const struct ina_tensor_times *times, struct ina_event *events, int max);

enum ina_packet_status { INA_PACKET_NONE, INA_PACKET_BLOCKED, INA_PACKET_READY };
/* Can packet seq be sent? NONE: no tensor has it yet; BLOCKED: the exponent of its block is not agreed yet. Notes that its
 * tensor has started. *handle: in, any handle, best that of the packet before; out, its own unless NONE. */
enum ina_packet_status ina_tensors_status(const struct ina_tensors *ts, struct ina_tensor_times *times, uint64_t seq,
                                          uint32_t *handle, uint64_t now);
/* Has packet seq values, and what is wanted of them? (The open packet's are always summed.) */
enum ina_contents { INA_CONTENTS_NONE, INA_CONTENTS_SUM, INA_CONTENTS_MAX };
static inline enum ina_contents ina_tensors_contents(const struct ina_tensors *ts, uint32_t handle, uint64_t seq)
{
    const struct ina_op *op = &ts->op[handle];
    if (seq - op->first >= op->ahead)
        return op->reduction == INA_MAX ? INA_CONTENTS_MAX : INA_CONTENTS_SUM;
    return seq == op->first ? INA_CONTENTS_SUM : INA_CONTENTS_NONE;
}
/* Writes the values of packet seq (4 * values bytes; none: wire is not touched); returns its exponent. */
int ina_tensors_encode(const struct ina_tensors *ts, const struct ina_tensor *tensors, uint32_t handle, uint64_t seq,
                       uint8_t *wire);
/* Is it known already that integers cannot carry this packet's block? (A NaN, an infinity, or beyond 2^126.) */
int ina_tensors_needs_floats(const struct ina_tensors *ts, uint32_t handle, uint64_t seq);
/* As encode, with the packet's block, or its small tensor, as big-endian float32 (zeros behind). */
int ina_tensors_encode_floats(const struct ina_tensors *ts, const struct ina_tensor *tensors, uint32_t handle, uint64_t seq,
                              uint8_t *wire);

struct ina_result {               /* what came back for packet seq */
    const uint8_t *wire;          /* 4 * values bytes; NULL: none */
    int exponent;                 /* the largest of all workers' */
    int overflow;
    int floats;                   /* the sums are float32 */
};
enum ina_outcome {
    INA_OUTCOME_OK = 0,           /* taken; *unblocked may now be READY (UINT64_MAX: none) */
    INA_OUTCOME_MALFORMED = 1,    /* not taken: it cannot be of this packet */
    INA_OUTCOME_MISMATCH = 2,     /* the workers do not agree: send nothing more of this tensor; *culprit is the handle with
                                   * which the job fails, or -1: not before older tensors have been compared, too */
    INA_OUTCOME_FLOATS = 3        /* integers cannot carry it: packet seq is to be sent again, as floats, by all workers */
};
enum ina_outcome ina_tensors_result(struct ina_tensors *ts, const struct ina_tensor *tensors, uint32_t handle, uint64_t seq,
                                    const struct ina_result *result, struct ina_worker_stats *stats, uint64_t *unblocked,
                                    int *culprit);

/* The job is over: fails every tensor in flight, `handle` first. Events say what ts->culprit says. */
void ina_tensors_fail(struct ina_tensors *ts, uint32_t code, uint32_t handle);
static inline uint32_t ina_tensors_oldest(const struct ina_tensors *ts)
{
    return (uint32_t)(ts->ops_open % INA_MAX_OPS);
}
/* Deadline of the oldest tensor in flight; UINT64_MAX: none. */
uint64_t ina_tensors_deadline(const struct ina_tensors *ts, const struct ina_tensor_times *times, uint64_t timeout);

#endif
