#include "keyed.h"

#include <string.h>

#include "siphash.h"
#include "values.h"

enum { COLUMNS = 32 };                                         /* every packet has a multiple of 32 values */
enum { PAD = 0, COEFFICIENT = 1, OWN_EXPONENT = 2, RESULT = 3 }; /* what a pseudo-random word is for */

size_t ina_keyed_size(uint32_t values)
{
    return sizeof(struct ina_keyed) + 2 * sizeof(uint32_t) * (size_t)values;
}

static uint64_t word(const struct ina_keyed *keyed, uint64_t number, uint32_t use, uint32_t kind, int exponent, uint32_t index)
{
    return ina_siphash(keyed->key, number, (uint64_t)use << 56 | (uint64_t)kind << 48 | (uint64_t)(uint8_t)exponent << 40 | index);
}

void ina_keyed_init(struct ina_keyed *keyed, const uint8_t key[INA_KEY_BYTES], uint32_t values)
{
    memset(keyed, 0, sizeof *keyed);
    for (int i = 0; i < INA_KEY_BYTES; i++)
        keyed->key[i / 8] |= (uint64_t)key[i] << 8 * (i % 8);
    keyed->values = values;
    for (uint32_t i = 0; i < values; i++) {
        const uint64_t coefficient = word(keyed, i, COEFFICIENT, 0, 0, 0);
        keyed->coefficients[i] = (uint32_t)coefficient;
        keyed->coefficients[values + i] = (uint32_t)(coefficient >> 32);
        keyed->offset += coefficient << 31;
    }
}

INA_KERNEL_PART void add_columns(size_t count, const uint8_t *restrict wire, const uint32_t *restrict low, const uint32_t *restrict high,
                               uint64_t *restrict sums, uint32_t *restrict higher)
{
    for (size_t i = 0; i < count; i += COLUMNS)
        for (size_t column = 0; column < COLUMNS; column++) {
            const uint32_t value = load_value(INA_KEYED_LANE, wire, i + column) ^ 1u << 31; /* plus 2^31, without a sign */
            sums[column] += (uint64_t)low[i + column] * value;
            higher[column] += high[i + column] * value;
        }
}

/* Sum of c[i] v[i] modulo 2^64, of signed values. */
INA_KERNEL static uint64_t hash(const struct ina_keyed *keyed, const uint8_t *wire)
{
    uint64_t sums[COLUMNS] = {0}, result = 0;
    uint32_t higher[COLUMNS] = {0};
    const uint32_t *low = keyed->coefficients, *high = keyed->coefficients + keyed->values;
    switch (keyed->values) {
    case 64: add_columns(64, wire, low, high, sums, higher); break;
    case 256: add_columns(256, wire, low, high, sums, higher); break;
    default: add_columns(keyed->values, wire, low, high, sums, higher);
    }
    for (size_t column = 0; column < COLUMNS; column++)
        result += sums[column] + ((uint64_t)higher[column] << 32);
    return result - keyed->offset;
}

static uint64_t pad(const struct ina_keyed *keyed, const struct ina_keyed_packet *packet, uint32_t index)
{
    return index ? word(keyed, packet->number, PAD, packet->kind, packet->exponent, index) : 0;
}

static uint64_t own_exponent(const struct ina_keyed *keyed, const struct ina_keyed_packet *packet)
{
    return word(keyed, packet->number, OWN_EXPONENT, packet->kind, packet->exponent, 0);
}

static struct ina_check halves(uint64_t tag)
{
    return (struct ina_check){{(uint32_t)tag, (uint32_t)(tag >> 32)}};
}

struct ina_check ina_keyed_tag(const struct ina_keyed *keyed, const struct ina_keyed_packet *packet, uint32_t worker, int own,
                               const uint8_t *wire)
{
    return halves(hash(keyed, wire) + pad(keyed, packet, worker) - pad(keyed, packet, worker + 1)
                  + (own ? own_exponent(keyed, packet) : 0));
}

int ina_keyed_fits(const struct ina_keyed *keyed, const struct ina_keyed_packet *packet, uint32_t first, uint32_t count,
                   struct ina_check sum, int wrapped, const uint8_t *wire)
{
    const uint64_t step = packet->agreed ? own_exponent(keyed, packet) : 0;
    uint64_t tag = hash(keyed, wire) + pad(keyed, packet, first) - pad(keyed, packet, first + count) + step;
    for (uint32_t owners = packet->agreed ? 1 : count; owners <= count; owners++, tag += step) {
        const struct ina_check expected = halves(tag);
        if (sum.word[0] == expected.word[0] && (wrapped || expected.word[1] - sum.word[1] < count))
            return 1;
    }
    return 0;
}

struct ina_check ina_keyed_result(const struct ina_keyed *keyed, const struct ina_keyed_packet *packet, const uint8_t *wire)
{
    return halves(hash(keyed, wire) + word(keyed, packet->number, RESULT, packet->kind, packet->exponent, 0));
}
