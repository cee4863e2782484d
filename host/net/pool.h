/* Blocks of one size, by handle, while there is memory. They lie in chunks that never move, and the block that was
 * freed last is handed out first. Blocks begin at multiples of the size, and chunks at a cache line. */
#ifndef INA_POOL_H
#define INA_POOL_H

#include <stddef.h>
#include <stdint.h>

enum { INA_POOL_CHUNK = 256 };  /* blocks */
#define INA_NO_BLOCK UINT32_MAX

struct ina_pool {               /* zeroes but for the stride: empty */
    uint8_t **chunks;
    uint32_t *free;             /* a stack of handles */
    uint32_t stride;            /* bytes of a block */
    uint32_t chunk_count, free_count;
};

int ina_pool_grow(struct ina_pool *pool); /* by a chunk; 0, -ENOMEM */
void ina_pool_destroy(struct ina_pool *pool);

static inline uint32_t ina_pool_get(struct ina_pool *pool) /* INA_NO_BLOCK: out of memory */
{
    if (__builtin_expect(!pool->free_count, 0) && ina_pool_grow(pool))
        return INA_NO_BLOCK;
    return pool->free[--pool->free_count];
}

static inline void ina_pool_put(struct ina_pool *pool, uint32_t handle)
{
    pool->free[pool->free_count++] = handle;
}

static inline void *ina_pool_at(const struct ina_pool *pool, uint32_t handle)
{
    return pool->chunks[handle / INA_POOL_CHUNK] + (size_t)(handle % INA_POOL_CHUNK) * pool->stride;
}

static inline uint32_t ina_pool_size(const struct ina_pool *pool) /* blocks that there are, used or not */
{
    return pool->chunk_count * INA_POOL_CHUNK;
}

static inline uint32_t ina_pool_used(const struct ina_pool *pool)
{
    return ina_pool_size(pool) - pool->free_count;
}

#endif
