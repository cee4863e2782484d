/* A port over shared memory: a segment in a memfd, which has no name and vanishes with its last user. */
#define _GNU_SOURCE 1 /* memfd_create, seals */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "segment.h"

int ina_shm_create(uint32_t frames, uint32_t max_frame)
{
    size_t size = ina_segment_size(frames, max_frame);
    if (!size)
        return -EINVAL;
    int fd = memfd_create("ina-port", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    void *base = MAP_FAILED;
    /* Sealed: a peer that shrank it could kill the other side with SIGBUS. */
    if (ftruncate(fd, (off_t)size) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        int error = errno;
        close(fd);
        return -error;
    }
    ina_segment_format(base, frames, max_frame);
    munmap(base, size);
    return fd;
}

struct ina_port *ina_port_shm_open(int memfd, int side, int bell, int peer_bell)
{
    struct stat st;
    if (fstat(memfd, &st) < 0)
        return NULL;
    const int seals = fcntl(memfd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK)) {
        errno = EPROTO;
        return NULL;
    }
    struct ina_segment *segment = ina_segment_map(memfd, 0, (size_t)st.st_size);
    struct ina_port *port = segment ? ina_segment_port(segment, side, side == 0, bell, peer_bell) : NULL;
    if (segment && !port) {
        const int error = errno;
        ina_segment_release(segment);
        errno = error;
    }
    return port;
}
