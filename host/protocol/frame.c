#include "frame.h"

#include <string.h>

const uint8_t ina_frame_zeros[sizeof(uint32_t[INA_WIRE_MOST_VALUES])];

static void prepare(struct ina_frame_template *frame, const struct ina_worker_config *config, uint32_t kind, int with_values)
{
    struct ina_wire_frame h = {
        .type_overflow_size = (uint8_t)(kind << INA_WIRE_TYPE_SHIFT | (with_values ? frame->size_code : INA_WIRE_SIZE_NONE)),
        .job = (uint8_t)config->job,
        .e1 = (int8_t)config->life,
    };
    ina_internet_write(&h.net, &config->self, &config->peer, ina_frame_length(frame, kind, with_values) - INA_INTERNET_SIZE);
    memcpy(frame->head[kind][with_values], &h, INA_WIRE_PAYLOAD);
}

/* Header bits that parse compares for a result with values. */
static void expect(struct ina_frame_template *frame, const struct ina_worker_config *config)
{
    struct ina_wire_frame h, fixed = {
        .net.ethertype = 0xffff,
        .net.version_ihl = 0xff,
        .net.total_len = 0xffff,
        .net.flags_fragment = htons(INA_INTERNET_FRAGMENT),
        .net.protocol = 0xff,
        .net.src_ip = 0xffffffff,
        .net.dst_ip = 0xffffffff,
        .net.src_port = htons((uint16_t)~frame->shard_mask),
        .net.dst_port = 0xffff,
        .net.udp_len = 0xffff,
        .type_overflow_size = (uint8_t)~INA_WIRE_OVERFLOW,
        .job = 0xff,
        .set_slot = htons((uint16_t)(INA_WIRE_CHECKED | (INA_WIRE_SLOT & ~(config->slots - 1)))),
        .e1 = -1,
        .check.version = 0xff,
    };
    memcpy(&h, frame->head[INA_WIRE_DATA][1], INA_WIRE_PAYLOAD);
    h.set_slot = htons(INA_WIRE_CHECKED);
    h.check.version = INA_WIRE_VERSION;
    ina_internet_write(&h.net, &config->peer, &config->self, ina_frame_length(frame, INA_WIRE_DATA, 1) - INA_INTERNET_SIZE);
    for (int i = 0; i < INA_FRAME_WORDS; i++) {
        frame->result[i] = ina_frame_word(&h, i);
        frame->fixed[i] = ina_frame_word(&fixed, i);
    }
}

int ina_frame_prepare(struct ina_frame_template *frame, const struct ina_worker_config *config, uint32_t shards, uint32_t check)
{
    int size_code = ina_wire_size_code(config->values);
    if (size_code < 0)
        return -1;
    frame->bytes = (uint32_t)ina_lane_bytes(config->lane, config->values);
    frame->size_code = (uint32_t)size_code;
    frame->shard_mask = shards - 1;
    frame->port = config->peer.port;
    frame->check = check;
    frame->identity = (uint64_t)config->life << 56 | (uint64_t)config->job << 48;
    for (uint32_t kind = 0; kind < INA_WIRE_KINDS; kind++) {
        prepare(frame, config, kind, 0);
        prepare(frame, config, kind, 1);
    }
    expect(frame, config);
    return 0;
}

/* 1: packets of this kind come down, and with this size code. */
static int has_size(const struct ina_kind *kind, uint32_t size, uint32_t size_of_values)
{
    if (size == INA_WIRE_SIZE_NONE)
        return kind->receivers && kind->values != INA_VALUES_ALWAYS;
    return kind->receivers && kind->quarters && size == size_of_values;
}

enum ina_frame_verdict ina_frame_parse_any(struct ina_frame_view *view, const struct ina_packet *pkt,
                                           const struct ina_frame_template *frame, const struct ina_worker_config *config)
{
    uint8_t copy[INA_WIRE_PAYLOAD + INA_WIRE_MOST_EXTRA] = {0}; /* a copy of shared memory: the checked bytes are the used ones */
    const struct ina_wire_frame *h = (const struct ina_wire_frame *)copy;
    if (pkt->len < INA_WIRE_PAYLOAD)
        return INA_FRAME_MALFORMED;
    memcpy(copy, pkt->data, pkt->len < sizeof copy ? pkt->len : sizeof copy);
    const int length = ina_internet_payload(&h->net, pkt->len);
    if (length < 0)
        return INA_FRAME_MALFORMED;
    struct ina_address peer = config->peer;
    peer.port = (uint16_t)(frame->port | (ntohs(h->set_slot) & frame->shard_mask));
    if (!ina_internet_is(&h->net, &peer, &config->self))
        return INA_FRAME_FOREIGN;

    if (!(h->set_slot & htons(INA_WIRE_CHECKED)))
        return INA_FRAME_VERSION;
    const uint32_t type = h->type_overflow_size >> INA_WIRE_TYPE_SHIFT, size = h->type_overflow_size & INA_WIRE_SIZE;
    const struct ina_kind *kind = &ina_kinds[type];
    if (ina_internet_checksum(&h->type_overflow_size, INA_WIRE_PAYLOAD - INA_INTERNET_SIZE + kind->extra))
        return INA_FRAME_CORRUPT;
    const uint32_t payload = kind->payload + (size == INA_WIRE_SIZE_NONE ? 0 : ina_frame_values(frame, kind));
    const uint32_t set_slot = ntohs(h->set_slot);
    if (type == INA_WIRE_REFUSED) {
        if (h->job != config->job || h->e1 != (int8_t)config->life)
            return INA_FRAME_FOREIGN;
        *view = (struct ina_frame_view){.kind = INA_WIRE_REFUSED, .version = h->check.version, .slot = set_slot & INA_WIRE_SLOT & (config->slots - 1)};
        return INA_FRAME_OK;
    }
    if (h->check.version != INA_WIRE_VERSION)
        return INA_FRAME_VERSION;
    if (!has_size(kind, size, frame->size_code)
        || (uint32_t)length != INA_WIRE_PAYLOAD - INA_INTERNET_SIZE + kind->extra + payload)
        return INA_FRAME_MALFORMED;
    if (h->job != config->job || h->e1 != (int8_t)config->life)
        return INA_FRAME_FOREIGN;
    if ((set_slot & INA_WIRE_SLOT) >= config->slots)
        return INA_FRAME_MALFORMED;

    *view = (struct ina_frame_view){
        .kind = (uint8_t)type,
        .tsi = ntohl(h->tsi),
        .slot = set_slot & INA_WIRE_SLOT,
        .set = (set_slot & INA_WIRE_SET) != 0,
        .overflow = (h->type_overflow_size & INA_WIRE_OVERFLOW) != 0,
        .e0 = h->e0,
        .version = h->check.version,
        .check = h->check.flags,
        .check0 = ntohl(h->check.check0),
        .check1 = ntohl(h->check.check1),
        .values = kind->values == INA_VALUES_ZEROS ? ina_frame_zeros
                  : size == INA_WIRE_SIZE_NONE     ? NULL
                                                   : pkt->data + INA_WIRE_PAYLOAD + kind->extra,
    };
    if (type == INA_WIRE_PENDING) {
        struct ina_wire_pending pending;
        memcpy(&pending, pkt->data + INA_WIRE_PAYLOAD, sizeof pending);
        view->missing = ntohl(pending.missing);
    }
    if (kind->contributors == INA_CONTRIBUTORS_SOURCES) {
        struct ina_wire_receivers sets;
        memcpy(&sets, h->payload, sizeof sets);
        view->receivers = ntohl(sets.ranks);
        view->members = ntohl(sets.members);
    }
    if (kind->contributors == INA_CONTRIBUTORS_OFFERING) {
        struct ina_wire_offer offer;
        memcpy(&offer, h->payload, sizeof offer);
        view->state = offer.state;
        view->ranks = ntohl(offer.ranks);
    }
    return INA_FRAME_OK;
}
