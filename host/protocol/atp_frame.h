/* ATP's frames, bytes apart from meaning: a checked view of a received frame, and the writer of one. Layout: atp_wire.h. */
#ifndef INA_ATP_FRAME_H
#define INA_ATP_FRAME_H

#include "atp_wire.h"
#include "packet.h"

#include <arpa/inet.h>
#include <string.h>

enum { INA_ATP_FLAGS = INA_ATP_RESEND | INA_ATP_COLLISION | INA_ATP_ECN | INA_ATP_OVERFLOW };
#define INA_ATP_SEQUENCE_MASK ((1ull << INA_ATP_SEQUENCE_BITS) - 1)

struct ina_atp_view {
    uint8_t type, flags;
    int8_t exponent;
    uint16_t index, life;
    uint8_t job;
    uint64_t seq;               /* 40 bits */
    uint32_t bitmap;
    uint8_t version, check;     /* of the wire; how the check words are made */
    uint32_t check0, check1;
    uint32_t seen;              /* pending: workers that the server has */
    uint32_t receivers, members; /* kinds from and for some workers: bitmaps */
    const uint8_t *values;      /* NULL: none */
    struct ina_internet net;
};

/* The only door for received bytes. `bytes`: of a packet's values. The frame is whole, of this version and a known type, with K values, none, or a pending's bitmap;
 * it is not; or the checksum of its headers does not fit. A refusal of any version is whole, too. The caller checks the addressee. */
enum ina_atp_verdict { INA_ATP_OK = 0, INA_ATP_MALFORMED = -1, INA_ATP_CORRUPT = -2, INA_ATP_VERSION = -3 };
enum ina_atp_verdict ina_atp_parse(struct ina_atp_view *view, const struct ina_packet *pkt, uint32_t bytes);

static inline int ina_atp_upwards(uint32_t type)
{
    return ina_atp_kinds[type].contributors != INA_CONTRIBUTORS_NONE;
}

/* 1: the kind names receivers and members. */
static inline int ina_atp_is_routed(uint32_t type)
{
    return type == INA_ATP_TO || type == INA_ATP_TO_RESULT;
}

static inline uint64_t ina_atp_identity(uint32_t life, uint32_t job, uint64_t seq)
{
    return (uint64_t)(uint16_t)life << INA_ATP_LIFE_SHIFT | (uint64_t)(uint8_t)job << INA_ATP_JOB_SHIFT | (seq & INA_ATP_SEQUENCE_MASK);
}

/* Job in an identity as it is on the wire. */
static inline uint8_t ina_atp_job(uint64_t identity)
{
    return (uint8_t)(__builtin_bswap64(identity) >> INA_ATP_JOB_SHIFT);
}

/* Nonces of one worker's packet of this number; they differ for integers and floats, and by the exponent. */
static inline struct ina_check ina_atp_nonce(uint32_t life, uint32_t job, uint64_t seq, uint32_t kind, int exponent)
{
    return ina_check_nonce(ina_atp_identity(life, job, seq), kind, exponent);
}

/* Index of an offer, or of an answer to one: enum ina_offer_state, and how many contributors are enough. */
static inline uint16_t ina_atp_terms(uint32_t state, uint32_t least)
{
    return (uint16_t)(state << 8 | (least & 255));
}

static inline uint32_t ina_atp_state(const struct ina_atp_view *view)
{
    return view->index >> 8;
}

static inline uint32_t ina_atp_least(const struct ina_atp_view *view)
{
    return view->index & 255;
}

/* Writes the headers behind those of `net` and sets the packet's length; returns where the `payload` bytes go, which are the kind's own header,
 * if it has one, and the values. The caller ensures that there is room, writes them, and then completes the packet. */
uint8_t *ina_atp_write(struct ina_packet *pkt, const struct ina_internet *net, uint32_t type, uint32_t flags,
                       uint32_t index, uint64_t identity, uint32_t bitmap, uint32_t payload);

static inline void ina_atp_complete(struct ina_packet *pkt, int exponent, uint32_t mode, struct ina_check check)
{
    struct ina_atp_wire *h = (struct ina_atp_wire *)pkt->data;
    h->exponent = (int8_t)exponent;
    ina_check_seal(&h->check, mode, check, &h->type_flags, ina_atp_kinds[h->type_flags >> INA_ATP_TYPE_SHIFT].extra);
}

/* Writes the header of a kind from and for some workers; returns where its values go. */
static inline uint8_t *ina_atp_put_sets(uint8_t *payload, uint32_t receivers, uint32_t members)
{
    const struct ina_atp_receivers sets = {htonl(receivers), htonl(members)};
    memcpy(payload, &sets, sizeof sets);
    return payload + sizeof sets;
}

#endif
