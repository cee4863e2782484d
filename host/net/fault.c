/* Decides from a seed which packets are lost, doubled, held back or damaged; pure functions. */
#include "fault.h"

#include <string.h>

#include "mix.h"

__extension__ typedef unsigned __int128 u128;

/* xoshiro256** 1.0 (Blackman, Vigna: Scrambled linear pseudorandom number generators, 2018). */
static uint64_t rotl(uint64_t x, int k)
{
    return (x << k) | (x >> (64 - k));
}

static uint64_t draw(uint64_t s[4])
{
    uint64_t result = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

/* True with probability p: 53 bits make a uniform number in [0, 1). */
static int happens(uint64_t bits, double p)
{
    return (double)(bits >> 11) * 0x1p-53 < p;
}

/* Uniform in [from, to]; `to` itself if the interval is empty. */
static uint64_t between(uint64_t bits, uint64_t from, uint64_t to)
{
    if (to <= from)
        return to;
    return from + (uint64_t)((u128)bits * ((u128)(to - from) + 1) >> 64);
}

void ina_fault_init(struct ina_fault *fault, const struct ina_fault_config *config)
{
    memset(fault, 0, sizeof *fault);
    fault->config = *config;
    uint64_t x = config->seed;
    for (int i = 0; i < 4; i++)
        fault->rng[i] = ina_mix(x += 0x9e3779b97f4a7c15);
}

int ina_fault_decide(struct ina_fault *fault, uint64_t delay_ps[2])
{
    const struct ina_fault_config *config = &fault->config;
    uint64_t bits[6];
    for (int i = 0; i < 6; i++)
        bits[i] = draw(fault->rng);
    fault->packets++;
    delay_ps[0] = delay_ps[1] = 0;
    if (happens(bits[0], config->loss)) {
        fault->lost++;
        return 0;
    }
    if (happens(bits[1], config->corrupt)) {
        fault->corrupted++;
        return 0;
    }
    if (happens(bits[2], config->reorder)) {
        fault->reordered++;
        delay_ps[0] = between(bits[3], 1, config->reorder_delay_ps);
    }
    if (!happens(bits[4], config->duplicate))
        return 1;
    fault->duplicated++;
    delay_ps[1] = between(bits[5], 0, config->duplicate_delay_ps);
    return 2;
}

void ina_fault_flip(struct ina_fault *fault, uint8_t *data, uint32_t len)
{
    uint64_t flips = 1 + 2 * (draw(fault->rng) >> 62); /* odd: two on one bit cannot undo all damage */
    for (uint64_t i = 0; i < flips && len; i++) {
        uint64_t bit = between(draw(fault->rng), 0, (uint64_t)len * 8 - 1);
        data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
}

uint32_t ina_crc32(const uint8_t *data, uint32_t len)
{
    /* The reflected polynomial 0xedb88320 divided into each half byte. */
    static const uint32_t NIBBLE[16] = {
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
        0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
    uint32_t crc = 0xffffffff;
    for (uint32_t i = 0; i < len; i++) {
        crc ^= data[i];
        crc = (crc >> 4) ^ NIBBLE[crc & 15];
        crc = (crc >> 4) ^ NIBBLE[crc & 15];
    }
    return ~crc;
}
