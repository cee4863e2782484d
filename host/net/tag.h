/* Tags: 16 bytes behind the payload of each frame of one direction, by which its receiver knows that the holder of the direction's
 * key sent it, as it is, and that it takes it for the first time (docs/design/protocol.md, "Tags").
 *
 *     +-------------------+-------------------+-------------------+
 *     | payload           | number, 64 bits   | tag, 64 bits      |      both big endian
 *     +-------------------+-------------------+-------------------+
 *
 * The number is 1 for the first frame with a key, and counts on. The tag is SipHash-2-4 of payload and number.
 * ina_port_tag_wrap adds and checks them at a port; the functions before it are its core, without a port. */
#ifndef INA_TAG_H
#define INA_TAG_H

#include <stdint.h>

#include "port.h"

enum { INA_TAG_SIZE = 16, INA_TAG_KEY = 16, INA_TAG_WORDS = 128 }; /* bytes of a tag with its number, and of a key; see below */
enum ina_tag_verdict { INA_TAG_RIGHT, INA_TAG_FORGED, INA_TAG_REPLAYED };

/* Numbers that have been taken: a bit for each of the newest ones, in a ring of words of which only whole ones are cleared, as in
 * RFC 6479. All older than these are refused: those 64 * (INA_TAG_WORDS - 1) below the highest are never among them. */
struct ina_tag_window {
    uint64_t last;                /* the highest number taken; 0: none */
    uint64_t seen[INA_TAG_WORDS];
};

struct ina_tag_payload {
    uint8_t *bytes;
    uint32_t length;
};

void ina_tag_key(uint64_t key[2], const uint8_t bytes[INA_TAG_KEY]);
/* Writes numbers, from `number` on, and tags behind n payloads. Payloads of one length that follow each other take less time each. */
void ina_tag_write(const uint64_t key[2], uint64_t number, const struct ina_tag_payload *payloads, uint32_t n);
/* Checks n payloads, whose lengths are those with their tags, in order, and takes the numbers of those that are right.
 * verdicts: an enum ina_tag_verdict for each. */
void ina_tag_check(const uint64_t key[2], struct ina_tag_window *window, const struct ina_tag_payload *payloads, uint32_t n,
                   uint8_t *verdicts);

/* A port that adds tags to the frames that it sends by `inner`, and drops received ones without a right tag, counted as rx_forged and
 * rx_replayed. Frames are IPv4 over UDP; its longest is 16 bytes shorter than the inner port's. Takes ownership of `inner` (not when
 * it fails). NULL + errno (EINVAL: the inner port's frames are too short). */
struct ina_port *ina_port_tag_wrap(struct ina_port *inner, const uint8_t rx_key[INA_TAG_KEY], const uint8_t tx_key[INA_TAG_KEY]);

#endif
