/* Written by `make generated` from p4/include/atp/headers.p4: do not edit. Multi-byte members are big endian.
 *
 *     ethernet 14 | ipv4 20 | udp 8 | atp 16 | check 12 | payload (kinds.h)
 */
#ifndef INA_ATP_WIRE_H
#define INA_ATP_WIRE_H

#include "check.h"
#include "internet.h"
#include "kinds.h"

struct ina_atp_wire {
    struct ina_internet net;
    uint8_t type_flags;         /* msg_type 4 | resend 1 | collision 1 | ecn 1 | overflow 1 bits */
    int8_t exponent;
    uint16_t index;
    uint64_t identity;          /* life 16 | job 8 | sequence 40 bits */
    uint32_t bitmap;
    struct ina_check_header check;
    uint8_t payload[];          /* a header of the kind's own, if it has one, then its values */
} __attribute__((packed));

enum {
    INA_ATP_TYPE_SHIFT = 4,
    INA_ATP_RESEND = 0x8,
    INA_ATP_COLLISION = 0x4,
    INA_ATP_ECN = 0x2,
    INA_ATP_OVERFLOW = 0x1,
    INA_ATP_LIFE_SHIFT = 48,
    INA_ATP_JOB_SHIFT = 40,
    INA_ATP_SEQUENCE_BITS = 40,
    INA_ATP_PAYLOAD = INA_INTERNET_SIZE + 28
};
static_assert(sizeof(struct ina_atp_wire) == INA_ATP_PAYLOAD, "as in p4/include/atp/headers.p4");
static_assert(INA_WIRE_VERSION == 2, "as in p4/include/frame.p4");

struct ina_atp_pending {
    uint32_t bitmap;
} __attribute__((packed));

struct ina_atp_receivers {
    uint32_t ranks;
    uint32_t members;
} __attribute__((packed));

#endif
