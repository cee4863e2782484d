/* Bytes apart from meaning: a checked view of a received frame, and frames built from a template per job. */
#ifndef INA_FRAME_H
#define INA_FRAME_H

#include <arpa/inet.h>
#include <string.h>

#include "packet.h"
#include "port.h"
#include "protocol.h"
#include "wire.h"

static_assert((INA_PORT_HEADROOM + INA_WIRE_PAYLOAD) % 64 == 0, "values begin a cache line");

/* Headers from the source MAC address on as words of 8 bytes. In little endian, a word's lowest byte is the first. */
enum { INA_FRAME_WORDS = 7, INA_FRAME_BEGIN = 8, INA_FRAME_CHECKED = 4 /* first word of the checksum, behind its 2 first bytes */ };
static_assert(INA_FRAME_BEGIN + 8 * INA_FRAME_WORDS == INA_WIRE_PAYLOAD, "as many words as there are");
static_assert(INA_FRAME_BEGIN + 8 * INA_FRAME_CHECKED + 2 == offsetof(struct ina_wire_frame, type_overflow_size), "behind UDP's checksum");
/* Bits of the words from a field's first on; those that are read do not lie across words. */
#define INA_FRAME_FIELD(words, field) \
    ((words)[(offsetof(struct ina_wire_frame, field) - INA_FRAME_BEGIN) / 8] \
     >> 8 * ((offsetof(struct ina_wire_frame, field) - INA_FRAME_BEGIN) % 8))

struct ina_frame_template {  /* the constant part of packets; a value */
    uint8_t head[INA_WIRE_KINDS][2][INA_WIRE_PAYLOAD]; /* of each kind, without values and with */
    uint64_t result[INA_FRAME_WORDS], fixed[INA_FRAME_WORDS]; /* a result with values; its bits that are always the same */
    uint32_t bytes;          /* of the values of a packet */
    uint32_t size_code;
    uint32_t shard_mask;     /* shards of the switch - 1: slot s goes to and comes from its UDP port `port` | (s & shard_mask) */
    uint32_t port;
    uint32_t check;          /* INA_CHECK_OFF, INA_CHECK_SUM */
    uint64_t identity;       /* of packet 0, for nonces */
};

extern const uint8_t ina_frame_zeros[sizeof(uint32_t[INA_WIRE_MOST_VALUES])];

/* 0 or -1: no such packet size. */
int ina_frame_prepare(struct ina_frame_template *frame, const struct ina_worker_config *config, uint32_t shards, uint32_t check);
/* Bytes of a kind's values in a packet. */
static inline uint32_t ina_frame_values(const struct ina_frame_template *frame, const struct ina_kind *kind)
{
    return frame->bytes / 4 * kind->quarters;
}

/* Bytes of a packet of this kind to the switch. */
static inline uint32_t ina_frame_length(const struct ina_frame_template *frame, uint32_t kind, int with_values)
{
    return INA_WIRE_PAYLOAD + ina_kinds[kind].extra + (with_values ? ina_frame_values(frame, &ina_kinds[kind]) : 0);
}

/* Writes the headers of a packet of a kind (INA_WIRE_DATA, INA_WIRE_MAXIMUM, ...) to the switch and sets its length. The caller ensures that
 * the packet has room (ina_frame_length), writes exponent, receivers and values, and then completes it (ina_check_seal). */
static inline struct ina_wire_frame *ina_frame_write(struct ina_packet *pkt, const struct ina_frame_template *frame, uint32_t kind,
                                                     int with_values, uint32_t tsi, uint32_t slot, int set)
{
    struct ina_wire_frame *h = (struct ina_wire_frame *)pkt->data;
    memcpy(h, frame->head[kind][with_values], INA_WIRE_PAYLOAD);
    if (frame->shard_mask)
        h->net.dst_port = htons((uint16_t)(frame->port | (slot & frame->shard_mask)));
    h->tsi = htonl(tsi);
    h->set_slot = htons((uint16_t)((set ? INA_WIRE_SET : 0) | INA_WIRE_CHECKED | slot));
    const uint32_t room = pkt->len + pkt->tailroom, len = ina_frame_length(frame, kind, with_values);
    pkt->len = pkt->wire_len = len;
    pkt->tailroom = room - len;
    return h;
}

struct ina_frame_view {
    uint32_t tsi, slot;
    uint8_t kind, set, overflow; /* kind: of ina_kinds */
    uint8_t version, check;  /* of the wire; how the check words are made */
    int8_t e0;
    uint32_t check0, check1;
    uint32_t missing, receivers, members; /* bitmaps of workers: pending; kinds from and to some */
    uint32_t ranks;          /* of an answer to an offer: contributors, or whom the switch waits for */
    uint8_t state;           /* of it: enum ina_offer_state */
    const uint8_t *values;   /* NULL: it has none; those that stand for zeros have ina_frame_zeros */
};
enum ina_frame_verdict { INA_FRAME_OK = 0, INA_FRAME_MALFORMED = 1, INA_FRAME_FOREIGN = 2, INA_FRAME_CORRUPT = 3, INA_FRAME_VERSION = 4 };

/* Any frame, field by field. INA_FRAME_OK means that every field of *view is of this worker's job and that all bytes it points
 * to are there. The IPv4 checksum is not verified: addresses, ports and lengths are compared with the job's. */
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
    if (pkt->len < INA_WIRE_PAYLOAD + frame->bytes)
        return 0;
    uint64_t words[INA_FRAME_WORDS], differs = 0; /* copies of shared memory: the checked bytes are the used ones */
    for (int i = 0; i < INA_FRAME_WORDS; i++) {
        words[i] = ina_frame_word(pkt->data, i);
        differs |= (words[i] ^ frame->result[i]) & frame->fixed[i];
    }
    words[INA_FRAME_CHECKED] &= ~0xffffull; /* UDP's checksum */
    const uint32_t set_slot = ntohs((uint16_t)INA_FRAME_FIELD(words, set_slot));
    if (differs || ina_internet_checksum(&words[INA_FRAME_CHECKED], 8 * (INA_FRAME_WORDS - INA_FRAME_CHECKED)) || (frame->shard_mask && ((ntohs((uint16_t)INA_FRAME_FIELD(words, net.src_port)) ^ set_slot) & frame->shard_mask)))
        return 0;
    *view = (struct ina_frame_view){
        .kind = INA_WIRE_DATA,
        .tsi = ntohl((uint32_t)INA_FRAME_FIELD(words, tsi)),
        .slot = set_slot & INA_WIRE_SLOT,
        .set = (set_slot & INA_WIRE_SET) != 0,
        .overflow = (INA_FRAME_FIELD(words, type_overflow_size) & INA_WIRE_OVERFLOW) != 0,
        .e0 = (int8_t)INA_FRAME_FIELD(words, e0),
        .check = (uint8_t)INA_FRAME_FIELD(words, check.flags),
        .check0 = ntohl((uint32_t)INA_FRAME_FIELD(words, check.check0)),
        .check1 = ntohl((uint32_t)INA_FRAME_FIELD(words, check.check1)),
        .values = pkt->data + INA_WIRE_PAYLOAD,
    };
    return 1;
}

#endif
