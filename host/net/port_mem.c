/* Two ports of one process, cross-connected: a segment in the process's own memory, with a bell at each end. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "segment.h"

int ina_port_mem_pair(uint32_t frames, uint32_t max_frame, struct ina_port *pair[2])
{
    size_t size = ina_segment_size(frames, max_frame);
    if (!size)
        return -EINVAL;
    struct ina_segment *segment = calloc(1, sizeof *segment);
    if (!segment)
        return -ENOMEM;
    *segment = (struct ina_segment){
        .size = size, .frames = frames, .max_frame = max_frame, .stride = ina_segment_stride(max_frame), .owners = 1};
    segment->base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (segment->base == MAP_FAILED) {
        int error = errno;
        free(segment);
        return -error;
    }
    struct ina_bells bells;
    int error = -ina_bells_create(&bells);
    pair[0] = pair[1] = NULL;
    for (int side = 0; side < 2 && !error; side++) {
        pair[side] = side ? ina_segment_port(segment, 1, 0, bells.of_host, bells.of_switch)
                          : ina_segment_port(segment, 0, 0, bells.of_switch, bells.to_host);
        if (pair[side])
            segment->owners++;
        else
            error = errno;
    }
    ina_bells_close(&bells); /* the ports have their own */
    for (int side = 0; side < 2; side++)
        if (error && pair[side]) {
            ina_port_close(pair[side]);
            pair[side] = NULL;
        }
    ina_segment_release(segment); /* the ports own it now */
    return -error;
}
