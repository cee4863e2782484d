/* Integers as limbs: see integers.h. */
#include "integers.h"

void ina_integers_split(size_t count, const int64_t *x, unsigned words, int32_t *limbs)
{
    for (unsigned word = 0; word + 1 < words; word++, limbs += count)
        for (size_t i = 0; i < count; i++)
            limbs[i] = (int32_t)(x[i] >> word * INA_LIMB_BITS & ((1 << INA_LIMB_BITS) - 1));
    for (size_t i = 0; i < count; i++)
        limbs[i] = (int32_t)(x[i] >> (words - 1) * INA_LIMB_BITS);
}

static inline int64_t limb(const void *limbs, int wide, size_t i)
{
    return wide ? ((const int64_t *)limbs)[i] : ((const int32_t *)limbs)[i];
}

static inline void join(size_t count, const void *limbs, int wide, unsigned words, int64_t *restrict x)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t total = 0;
        for (unsigned word = words; word-- > 0;)
            total = (total << INA_LIMB_BITS) + (uint64_t)limb(limbs, wide, word * count + i);
        x[i] = (int64_t)total;
    }
}

void ina_integers_join(size_t count, const void *limbs, int wide, unsigned words, int64_t *x)
{
    if (!wide && words == 3) /* the switch's: with constants the loop works on vectors */
        join(count, limbs, 0, 3, x);
    else
        join(count, limbs, wide, words, x);
}

void ina_integers_average(size_t count, const void *limbs, int wide, unsigned words, uint32_t divisor, int64_t *x)
{
    for (size_t i = 0; i < count; i++) {
        __int128 total = 0;
        for (unsigned word = words; word-- > 0;)
            total = total * (1 << INA_LIMB_BITS) + limb(limbs, wide, word * count + i);
        x[i] = (int64_t)(total / divisor);
    }
}
