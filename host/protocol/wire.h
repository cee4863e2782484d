/* Layout of a SwitchML frame, as p4/include/switchml/headers.p4 draws it: the one place of the host's C code that knows
 * where a field is. Multi-byte fields are big endian.
 *
 *     Ethernet 14 | IPv4 20 | UDP 8 | SwitchML 8 | exponents 2 | values 4 K, or workers missing 4, or nothing
 */
#ifndef INA_WIRE_H
#define INA_WIRE_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

struct ina_wire_frame {
    uint8_t dst_mac[6], src_mac[6];
    uint16_t ethertype;
    uint8_t version_ihl, tos;
    uint16_t total_len, identification, flags_fragment;
    uint8_t ttl, protocol;
    uint16_t ip_checksum;
    uint32_t src_ip, dst_ip;
    uint16_t src_port, dst_port, udp_len, udp_checksum;
    uint8_t type_overflow_size; /* 4 | 1 | 3 bits */
    uint8_t job;
    uint32_t tsi;
    uint16_t set_slot;          /* set 1 | reserved 1 | slot 14 bits */
    int8_t e0;
    uint8_t e1;
    uint8_t payload[];
} __attribute__((packed));

enum {
    INA_WIRE_ETHERTYPE_IPV4 = 0x0800,
    INA_WIRE_VERSION_IHL = 0x45,
    INA_WIRE_PROTOCOL_UDP = 17,
    INA_WIRE_DONT_FRAGMENT = 0x4000,
    INA_WIRE_FRAGMENT = 0x3fff, /* more fragments, or an offset */
    INA_WIRE_DATA = 1,          /* message types */
    INA_WIRE_PENDING = 2,
    INA_WIRE_MAXIMUM = 3,
    INA_WIRE_OVERFLOW = 0x08,
    INA_WIRE_SIZE = 0x07,
    INA_WIRE_SIZE_NONE = 7,
    INA_WIRE_SET = 0x8000,
    INA_WIRE_RESERVED = 0x4000,
    INA_WIRE_SLOT = 0x3fff,
    INA_WIRE_IP_OFFSET = 14,
    INA_WIRE_UDP_OFFSET = 34,
    INA_WIRE_PAYLOAD = 52,
    INA_WIRE_PENDING_PAYLOAD = 4
};
static_assert(offsetof(struct ina_wire_frame, version_ihl) == INA_WIRE_IP_OFFSET, "Ethernet is 14 bytes");
static_assert(offsetof(struct ina_wire_frame, src_port) == INA_WIRE_UDP_OFFSET, "IPv4 is 20 bytes");
static_assert(offsetof(struct ina_wire_frame, type_overflow_size) == 42, "UDP is 8 bytes");
static_assert(offsetof(struct ina_wire_frame, tsi) == 44 && offsetof(struct ina_wire_frame, set_slot) == 48, "SwitchML");
static_assert(offsetof(struct ina_wire_frame, e0) == 50, "SwitchML is 8 bytes");
static_assert(sizeof(struct ina_wire_frame) == INA_WIRE_PAYLOAD, "exponents are 2 bytes");

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
