#include "atp_frame.h"

enum ina_atp_verdict ina_atp_parse(struct ina_atp_view *view, const struct ina_packet *pkt, uint32_t bytes)
{
    uint8_t copy[INA_ATP_PAYLOAD + INA_ATP_MOST_EXTRA] = {0}; /* a copy of shared memory: the checked bytes are the used ones */
    struct ina_atp_wire h;
    struct ina_atp_receivers sets;
    static_assert(sizeof sets == INA_ATP_MOST_EXTRA, "the only header of a kind's own");
    if (pkt->len < INA_ATP_PAYLOAD)
        return INA_ATP_MALFORMED;
    memcpy(copy, pkt->data, pkt->len < sizeof copy ? pkt->len : sizeof copy);
    memcpy(&h, copy, INA_ATP_PAYLOAD);
    memcpy(&sets, copy + INA_ATP_PAYLOAD, sizeof sets);
    const uint32_t type = h.type_flags >> INA_ATP_TYPE_SHIFT;
    const struct ina_kind *kind = &ina_atp_kinds[type];
    const uint32_t headers = INA_ATP_PAYLOAD - INA_INTERNET_SIZE + kind->extra;
    const int payload = ina_internet_payload(&h.net, pkt->len) - (int)headers;
    if (ina_internet_checksum(copy + INA_INTERNET_SIZE, headers))
        return INA_ATP_CORRUPT;
    if (type != INA_ATP_REFUSED && h.check.version != INA_WIRE_VERSION)
        return INA_ATP_VERSION;
    const int whole = kind->payload ? kind->payload : kind->values == INA_VALUES_NEVER ? 0 : (int)bytes;
    if (!kind->contributors && !kind->receivers)
        return INA_ATP_MALFORMED;
    if (payload != whole && (payload || kind->payload || kind->values == INA_VALUES_ALWAYS))
        return INA_ATP_MALFORMED;

    const uint64_t identity = __builtin_bswap64(h.identity);
    *view = (struct ina_atp_view){
        .type = (uint8_t)type,
        .flags = h.type_flags & INA_ATP_FLAGS,
        .exponent = h.exponent,
        .index = ntohs(h.index),
        .life = (uint16_t)(identity >> INA_ATP_LIFE_SHIFT),
        .job = ina_atp_job(h.identity),
        .seq = identity & INA_ATP_SEQUENCE_MASK,
        .bitmap = ntohl(h.bitmap),
        .version = h.check.version,
        .check = h.check.flags,
        .check0 = ntohl(h.check.check0),
        .check1 = ntohl(h.check.check1),
        .receivers = kind->extra ? ntohl(sets.ranks) : 0,
        .members = kind->extra ? ntohl(sets.members) : 0,
        .net = h.net,
    };
    if (type == INA_ATP_PENDING) {
        uint32_t seen;
        memcpy(&seen, pkt->data + INA_ATP_PAYLOAD, 4);
        view->seen = ntohl(seen);
    } else if (payload) {
        view->values = pkt->data + INA_ATP_PAYLOAD + kind->extra;
    }
    return INA_ATP_OK;
}

uint8_t *ina_atp_write(struct ina_packet *pkt, const struct ina_internet *net, uint32_t type, uint32_t flags,
                       uint32_t index, uint64_t identity, uint32_t bitmap, uint32_t payload)
{
    struct ina_atp_wire *h = (struct ina_atp_wire *)pkt->data;
    const uint32_t room = pkt->len + pkt->tailroom, len = INA_ATP_PAYLOAD + payload;
    h->net = *net;
    h->type_flags = (uint8_t)(type << INA_ATP_TYPE_SHIFT | flags);
    h->index = htons((uint16_t)index);
    h->identity = __builtin_bswap64(identity);
    h->bitmap = htonl(bitmap);
    pkt->len = pkt->wire_len = len;
    pkt->tailroom = room - len;
    return h->payload;
}
