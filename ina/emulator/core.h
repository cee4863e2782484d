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

#endif
