/* Rounded results (p4/include/requantised): of each word's two lanes of 16 bits a byte, the upper lane's first. */
#ifndef INA_BYTES_H
#define INA_BYTES_H

#include <stddef.h>
#include <stdint.h>

/* Writes `count` words, in which each byte is the upper one of its lane. */
static inline void ina_bytes_unpack(const uint8_t *bytes, size_t count, uint8_t *words)
{
    for (size_t i = 0; i < 2 * count; i++) {
        words[2 * i] = bytes[i];
        words[2 * i + 1] = 0;
    }
}

#endif
