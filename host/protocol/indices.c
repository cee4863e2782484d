#include "indices.h"

#include "wire.h"

const uint8_t ina_levels[INA_LEVELS] = {0x00, 0x03, 0x05, 0x07, 0x09, 0x0b, 0x0d, 0x0e,
                                          0x10, 0x11, 0x13, 0x15, 0x17, 0x19, 0x1b, 0x1e};

void ina_indices_pack(uint8_t *wire, size_t count, struct ina_check *check, int with_check)
{
    if (with_check) {
        uint8_t levels[sizeof(uint32_t[INA_WIRE_MOST_VALUES])];
        for (size_t i = 0; i < count * sizeof(uint32_t); i++)
            levels[i] = ina_levels[wire[i] & 15];
        ina_check_add(INA_LANE_INT32, check, levels, count);
    }
    for (size_t i = 0; i < count * sizeof(uint16_t); i++)
        wire[i] = (uint8_t)(wire[2 * i] << 4 | (wire[2 * i + 1] & 15));
}
