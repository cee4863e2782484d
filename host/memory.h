/* Large blocks that begin as zeros and of which most may never be used: what nobody touches takes no memory. calloc promises
 * that only until something large has been freed; from then on it clears what it gives again.
 */
#ifndef INA_MEMORY_H
#define INA_MEMORY_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef __SANITIZE_ADDRESS__
#define INA_MAPPED SIZE_MAX      /* the sanitizer looks after what malloc gives */
#else
#define INA_MAPPED (64u * 1024)  /* bytes, from which on a block has pages of its own */
#endif

/* Aligned to cache lines; or NULL. */
static inline void *ina_zeroed(size_t bytes)
{
    bytes = (bytes + 63) & ~(size_t)63;
    if (bytes >= INA_MAPPED) {
        void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        return p == MAP_FAILED ? NULL : p;
    }
    void *p = aligned_alloc(64, bytes ? bytes : 64);
    return p ? memset(p, 0, bytes) : NULL;
}

/* `bytes`: as asked for. */
static inline void ina_release(void *p, size_t bytes)
{
    bytes = (bytes + 63) & ~(size_t)63;
    if (p && bytes >= INA_MAPPED)
        munmap(p, bytes);
    else
        free(p);
}

#endif
