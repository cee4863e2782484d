/* Sparse blocks: which blocks of a tensor have a value other than zero. */
#ifndef INA_SPARSE_H
#define INA_SPARSE_H

#include <stddef.h>
#include <stdint.h>

/* used: one for each block of `block` values, the last of which may be shorter: 1 where any is not 0 (-0 is 0, NaN is not).
 * size: bytes of a value, 4 (float32) or 8 (float64). */
void ina_sparse_used(size_t count, uint32_t size, uint32_t block, const void *x, uint8_t *used);

#endif
