#include "pool.h"

#include <errno.h>
#include <stdlib.h>

enum { LINE = 64, MOST_CHUNKS = UINT32_MAX / INA_POOL_CHUNK };

int ina_pool_grow(struct ina_pool *pool)
{
    if (pool->chunk_count == MOST_CHUNKS)
        return -ENOMEM;
    if (!(pool->chunk_count & (pool->chunk_count - 1))) { /* lists double */
        const size_t most = pool->chunk_count ? 2 * (size_t)pool->chunk_count : 1;
        uint8_t **chunks = realloc(pool->chunks, most * sizeof *chunks);
        if (!chunks)
            return -ENOMEM;
        pool->chunks = chunks;
        uint32_t *list = realloc(pool->free, most * INA_POOL_CHUNK * sizeof *list);
        if (!list)
            return -ENOMEM;
        pool->free = list;
    }
    const size_t bytes = (size_t)INA_POOL_CHUNK * pool->stride;
    uint8_t *chunk = aligned_alloc(LINE, (bytes + LINE - 1) & ~(size_t)(LINE - 1));
    if (!chunk)
        return -ENOMEM;
    pool->chunks[pool->chunk_count] = chunk;
    for (uint32_t i = INA_POOL_CHUNK; i > 0; i--)
        ina_pool_put(pool, pool->chunk_count * INA_POOL_CHUNK + i - 1);
    pool->chunk_count++;
    return 0;
}

void ina_pool_destroy(struct ina_pool *pool)
{
    for (uint32_t i = 0; i < pool->chunk_count; i++)
        free(pool->chunks[i]);
    free(pool->chunks);
    free(pool->free);
}
