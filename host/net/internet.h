/* Ethernet, IPv4 without options, UDP: the 42 bytes before every protocol's header. Multi-byte fields are big endian. */
#ifndef INA_INTERNET_H
#define INA_INTERNET_H

#include <arpa/inet.h>
#include <assert.h>
#include <stddef.h>
#include <string.h>

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

enum {
    INA_INTERNET_IP = 14, INA_INTERNET_UDP = 34, INA_INTERNET_SIZE = 42, /* bytes before IPv4, before UDP, and of all */
    INA_INTERNET_ETHERTYPE_IPV4 = 0x0800,
    INA_INTERNET_VERSION_IHL = 0x45,
    INA_INTERNET_PROTOCOL_UDP = 17,
    INA_INTERNET_DONT_FRAGMENT = 0x4000,
    INA_INTERNET_FRAGMENT = 0x3fff,      /* more fragments, or an offset */
    INA_INTERNET_OFFSET = 0x1fff,        /* not the first fragment */
    INA_INTERNET_ECN = 3, INA_INTERNET_ECN_CAPABLE = 2, INA_INTERNET_ECN_MARKED = 3 /* of tos, RFC 3168 */
};
static_assert(offsetof(struct ina_internet, version_ihl) == INA_INTERNET_IP, "Ethernet is 14 bytes");
static_assert(offsetof(struct ina_internet, src_port) == INA_INTERNET_UDP, "IPv4 is 20 bytes");
static_assert(sizeof(struct ina_internet) == INA_INTERNET_SIZE, "UDP is 8 bytes");

/* Internet checksum (RFC 1071) over `bytes` (even) bytes, as it is stored in a field among them that is 0; with the field: 0 if it fits. */
static inline uint16_t ina_internet_checksum(const void *from, size_t bytes)
{
    uint64_t sum = 0;
    for (size_t i = 0; i + 4 <= bytes; i += 4) {
        uint32_t word;
        memcpy(&word, (const uint8_t *)from + i, 4);
        sum += word;
    }
    if (bytes & 2) {
        uint16_t word;
        memcpy(&word, (const uint8_t *)from + bytes - 2, 2);
        sum += word;
    }
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~sum;
}

/* Sets the checksum of the IPv4 header. */
static inline void ina_internet_sum_up(struct ina_internet *h)
{
    h->ip_checksum = 0;
    h->ip_checksum = ina_internet_checksum((const uint8_t *)h + INA_INTERNET_IP, INA_INTERNET_UDP - INA_INTERNET_IP);
}

/* Headers of a frame from one address to another with `payload` bytes behind UDP; IPv4 checksum included, UDP's is 0. */
void ina_internet_write(struct ina_internet *h, const struct ina_address *from, const struct ina_address *to, uint32_t payload);
void ina_internet_set_ecn(struct ina_internet *h, uint32_t codepoint); /* RFC 3168; keeps the checksum right */
/* Payload bytes behind UDP that IPv4 and UDP agree on, or -1: not such a frame, a fragment, or longer than `len` bytes.
 * The link checks integrity (Ethernet FCS; the port's CRC), so the IPv4 checksum is not verified. */
int ina_internet_payload(const struct ina_internet *h, uint32_t len);
int ina_internet_is(const struct ina_internet *h, const struct ina_address *from, const struct ina_address *to); /* addresses */

/* UDP port that a frame is for; -1: it is no IPv4 without options over UDP, or a later fragment. */
static inline int ina_internet_port_of(const uint8_t *frame, uint32_t len)
{
    const struct ina_internet *h = (const struct ina_internet *)frame;
    if (len < INA_INTERNET_SIZE || h->ethertype != htons(INA_INTERNET_ETHERTYPE_IPV4) || h->version_ihl != INA_INTERNET_VERSION_IHL
        || h->protocol != INA_INTERNET_PROTOCOL_UDP || (h->flags_fragment & htons(INA_INTERNET_OFFSET)))
        return -1;
    return ntohs(h->dst_port);
}

/* Marks a frame of an ECN-capable transport "congestion experienced" (RFC 3168 section 5). 1: it was not marked before. */
static inline int ina_internet_mark(uint8_t *frame, uint32_t len)
{
    struct ina_internet *h = (struct ina_internet *)frame;
    if (len < INA_INTERNET_UDP || h->ethertype != htons(INA_INTERNET_ETHERTYPE_IPV4) || !(h->tos & INA_INTERNET_ECN)
        || (h->tos & INA_INTERNET_ECN) == INA_INTERNET_ECN_MARKED)
        return 0;
    const uint32_t word = (uint32_t)h->version_ihl << 8, before = word | h->tos;
    h->tos |= INA_INTERNET_ECN_MARKED;
    uint32_t sum = (~(uint32_t)ntohs(h->ip_checksum) & 0xffff) + (~before & 0xffff) + (word | h->tos); /* RFC 1624 equation 3 */
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    h->ip_checksum = htons((uint16_t)~sum);
    return 1;
}

#endif
