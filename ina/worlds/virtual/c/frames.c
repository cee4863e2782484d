/* Frames in virtual time: whole in a pool, or without their payload. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"

enum { ALIGNED = 64 };

static uint32_t aligned(uint32_t bytes)
{
    return (bytes + ALIGNED - 1) & ~(uint32_t)(ALIGNED - 1);
}

int ina_frames_init(struct ina_frames *frames, uint32_t max_frame, uint32_t headroom, int bare)
{
    memset(frames, 0, sizeof *frames);
    frames->bare = bare;
    frames->max_frame = max_frame;
    /* A cache line begins where the values do, as in ports (port.h). */
    frames->headroom = aligned(headroom + (uint32_t)sizeof(struct ina_stored_frame)) + INA_PORT_HEADROOM % ALIGNED
                        - (uint32_t)sizeof(struct ina_stored_frame);
    if (!bare) {
        frames->pool.stride = aligned((uint32_t)sizeof(struct ina_stored_frame) + frames->headroom + max_frame);
        return 0;
    }
    frames->pool.stride = aligned((uint32_t)sizeof(struct ina_stored_frame) + INA_KEPT_BYTES);
    frames->scratch_stride = aligned(frames->headroom + (uint32_t)sizeof(struct ina_stored_frame) + max_frame);
    frames->scratch = aligned_alloc(ALIGNED, (size_t)INA_SCRATCH * frames->scratch_stride);
    return frames->scratch ? 0 : -ENOMEM;
}

void ina_frames_destroy(struct ina_frames *frames)
{
    ina_pool_destroy(&frames->pool);
    free(frames->scratch);
}

/* Returns the scratch place of a frame without payload: its first byte, after the headroom. */
static uint8_t *bench_at(const struct ina_frames *frames, uint32_t place)
{
    return frames->scratch + (size_t)place * frames->scratch_stride + sizeof(struct ina_stored_frame) + frames->headroom;
}

void ina_frames_open(const struct ina_frames *frames, uint32_t handle, uint32_t place, struct ina_packet *pkt)
{
    const struct ina_stored_frame *frame = ina_frames_at(frames, handle);
    pkt->len = frame->len;
    pkt->wire_len = frame->wire_len;
    if (!frames->bare) {
        pkt->data = (uint8_t *)(frame + 1) + frame->offset;
        pkt->headroom = frame->offset;
        pkt->tailroom = frames->headroom + frames->max_frame - frame->offset - frame->len;
        return;
    }
    const uint32_t stored = frame->len < INA_KEPT_BYTES ? frame->len : INA_KEPT_BYTES;
    pkt->data = bench_at(frames, place);
    memcpy(pkt->data, frame + 1, stored);
    memset(pkt->data + stored, 0, frame->len - stored);
    pkt->headroom = frames->headroom;
    pkt->tailroom = frames->max_frame - frame->len;
}

void ina_frames_blank(const struct ina_frames *frames, uint32_t handle, uint32_t place, struct ina_packet *pkt)
{
    pkt->data = frames->bare ? bench_at(frames, place) : (uint8_t *)(ina_frames_at(frames, handle) + 1) + frames->headroom;
    pkt->len = pkt->wire_len = 0;
    pkt->headroom = frames->headroom;
    pkt->tailroom = frames->max_frame;
}

void ina_frames_store(const struct ina_frames *frames, uint32_t handle, const struct ina_packet *pkt)
{
    struct ina_stored_frame *frame = ina_frames_at(frames, handle);
    frame->len = pkt->len;
    frame->wire_len = pkt->wire_len < pkt->len ? pkt->len : pkt->wire_len;
    frame->entered = 0;
    if (frames->bare) {
        memcpy(frame + 1, pkt->data, pkt->len < INA_KEPT_BYTES ? pkt->len : INA_KEPT_BYTES);
        return;
    }
    frame->offset = (uint32_t)(pkt->data - (uint8_t *)(frame + 1));
    if (frame->offset < INA_LEAST_HEADROOM) { /* headers were added in front: the next switch needs headroom, too */
        memmove((uint8_t *)(frame + 1) + frames->headroom, pkt->data, pkt->len);
        frame->offset = frames->headroom;
    }
}

uint32_t ina_frames_twin(struct ina_frames *frames, uint32_t handle)
{
    uint32_t twin = ina_frames_get(frames);
    if (twin != UINT32_MAX)
        memcpy(ina_frames_at(frames, twin), ina_frames_at(frames, handle), frames->pool.stride);
    return twin;
}
