/* Inside host/: the memory that two ports share, and the port on one side of it. port_shm.c puts it in a memfd,
 * port_mem.c in the process's own memory.
 *
 *   header | control of ring 0, 1 | descriptors of ring 0, 1 | frames of ring 0, 1
 *
 * Ring 0 goes from side 0 to side 1, ring 1 back. A frame is `stride` bytes: headroom, then room for max_frame. */
#ifndef INA_SEGMENT_H
#define INA_SEGMENT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "port.h"

enum { INA_LINE = 64, INA_LINE_PAIR = 128, INA_SEGMENT_ABI = 2 };

struct ina_segment_header {
    uint64_t magic;
    uint32_t abi, frames, max_frame, stride;
    uint64_t size;
};

/* Each index has one writer. Pairs of cache lines, because the adjacent-line prefetcher couples two. */
struct ina_ring_control {
    _Alignas(INA_LINE_PAIR) _Atomic uint32_t head;  /* frames ever sent (producer) */
    _Alignas(INA_LINE_PAIR) _Atomic uint32_t tail;  /* frames ever given back (consumer) */
    _Alignas(INA_LINE_PAIR) _Atomic uint32_t armed; /* set by a consumer that goes to sleep, cleared by its waker */
};

struct ina_ring_desc {
    uint32_t len, wire_len, offset, reserved;
};

/* One mapping, owned by `owners` ports. */
struct ina_segment {
    uint8_t *base;
    size_t size;
    uint32_t frames, max_frame, stride;
    _Atomic int owners;
};

_Static_assert(sizeof(struct ina_segment_header) == 32, "segment header");
_Static_assert(sizeof(struct ina_ring_control) == 3 * INA_LINE_PAIR, "ring control");
_Static_assert(sizeof(struct ina_ring_desc) == 16, "ring descriptor");

uint32_t ina_segment_stride(uint32_t max_frame);
size_t ina_segment_size(uint32_t frames, uint32_t max_frame); /* 0: numbers out of range */
/* Writes the header of fresh, zeroed memory. */
void ina_segment_format(uint8_t *base, uint32_t frames, uint32_t max_frame);
/* Maps a segment of `size` bytes that another process wrote, from byte `at` of a memfd on, for one owner. NULL + errno (EPROTO). */
struct ina_segment *ina_segment_map(int memfd, uint64_t at, size_t size);
void ina_segment_release(struct ina_segment *segment); /* the last owner unmaps */
/* One side's port; on success it owns a share of the segment. NULL + errno. `wary`: the peer may go on writing to frames that it
 * has sent, so they are copied before use; then at most 64 are lent at once. */
struct ina_port *ina_segment_port(struct ina_segment *segment, int side, int wary, int bell, int peer_bell);
/* With no frame lent: goes on where another port on the same side, of another process, has left off. */
void ina_segment_resume(struct ina_port *port);

#endif
