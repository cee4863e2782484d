#include "check.h"

#include "kernel.h"
#include "values.h"

enum { COLUMNS = 32 }; /* every packet has a multiple of 32 values */

/* Odd, so that no change of one value is lost: splitmix64(1), (2), ...; the higher 32 bits, the last of them set. */
static const uint32_t weights0[COLUMNS] = {
    0xe220a839, 0x6e789e6b, 0x06c45d19, 0xf88bb8a9, 0x1b39896b, 0x53cb9f0d, 0x2c829abf, 0xc584133b,
    0x3ee57891, 0xf3b8488d, 0x657eecdd, 0xc2d326e1, 0x8621a03f, 0x8e1f7555, 0xb54e0f17, 0x84bb3f97,
    0x7d29825d, 0xc3cf1711, 0x3466e9a1, 0xd81a8d2b, 0xdb01602b, 0xa9038a93, 0xedf5f1d9, 0x54496ad7,
    0xdd7c01d5, 0x935e82f1, 0x69b82ebd, 0x40d29eb5, 0xa2f09dab, 0xee521d7b, 0xf16952ef, 0x377d35df,
};
static const uint32_t weights1[COLUMNS] = {
    0x0c7de807, 0x05582d37, 0xd254741f, 0x69630f75, 0x417ef961, 0x3c3c41a3, 0x6e19905d, 0x4fa9fa73,
    0x84eb4455, 0x134f7097, 0x07dc930b, 0x12c015a9, 0xcc06c317, 0xecee6563, 0x3e84ecb1, 0x690ed477,
    0x774615d7, 0x22b353f1, 0xe3ddd86b, 0xdf268adf, 0x2098eb73, 0x03d68453, 0xc952c563, 0x9b196bcb,
    0x30260345, 0xcf448a59, 0xf4a578dd, 0xbfdeaed9, 0xed79402d, 0x55f070ab, 0x3e00a349, 0xe255b237,
};

/* Each column's values in order, S and T. The first row sets them: clearing 256 bytes takes longer than adding up 8 rows. */
struct columns {
    uint32_t sums[COLUMNS], sums_of_sums[COLUMNS];
};

INA_KERNEL_PART void first(struct columns *restrict columns, size_t column, uint32_t value)
{
    columns->sums[column] = columns->sums_of_sums[column] = value;
}

INA_KERNEL_PART void next(struct columns *restrict columns, size_t column, uint32_t value)
{
    columns->sums[column] += value;
    columns->sums_of_sums[column] += columns->sums[column];
}

INA_KERNEL_PART void add_words(struct ina_check *restrict check, const struct columns *restrict columns)
{
    uint32_t word0 = 0, word1 = 0;
    for (size_t column = 0; column < COLUMNS; column++) {
        word0 += weights0[column] * columns->sums[column];
        word1 += weights1[column] * columns->sums_of_sums[column];
    }
    check->word[0] += word0;
    check->word[1] += word1;
}

/* The kernel for `count` values of a lane: its first arguments. */
#define BY_COUNT(kernel, lane, count, ...)                \
    switch (count) {                                      \
    case 64: kernel(64, lane, __VA_ARGS__); break;        \
    case 256: kernel(256, lane, __VA_ARGS__); break;      \
    default: kernel(count, lane, __VA_ARGS__);            \
    }

INA_KERNEL_PART void summed(size_t count, uint32_t lane, struct ina_check *restrict check, const uint8_t *restrict wire)
{
    struct columns columns;
    for (size_t column = 0; column < COLUMNS; column++)
        first(&columns, column, load_value(lane, wire, column));
    for (size_t i = COLUMNS; i < count; i += COLUMNS)
        for (size_t column = 0; column < COLUMNS; column++)
            next(&columns, column, load_value(lane, wire, i + column));
    add_words(check, &columns);
}

INA_KERNEL void ina_check_add(uint32_t lane, struct ina_check *restrict check, const uint8_t *restrict wire, size_t count)
{
    INA_BY_LANE(lane, BY_COUNT, summed, count, check, wire)
}

INA_KERNEL_PART void encoded(size_t count, uint32_t lane, struct ina_check *restrict check, uint8_t *restrict wire,
                             const float *restrict x, float scale, float limit)
{
    struct columns columns;
    for (size_t column = 0; column < COLUMNS; column++) {
        const uint32_t value = quantised(x[column], scale, limit);
        store_value(lane, wire, column, value);
        first(&columns, column, value);
    }
    for (size_t i = COLUMNS; i < count; i += COLUMNS)
        for (size_t column = 0; column < COLUMNS; column++) {
            const uint32_t value = quantised(x[i + column], scale, limit);
            store_value(lane, wire, i + column, value);
            next(&columns, column, value);
        }
    add_words(check, &columns);
}

INA_KERNEL void ina_check_encode(uint32_t lane, struct ina_check *restrict check, uint8_t *restrict wire, const float *restrict x,
                                 size_t count, int exponent, int shift)
{
    INA_BY_LANE(lane, BY_COUNT, encoded, count, check, wire, x, power_of_two(shift - exponent), power_of_two(shift))
}

INA_KERNEL_PART void decoded(size_t count, uint32_t lane, struct ina_check *restrict check, float *restrict x,
                             const uint8_t *restrict wire, float unit)
{
    struct columns columns;
    for (size_t column = 0; column < COLUMNS; column++) {
        const uint32_t value = load_value(lane, wire, column);
        x[column] = (float)(int32_t)value * unit;
        first(&columns, column, value);
    }
    for (size_t i = COLUMNS; i < count; i += COLUMNS)
        for (size_t column = 0; column < COLUMNS; column++) {
            const uint32_t value = load_value(lane, wire, i + column);
            x[i + column] = (float)(int32_t)value * unit;
            next(&columns, column, value);
        }
    add_words(check, &columns);
}

INA_KERNEL void ina_check_decode(uint32_t lane, struct ina_check *restrict check, float *restrict x, const uint8_t *restrict wire,
                                 size_t count, int exponent, int shift, int divisor)
{
    INA_BY_LANE(lane, BY_COUNT, decoded, count, check, x, wire, unit_of(exponent, shift, divisor))
}
