#include "frame.h"

#include <string.h>

const uint8_t ina_frame_zeros[4 * INA_WIRE_MOST_VALUES];

static void prepare(uint8_t *bytes, const struct ina_worker_config *config, uint32_t size_code, uint32_t payload)
{
    struct ina_wire_frame h = {
        .type_overflow_size = (uint8_t)(INA_WIRE_DATA << 4 | size_code),
        .job = (uint8_t)config->job,
        .e1 = (int8_t)config->life,
    };
    ina_internet_write(&h.net, &config->self, &config->peer, INA_WIRE_PAYLOAD - INA_INTERNET_SIZE + payload);
    memcpy(bytes, &h, INA_WIRE_PAYLOAD);
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
    memcpy(&h, frame->data, INA_WIRE_PAYLOAD);
    h.set_slot = htons(INA_WIRE_CHECKED);
    h.check.version = INA_WIRE_VERSION;
    ina_internet_write(&h.net, &config->peer, &config->self,
                       INA_WIRE_PAYLOAD - INA_INTERNET_SIZE + 4 * config->values);
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
    frame->values = config->values;
    frame->size_code = (uint32_t)size_code;
    frame->shard_mask = shards - 1;
    frame->port = config->peer.port;
    frame->check = check;
    frame->identity = (uint64_t)config->life << 56 | (uint64_t)config->job << 48;
    prepare(frame->data, config, frame->size_code, 4 * config->values);
    prepare(frame->indices, config, frame->size_code, 2 * config->values);
    prepare(frame->bare, config, INA_WIRE_SIZE_NONE, 0);
    prepare(frame->to_data, config, frame->size_code, (uint32_t)sizeof(struct ina_wire_receivers) + 4 * config->values);
    prepare(frame->to_bare, config, INA_WIRE_SIZE_NONE, (uint32_t)sizeof(struct ina_wire_receivers));
    expect(frame, config);
    return 0;
}

static int type_has_size(uint32_t type, uint32_t size, uint32_t size_of_values)
{
    switch (type) {
    case INA_WIRE_DATA:
    case INA_WIRE_MAXIMUM:
    case INA_WIRE_FLOATS:
    case INA_WIRE_TO: return size == size_of_values || size == INA_WIRE_SIZE_NONE;
    case INA_WIRE_PENDING:
    case INA_WIRE_ZEROS: return size == INA_WIRE_SIZE_NONE;
    default: return 0;
    }
}

enum ina_frame_verdict ina_frame_parse_any(struct ina_frame_view *view, const struct ina_packet *pkt,
                                           const struct ina_frame_template *frame, const struct ina_worker_config *config)
{
    uint8_t copy[INA_WIRE_PAYLOAD + sizeof(struct ina_wire_receivers)] = {0}; /* a copy of shared memory: the checked bytes are the used ones */
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
    const uint32_t type = h->type_overflow_size >> 4, size = h->type_overflow_size & INA_WIRE_SIZE;
    const uint32_t more = type == INA_WIRE_TO ? (uint32_t)sizeof(struct ina_wire_receivers) : 0;
    if (ina_check_headers(&h->type_overflow_size, INA_WIRE_PAYLOAD - INA_INTERNET_SIZE + more))
        return INA_FRAME_CORRUPT;
    const uint32_t payload = type == INA_WIRE_PENDING ? (uint32_t)sizeof(struct ina_wire_pending)
                             : more + (size == INA_WIRE_SIZE_NONE ? 0 : 4 * frame->values);
    const uint32_t set_slot = ntohs(h->set_slot);
    if (type == INA_WIRE_REFUSED) {
        if (h->job != config->job || h->e1 != (int8_t)config->life)
            return INA_FRAME_FOREIGN;
        *view = (struct ina_frame_view){.refused = 1, .version = h->check.version, .slot = set_slot & INA_WIRE_SLOT & (config->slots - 1)};
        return INA_FRAME_OK;
    }
    if (h->check.version != INA_WIRE_VERSION)
        return INA_FRAME_VERSION;
    if (!type_has_size(type, size, frame->size_code)
        || (uint32_t)length != INA_WIRE_PAYLOAD - INA_INTERNET_SIZE + payload)
        return INA_FRAME_MALFORMED;
    if (h->job != config->job || h->e1 != (int8_t)config->life)
        return INA_FRAME_FOREIGN;
    if ((set_slot & INA_WIRE_SLOT) >= config->slots)
        return INA_FRAME_MALFORMED;

    *view = (struct ina_frame_view){
        .tsi = ntohl(h->tsi),
        .slot = set_slot & INA_WIRE_SLOT,
        .set = (set_slot & INA_WIRE_SET) != 0,
        .overflow = (h->type_overflow_size & INA_WIRE_OVERFLOW) != 0,
        .with_values = size != INA_WIRE_SIZE_NONE || type == INA_WIRE_ZEROS,
        .zeros = type == INA_WIRE_ZEROS,
        .pending = type == INA_WIRE_PENDING,
        .maximum = type == INA_WIRE_MAXIMUM,
        .floats = type == INA_WIRE_FLOATS,
        .to = type == INA_WIRE_TO,
        .e0 = h->e0,
        .version = h->check.version,
        .check = h->check.flags,
        .check0 = ntohl(h->check.check0),
        .check1 = ntohl(h->check.check1),
        .values = type == INA_WIRE_ZEROS ? ina_frame_zeros : pkt->data + INA_WIRE_PAYLOAD + more,
    };
    if (view->pending) {
        uint32_t missing;
        memcpy(&missing, view->values, 4);
        view->missing = ntohl(missing);
    }
    if (view->to) {
        uint32_t sets[2];
        memcpy(sets, h->payload, sizeof sets);
        view->receivers = ntohl(sets[0]);
        view->members = ntohl(sets[1]);
    }
    return INA_FRAME_OK;
}
