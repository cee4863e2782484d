/* Program: the compiler's output, one shared object per P4 program; no globals, no allocation, no clock.
 *
 * It exports `const struct ina_program ina_program`. A program is a pure function of (state, tables, packet, now):
 * parse, ingress control -> [runtime: replicate, queue] -> egress control, deparse. `state` is one caller-owned block
 * without pointers: registers and other stateful externs first, statistics (counters) in a tail from `stats_offset`.
 *
 * ingress: for each packet: parser, checksum verification, ingress control; leaves headers and metadata in pkt->meta
 *   (the frame's bytes may stay where they are) and a verdict. The fields for requests (clone, digest) are zero before.
 * egress: for each packet (a replica has its own copy of meta, unless READS_META, and of the frame, at any address): egress control,
 *   checksum update, deparser; data/len are then the frame to send, and the verdict INA_UNICAST or INA_DROP. wire_len
 *   has grown and shrunk with len.
 *   The frame of a replica is copied by the runtime with the same headroom before egress, byte for byte.
 *
 * A frame that enters again has `instance_type` INA_RESUBMITTED, INA_RECIRCULATED, INA_INGRESS_CLONE or INA_EGRESS_CLONE,
 * the metadata of its former pass in `meta` and the list to preserve in `field_list` (a clone's comes from `clone_list`). For the two clones `ingress` only
 * parses: they go to their session's replicas. A program that resubmits or clones in ingress leaves the frame's bytes alone
 * there; a clone of egress is the deparsed frame.
 *
 * All this is v1model's. Of a TNA program both phases are complete (parser, control, deparser) and nothing but the frame
 * is carried from one to the other; tna.h describes the metadata in front of the frame and the program's requests. A
 * `Switch` of several pipelines is a list of programs by `next`, each with tables, state and layout of its own; a switch
 * has a state block for each of its pipes (port >> 7), also where they run the same pipeline.
 */
#ifndef INA_PROGRAM_H
#define INA_PROGRAM_H

#include <stddef.h>
#include <stdint.h>

#include "packet.h"

enum { INA_PROGRAM_ABI = 2 };
/* Least headroom before the frame when ingress is called; v1model's needs less (its deparser moves the rest of the frame if the
 * headroom is too small). */
enum { INA_HEADROOM = 128, INA_LEAST_HEADROOM = 32 };

enum ina_architecture { INA_V1MODEL = 0, INA_TNA = 1 };

/* flags */
enum {
    INA_PROGRAM_KEEP_INGRESS = 1, /* TNA: ingress may mirror or resubmit: the runtime keeps a copy of the frame as it came */
    INA_PROGRAM_READS_META = 2    /* v1model: egress leaves the metadata as they are: replicas may share those of their packet */
};

struct ina_tables; /* table.h */

struct ina_program {
    uint32_t abi;          /* INA_PROGRAM_ABI */
    uint32_t table_count;
    uint32_t architecture; /* enum ina_architecture */
    uint32_t flags;
    const struct ina_program *next; /* TNA: the next pipeline of the Switch; NULL: this is the last */
    const char *pipeline;  /* TNA: what the program calls this pipeline ("pipe"); else "" */
    const char *name;      /* of the source file, for people only */
    const char *source_hash; /* hex SHA-256 of the preprocessed source without line markers */
    const char *p4info;    /* P4Info in protobuf's JSON mapping, of the whole Switch */
    const char *layout;    /* JSON: where registers and counters lie in state, key and parameter words of tables */
    uint64_t state_size, stats_offset;
    uint64_t meta_size;    /* bytes of pkt->meta, 64-byte aligned by the caller */
    uint64_t max_grow;     /* most bytes the deparser may add to a frame */
    void (*init)(void *state, uint64_t seed); /* of state that is all zeros: cells that nobody uses are not touched */
    void (*ingress)(void *state, const struct ina_tables *tables, struct ina_packet *pkts, unsigned n, uint64_t now);
    void (*egress)(void *state, const struct ina_tables *tables, struct ina_packet *pkts, unsigned n, uint64_t now);
};

#endif
