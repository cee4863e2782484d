/* Bytes apart from meaning: a checked view of a received frame, and frames built from a template per job. */
#ifndef INA_FRAME_H
#define INA_FRAME_H

#include "packet.h"
#include "protocol.h"
#include "wire.h"

struct ina_frame_template {  /* all that does not change from packet to packet; a value */
    uint8_t data[INA_WIRE_PAYLOAD], bare[INA_WIRE_PAYLOAD]; /* with values, and without */
    uint32_t values;         /* per packet */
    uint32_t size_code;
};

/* 0 or -1: no such packet size. */
int ina_frame_prepare(struct ina_frame_template *frame, const struct ina_worker_config *config);
/* Writes the headers of a packet of a type (INA_WIRE_DATA, INA_WIRE_MAXIMUM) to the switch and sets its length; returns where the values go. The caller has made
 * sure that the packet has room (ina_frame_length). */
uint8_t *ina_frame_write(struct ina_packet *pkt, const struct ina_frame_template *frame, int type, int with_values,
                         uint32_t tsi, uint32_t slot, int set);
static inline uint32_t ina_frame_length(const struct ina_frame_template *frame, int with_values)
{
    return INA_WIRE_PAYLOAD + (with_values ? 4 * frame->values : 0);
}

struct ina_frame_view {
    uint32_t tsi, slot;
    uint8_t set, overflow, with_values, pending, maximum;
    int8_t e0;
    uint32_t missing;        /* pending: bitmap of workers */
    const uint8_t *values;
};
enum ina_frame_verdict { INA_FRAME_OK = 0, INA_FRAME_MALFORMED = 1, INA_FRAME_FOREIGN = 2 };

/* The only door for received bytes: INA_FRAME_OK means that every field of *view is of this worker's job and that all
 * bytes it points to are there. Integrity is the link's business (Ethernet FCS; the port's CRC), so the IPv4 checksum
 * is not computed again. */
enum ina_frame_verdict ina_frame_parse(struct ina_frame_view *view, const struct ina_packet *pkt,
                                       const struct ina_frame_template *frame, const struct ina_worker_config *config);

#endif
