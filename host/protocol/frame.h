/* Bytes apart from meaning: a checked view of a received frame, and frames built from a template per job. */
#ifndef INA_FRAME_H
#define INA_FRAME_H

#include <arpa/inet.h>
#include <string.h>

#include "packet.h"
#include "protocol.h"
#include "wire.h"

/* Headers behind the MAC addresses as words of 8 bytes. In little endian, a word's lowest byte is the first. */
enum { INA_FRAME_WORDS = 5, INA_FRAME_BEGIN = offsetof(struct ina_wire_frame, net.ethertype) };
static_assert(INA_FRAME_BEGIN + 8 * INA_FRAME_WORDS == INA_WIRE_PAYLOAD, "as many words as there are");
/* Bits of the words from a field's first on; fields do not lie across words. */
#define INA_FRAME_FIELD(words, field) \
    ((words)[(offsetof(struct ina_wire_frame, field) - INA_FRAME_BEGIN) / 8] \
     >> 8 * ((offsetof(struct ina_wire_frame, field) - INA_FRAME_BEGIN) % 8))

struct ina_frame_template {  /* the constant part of packets; a value */
    uint8_t data[INA_WIRE_PAYLOAD], bare[INA_WIRE_PAYLOAD]; /* with values, and without */
    uint64_t result[INA_FRAME_WORDS], fixed[INA_FRAME_WORDS]; /* a result with values; its bits that are always the same */
    uint32_t values;         /* per packet */
    uint32_t size_code;
    uint32_t shard_mask;     /* shards of the switch - 1: slot s goes to and comes from its UDP port `port` | (s & shard_mask) */
    uint32_t port;
};

/* 0 or -1: no such packet size. */
int ina_frame_prepare(struct ina_frame_template *frame, const struct ina_worker_config *config, uint32_t shards);
static inline uint32_t ina_frame_length(const struct ina_frame_template *frame, int with_values)
{
    return INA_WIRE_PAYLOAD + (with_values ? 4 * frame->values : 0);
}

/* Writes the headers of a packet of a type (INA_WIRE_DATA, INA_WIRE_MAXIMUM) to the switch and sets its length. The caller
 * ensures that the packet has room (ina_frame_length), and writes exponent and values. */
static inline struct ina_wire_frame *ina_frame_write(struct ina_packet *pkt, const struct ina_frame_template *frame, uint32_t type,
                                                     int with_values, uint32_t tsi, uint32_t slot, int set)
{
    struct ina_wire_frame *h = (struct ina_wire_frame *)pkt->data;
    memcpy(h, with_values ? frame->data : frame->bare, INA_WIRE_PAYLOAD);
    if (frame->shard_mask)
        h->net.dst_port = htons((uint16_t)(frame->port | (slot & frame->shard_mask)));
    if (type != INA_WIRE_DATA)
        h->type_overflow_size = (uint8_t)(type << 4 | (with_values ? frame->size_code : INA_WIRE_SIZE_NONE));
    h->tsi = htonl(tsi);
    h->set_slot = htons((uint16_t)((set ? INA_WIRE_SET : 0) | slot));
    const uint32_t room = pkt->len + pkt->tailroom, len = ina_frame_length(frame, with_values);
    pkt->len = pkt->wire_len = len;
    pkt->tailroom = room - len;
    return h;
}

struct ina_frame_view {
    uint32_t tsi, slot;
    uint8_t set, overflow, with_values, pending, maximum;
    int8_t e0;
    uint32_t missing;        /* pending: bitmap of workers */
    const uint8_t *values;
};
enum ina_frame_verdict { INA_FRAME_OK = 0, INA_FRAME_MALFORMED = 1, INA_FRAME_FOREIGN = 2 };

/* Any frame, field by field. INA_FRAME_OK means that every field of *view is of this worker's job and that all bytes it points
 * to are there. The link checks integrity (Ethernet FCS; the port's CRC), so the IPv4 checksum is not verified. */
enum ina_frame_verdict ina_frame_parse_any(struct ina_frame_view *view, const struct ina_packet *pkt,
                                           const struct ina_frame_template *frame, const struct ina_worker_config *config);

static inline uint64_t ina_frame_word(const void *headers, int i)
{
    uint64_t word;
    memcpy(&word, (const uint8_t *)headers + INA_FRAME_BEGIN + 8 * i, 8);
    return word;
}

/* Recognises with one comparison a result with values, as nearly every frame is. 1: it is, in *view; 0: see
 * ina_frame_parse_any. */
static inline int ina_frame_is_result(struct ina_frame_view *view, const struct ina_packet *pkt,
                                      const struct ina_frame_template *frame)
{
    if (pkt->len < INA_WIRE_PAYLOAD + 4 * frame->values)
        return 0;
    uint64_t words[INA_FRAME_WORDS], differs = 0; /* copies of shared memory: the checked bytes are the used ones */
    for (int i = 0; i < INA_FRAME_WORDS; i++) {
        words[i] = ina_frame_word(pkt->data, i);
        differs |= (words[i] ^ frame->result[i]) & frame->fixed[i];
    }
    const uint32_t set_slot = ntohs((uint16_t)INA_FRAME_FIELD(words, set_slot));
    if (differs || (frame->shard_mask && ((ntohs((uint16_t)INA_FRAME_FIELD(words, net.src_port)) ^ set_slot) & frame->shard_mask)))
        return 0;
    *view = (struct ina_frame_view){
        .tsi = ntohl((uint32_t)INA_FRAME_FIELD(words, tsi)),
        .slot = set_slot & INA_WIRE_SLOT,
        .set = (set_slot & INA_WIRE_SET) != 0,
        .overflow = (INA_FRAME_FIELD(words, type_overflow_size) & INA_WIRE_OVERFLOW) != 0,
        .with_values = 1,
        .e0 = (int8_t)INA_FRAME_FIELD(words, e0),
        .values = pkt->data + INA_WIRE_PAYLOAD,
    };
    return 1;
}

#endif
