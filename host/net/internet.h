/* Ethernet, IPv4 without options, UDP: the 42 bytes before every protocol's header. Multi-byte fields are big endian. */
#ifndef INA_INTERNET_H
#define INA_INTERNET_H

#include <assert.h>
#include <stddef.h>

#include "address.h"
#include "packet.h"

struct ina_internet {
    uint8_t dst_mac[6], src_mac[6];
    uint16_t ethertype;
    uint8_t version_ihl, tos;
    uint16_t total_len, identification, flags_fragment;
    uint8_t ttl, protocol;
    uint16_t ip_checksum;
    uint32_t src_ip, dst_ip;
    uint16_t src_port, dst_port, udp_len, udp_checksum;
} __attribute__((packed));

enum { INA_INTERNET_IP = 14, INA_INTERNET_UDP = 34, INA_INTERNET_SIZE = 42 };
static_assert(offsetof(struct ina_internet, version_ihl) == INA_INTERNET_IP, "Ethernet is 14 bytes");
static_assert(offsetof(struct ina_internet, src_port) == INA_INTERNET_UDP, "IPv4 is 20 bytes");
static_assert(sizeof(struct ina_internet) == INA_INTERNET_SIZE, "UDP is 8 bytes");

/* Headers of a frame from one address to another with `payload` bytes behind UDP; IPv4 checksum included, UDP's is 0. */
void ina_internet_write(struct ina_internet *h, const struct ina_address *from, const struct ina_address *to, uint32_t payload);
void ina_internet_set_ecn(struct ina_internet *h, uint32_t codepoint); /* RFC 3168; keeps the checksum right */
/* Payload bytes behind UDP that IPv4 and UDP agree on, or -1: not such a frame, a fragment, or longer than `len` bytes.
 * The link checks integrity (Ethernet FCS; the port's CRC), so the IPv4 checksum is not verified. */
int ina_internet_payload(const struct ina_internet *h, uint32_t len);
int ina_internet_is(const struct ina_internet *h, const struct ina_address *from, const struct ina_address *to); /* addresses */

#endif
