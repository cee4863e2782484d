#include "internet.h"

void ina_internet_write(struct ina_internet *h, const struct ina_address *from, const struct ina_address *to, uint32_t payload)
{
    *h = (struct ina_internet){
        .ethertype = htons(INA_INTERNET_ETHERTYPE_IPV4),
        .version_ihl = INA_INTERNET_VERSION_IHL,
        .total_len = htons((uint16_t)(INA_INTERNET_SIZE - INA_INTERNET_IP + payload)),
        .flags_fragment = htons(INA_INTERNET_DONT_FRAGMENT),
        .ttl = 64,
        .protocol = INA_INTERNET_PROTOCOL_UDP,
        .src_ip = htonl(from->ip),
        .dst_ip = htonl(to->ip),
        .src_port = htons(from->port),
        .dst_port = htons(to->port),
        .udp_len = htons((uint16_t)(INA_INTERNET_SIZE - INA_INTERNET_UDP + payload)),
    };
    memcpy(h->dst_mac, to->mac, 6);
    memcpy(h->src_mac, from->mac, 6);
    ina_internet_sum_up(h);
}

void ina_internet_set_ecn(struct ina_internet *h, uint32_t codepoint)
{
    h->tos = (uint8_t)((h->tos & ~(uint32_t)INA_INTERNET_ECN) | codepoint);
    ina_internet_sum_up(h);
}

int ina_internet_payload(const struct ina_internet *h, uint32_t len)
{
    const uint32_t total = ntohs(h->total_len), udp = ntohs(h->udp_len);
    if (h->ethertype != htons(INA_INTERNET_ETHERTYPE_IPV4) || h->version_ihl != INA_INTERNET_VERSION_IHL
        || h->protocol != INA_INTERNET_PROTOCOL_UDP
        || (ntohs(h->flags_fragment) & INA_INTERNET_FRAGMENT) || udp < INA_INTERNET_SIZE - INA_INTERNET_UDP
        || total != udp + INA_INTERNET_UDP - INA_INTERNET_IP || INA_INTERNET_IP + total > len)
        return -1; /* a short frame may have been padded on its way, so it may be longer */
    return (int)(udp - (INA_INTERNET_SIZE - INA_INTERNET_UDP));
}

int ina_internet_is(const struct ina_internet *h, const struct ina_address *from, const struct ina_address *to)
{
    return h->src_ip == htonl(from->ip) && h->dst_ip == htonl(to->ip) && h->src_port == htons(from->port)
           && h->dst_port == htons(to->port);
}
