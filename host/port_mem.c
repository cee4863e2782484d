/* Two ports of one process, cross-connected: a segment in the process's own memory, with a bell at each end. */
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

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
    int bells[2] = {eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    int error = bells[0] < 0 || bells[1] < 0 ? errno : 0;
    pair[0] = pair[1] = NULL;
    for (int side = 0; side < 2 && !error; side++) {
        pair[side] = ina_segment_port(segment, side, bells[side], bells[!side]);
        if (pair[side])
            segment->owners++;
        else
            error = errno;
    }
    for (int side = 0; side < 2; side++) {
        if (bells[side] >= 0)
            close(bells[side]); /* the ports have their own */
        if (error && pair[side]) {
            ina_port_close(pair[side]);
            pair[side] = NULL;
        }
    }
    ina_segment_release(segment); /* the ports own it now */
    return -error;
}
