/* Indices of THC's levels (p4/include/thc): a word of a tensor has four, one in each byte, of which the lower 4 bits travel; the
 * result has in each byte the sum of the workers' levels. A byte has room for 8 workers: more are refused, as sums would carry.
 *
 * A packet's check words are those of its levels: what the switch adds up is what the workers have summed, look-up included.
 */
#ifndef INA_INDICES_H
#define INA_INDICES_H

#include <stddef.h>
#include <stdint.h>

#include "check.h"

enum { INA_LEVELS = 16, INA_LEVELS_WORKERS = 8 }; /* 255 / the largest level, 30 */
extern const uint8_t ina_levels[INA_LEVELS]; /* by index: LEVELS of p4/include/thc/levels.p4 */

/* Packs `count` words of indices into half of their bytes, in place; with_check: adds the check words of their levels. */
void ina_indices_pack(uint8_t *wire, size_t count, struct ina_check *check, int with_check);

#endif
