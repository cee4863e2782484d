#include "lane.h"

const struct ina_lane *ina_lane_at(uint32_t lane)
{
    return lane < INA_LANES ? &ina_lanes[lane] : NULL;
}

int ina_lane_shift(uint32_t lane, int workers)
{
    return (int)ina_lane_bits(lane) - 2 - (workers <= 1 ? 0 : 32 - __builtin_clz((unsigned)workers - 1));
}
