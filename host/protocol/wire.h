/* Layout of a SwitchML frame, as p4/include/switchml/headers.p4 draws it: the one place of the host's C code that knows
 * where a field is; internet.h is that of the headers in front. Multi-byte fields are big endian.
 *
 *     Ethernet 14 | IPv4 20 | UDP 8 | SwitchML 8 | exponents 2 | check 12 | values 4 K, or workers missing 4, or nothing
 */
#ifndef INA_WIRE_H
#define INA_WIRE_H

#include "check.h"
#include "internet.h"
#include "port.h"

struct ina_wire_frame {
    struct ina_internet net;
    uint8_t type_overflow_size; /* 4 | 1 | 3 bits */
    uint8_t job;
    uint32_t tsi;
    uint16_t set_slot;          /* set 1 | checked 1 | slot 14 bits */
    int8_t e0;
    uint8_t e1;
    struct ina_check_header check;
    uint8_t payload[];
} __attribute__((packed));

enum {
    INA_WIRE_DATA = 1,          /* message types */
    INA_WIRE_PENDING = 2,
    INA_WIRE_MAXIMUM = 3,
    INA_WIRE_REFUSED = 4,
    INA_WIRE_INDICES = 5,       /* up only, to p4/thc.p4: indices.h */
    INA_WIRE_ZEROS = 6,         /* to and from p4/omnireduce.p4: ahead.h */
    INA_WIRE_FLOATS = 7,        /* to and from p4/fpisa.p4 */
    INA_WIRE_TO = 8,            /* to and from p4/receivers.p4: behind the check header bitmaps of workers, then values or nothing */
    INA_WIRE_OVERFLOW = 0x08,
    INA_WIRE_SIZE = 0x07,
    INA_WIRE_SIZE_NONE = 7,
    INA_WIRE_SET = 0x8000,
    INA_WIRE_CHECKED = 0x4000,
    INA_WIRE_SLOT = 0x3fff,
    INA_WIRE_PAYLOAD = INA_INTERNET_SIZE + 22,
    INA_WIRE_PENDING_PAYLOAD = 4,
    INA_WIRE_RECEIVERS = 8,     /* bytes of those bitmaps: who gets the values, who takes part */
    INA_WIRE_MOST_VALUES = 2048 /* of the longest packet */
};
static_assert(sizeof(struct ina_wire_frame) == INA_WIRE_PAYLOAD, "SwitchML is 8 bytes, exponents are 2, check is 12");
static_assert((INA_PORT_HEADROOM + INA_WIRE_PAYLOAD) % 64 == 0, "values begin a cache line");

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
