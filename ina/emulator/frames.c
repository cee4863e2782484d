/* Buffers of frames in virtual time: handles that stay valid, memory that never moves, a free list. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"

enum { CHUNK = 256 };

int ina_frames_init(struct ina_frames *frames, uint32_t max_frame)
{
    memset(frames, 0, sizeof *frames);
    frames->stride = (uint32_t)((sizeof(struct ina_stored_frame) + INA_HEADROOM + max_frame + 64 + 63) & ~63u);
    return 0;
}

void ina_frames_destroy(struct ina_frames *frames)
{
    for (uint32_t i = 0; i < frames->chunk_count; i++)
        free(frames->chunks[i]);
    free(frames->chunks);
    free(frames->free);
}

static int grow(struct ina_frames *frames)
{
    uint8_t **chunks = realloc(frames->chunks, (frames->chunk_count + 1) * sizeof *chunks);
    if (!chunks)
        return -ENOMEM;
    frames->chunks = chunks;
    uint32_t *list = realloc(frames->free, (size_t)(frames->chunk_count + 1) * CHUNK * sizeof *list);
    if (!list)
        return -ENOMEM;
    frames->free = list;
    uint8_t *chunk = aligned_alloc(64, (size_t)CHUNK * frames->stride);
    if (!chunk)
        return -ENOMEM;
    frames->chunks[frames->chunk_count] = chunk;
    for (uint32_t i = CHUNK; i > 0; i--)
        frames->free[frames->free_count++] = frames->chunk_count * CHUNK + i - 1;
    frames->chunk_count++;
    return 0;
}

uint64_t ina_frames_used(const struct ina_frames *frames)
{
    return (uint64_t)frames->chunk_count * CHUNK - frames->free_count;
}

uint32_t ina_frames_get(struct ina_frames *frames)
{
    if (!frames->free_count && grow(frames))
        return UINT32_MAX;
    return frames->free[--frames->free_count];
}

void ina_frames_put(struct ina_frames *frames, uint32_t handle)
{
    frames->free[frames->free_count++] = handle;
}

static struct ina_stored_frame *stored(const struct ina_frames *frames, uint32_t handle)
{
    return (struct ina_stored_frame *)(frames->chunks[handle / CHUNK] + (size_t)(handle % CHUNK) * frames->stride);
}

void ina_frames_lend(const struct ina_frames *frames, uint32_t handle, struct ina_packet *pkt)
{
    struct ina_stored_frame *frame = stored(frames, handle);
    uint32_t room = frames->stride - (uint32_t)sizeof *frame;
    memset(pkt, 0, sizeof *pkt);
    pkt->data = (uint8_t *)(frame + 1) + frame->offset;
    pkt->len = frame->len;
    pkt->wire_len = frame->wire_len;
    pkt->headroom = frame->offset;
    pkt->tailroom = room - frame->offset - frame->len;
}

void ina_frames_blank(const struct ina_frames *frames, uint32_t handle, struct ina_packet *pkt)
{
    struct ina_stored_frame *frame = stored(frames, handle);
    frame->offset = INA_HEADROOM;
    frame->len = frame->wire_len = 0;
    ina_frames_lend(frames, handle, pkt);
}

void ina_frames_store(const struct ina_frames *frames, uint32_t handle, const struct ina_packet *pkt)
{
    struct ina_stored_frame *frame = stored(frames, handle);
    frame->offset = (uint32_t)(pkt->data - (uint8_t *)(frame + 1));
    frame->len = pkt->len;
    frame->wire_len = pkt->wire_len < pkt->len ? pkt->len : pkt->wire_len;
}

uint32_t ina_frames_copy(struct ina_frames *frames, const uint8_t *data, uint32_t len, uint32_t wire_len)
{
    uint32_t handle = ina_frames_get(frames);
    if (handle == UINT32_MAX)
        return handle;
    struct ina_packet pkt;
    ina_frames_blank(frames, handle, &pkt);
    memcpy(pkt.data, data, len);
    pkt.len = len;
    pkt.wire_len = wire_len;
    ina_frames_store(frames, handle, &pkt);
    return handle;
}
