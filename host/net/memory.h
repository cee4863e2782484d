/* Large zeroed blocks that may be mostly unused: untouched pages take no memory. calloc does so only until something large
 * has been freed; from then on it clears recycled blocks.
 */
#ifndef INA_MEMORY_H
#define INA_MEMORY_H

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined __SANITIZE_ADDRESS__ /* GCC */
#define INA_ADDRESS_SANITIZER 1
#elif defined __has_feature /* clang */
#define INA_ADDRESS_SANITIZER __has_feature(address_sanitizer)
#else
#define INA_ADDRESS_SANITIZER 0
#endif

#if INA_ADDRESS_SANITIZER
#define INA_MAPPED SIZE_MAX      /* the sanitizer checks malloc's blocks only */
#else
#define INA_MAPPED (64u * 1024)  /* bytes, from which on a block has pages of its own */
#endif

enum { INA_PAGE = 4096 };

/* Rounds up to whole cache lines. */
static inline size_t ina_whole_lines(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

/* Aligned to cache lines; or NULL. Blocks begin at different lines of a page: those of a thousand links, say, would share a
 * few cache sets otherwise. */
static inline void *ina_zeroed(size_t bytes)
{
    static atomic_uint blocks;
    bytes = ina_whole_lines(bytes);
    if (bytes < INA_MAPPED) {
        void *p = aligned_alloc(64, bytes ? bytes : 64);
        return p ? memset(p, 0, bytes) : NULL;
    }
    uint8_t *p = mmap(NULL, bytes + INA_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p + 5 * 64 * atomic_fetch_add_explicit(&blocks, 1, memory_order_relaxed) % INA_PAGE;
}

/* `bytes`: as asked for. */
static inline void ina_release(void *p, size_t bytes)
{
    bytes = ina_whole_lines(bytes);
    if (p && bytes >= INA_MAPPED)
        munmap((void *)((uintptr_t)p & ~(uintptr_t)(INA_PAGE - 1)), bytes + INA_PAGE);
    else
        free(p);
}

#endif
