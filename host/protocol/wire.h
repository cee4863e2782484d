/* Written by `make generated` from p4/include/switchml/headers.p4: do not edit. Multi-byte members are big endian.
 *
 *     ethernet 14 | ipv4 20 | udp 8 | switchml 8 | exponents 2 | check 12 | payload (kinds.h)
 */
#ifndef INA_WIRE_H
#define INA_WIRE_H

#include "check.h"
#include "internet.h"
#include "kinds.h"

struct ina_wire_frame {
    struct ina_internet net;
    uint8_t type_overflow_size; /* msg_type 4 | overflow 1 | size 3 bits */
    uint8_t job;
    uint32_t tsi;
    uint16_t set_slot;          /* set 1 | checked 1 | slot 14 bits */
    int8_t e0;
    int8_t e1;
    struct ina_check_header check;
    uint8_t payload[];          /* a header of the kind's own, if it has one, then its values */
} __attribute__((packed));

enum {
    INA_WIRE_TYPE_SHIFT = 4,
    INA_WIRE_OVERFLOW = 0x8,
    INA_WIRE_SIZE = 0x7,
    INA_WIRE_SET = 0x8000,
    INA_WIRE_CHECKED = 0x4000,
    INA_WIRE_SLOT = 0x3fff,
    INA_WIRE_PAYLOAD = INA_INTERNET_SIZE + 22
};
static_assert(sizeof(struct ina_wire_frame) == INA_WIRE_PAYLOAD, "as in p4/include/switchml/headers.p4");
static_assert(INA_WIRE_VERSION == 2, "as in p4/include/frame.p4");

struct ina_wire_pending {
    uint32_t missing;
} __attribute__((packed));

struct ina_wire_receivers {
    uint32_t ranks;
    uint32_t members;
} __attribute__((packed));

struct ina_wire_offer {
    uint8_t state;
    uint8_t least;
    uint16_t reserved;
    uint32_t rivals;
    uint32_t ranks;
} __attribute__((packed));

enum { INA_WIRE_SIZE_NONE = 7, INA_WIRE_MOST_VALUES = 2048 };

/* Size code of K values in a packet, -1: there is none. */
static inline int ina_wire_size_code(uint32_t values)
{
    switch (values) {
    case 32: return 0;
    case 64: return 1;
    case 128: return 2;
    case 256: return 3;
    case 1024: return 4;
    case 2048: return 5;
    default: return -1;
    }
}

#endif
