/* TNA: the interface of a program of the Tofino native architecture and the runtime for one packet.
 *
 * Bytes are as in hardware: each frame begins with the metadata that the hardware puts there; the parser extracts it:
 *
 *     ingress   ingress_intrinsic_metadata_t 8 | port metadata, or resubmit data, 8 | frame
 *     egress    egress_intrinsic_metadata_t 27 | [mirror header |] frame as ingress (or the mirror) left it
 *
 * data, len and wire_len cover those bytes too; `front` is their number, without mirror headers. On return data,
 * len and wire_len are the deparsed frame, unless pkt->verdict shows that there is none: INA_DROP (nothing goes on; after
 * egress the frame still exists if `mirror` is set), INA_RESUBMIT; else it is INA_UNICAST, and the fields below are the
 * destinations. Each phase is complete: parser, control, deparser; nothing but the frame's own
 * bytes goes from ingress to egress, so pkt->meta may be any 64-byte aligned block of meta_size bytes for each call.
 *
 * `struct ina_tna` is at the start of pkt->meta: the runtime sets `front`, the phase writes everything else anew. A
 * `has_` flag tells whether the program wrote an intrinsic metadata field; fields without a flag are zero if never written.
 *
 * Widths and layouts are Tofino 1's (tna.p4; Intel, Tofino Native Architecture, public version, sections 5 and 6).
 */
#ifndef INA_TNA_H
#define INA_TNA_H

#include <stdint.h>

enum {
    INA_TNA_INGRESS_FRONT = 16,   /* intrinsic metadata 8, port metadata or resubmit data 8 */
    INA_TNA_EGRESS_FRONT = 27,    /* intrinsic metadata */
    INA_TNA_MIRROR_BYTES = 64,    /* longest mirror header */
    INA_TNA_RESUBMIT_BYTES = 8,
    INA_TNA_PIPE_PORTS = 128,     /* the pipe of a port is port >> 7 */
    INA_TNA_PIPES = 4
};

/* Bits of drop_ctl. */
enum ina_tna_drop {
    INA_TNA_DROP_FORWARD = 1, /* ingress: unicast, multicast and resubmission; egress: the packet */
    INA_TNA_DROP_CPU = 2,     /* the copy to the CPU */
    INA_TNA_DROP_MIRROR = 4   /* mirrored copies */
};

struct ina_tna {
    uint16_t front;               /* in: bytes in front of the frame that counters and meters do not count; the FCS they do */

    /* ingress, for the traffic manager */
    uint16_t ucast_egress_port;
    uint16_t mcast_grp_a, mcast_grp_b;
    uint16_t level1_mcast_hash, level2_mcast_hash; /* 13 bits */
    uint16_t level1_exclusion_id, level2_exclusion_id;
    uint16_t rid;
    uint8_t has_ucast;            /* the program wrote ucast_egress_port: without, there is no unicast copy */
    uint8_t has_mcast_a, has_mcast_b;
    uint8_t bypass_egress;        /* the frame leaves as ingress deparsed it */
    uint8_t deflect_on_drop;
    uint8_t ingress_cos, qid;
    uint8_t copy_to_cpu, icos_for_copy_to_cpu;
    uint8_t packet_color;
    uint8_t parser_drop;          /* the ingress parser met an error that the program does not handle: all ends here */

    /* both phases, for the deparser */
    uint8_t drop_ctl;             /* enum ina_tna_drop */
    uint8_t mirror;               /* 1: a copy with the mirror header in front goes to mirror_session: from ingress a copy of
                                   * the frame as it came (without `front`), from egress of the deparsed frame. */
    uint8_t mirror_type;          /* which Mirror's emit it was */
    uint16_t mirror_session;      /* 10 bits */
    uint16_t mirror_len;          /* bytes of mirror_header in use */
    uint8_t resubmit;             /* 1: the frame as it came enters ingress again, resubmit_data in place of port metadata */
    uint8_t resubmit_type;
    uint8_t digest_type;          /* pkt->digest is the digest's number in the layout, 0: none; its fields are in pkt->meta */
    uint8_t coalesce_flush, coalesce_length;
    uint8_t capture_tstamp_on_tx, update_delay_on_tx;
    uint8_t resubmit_data[8];
    uint8_t mirror_header[64];
};

#ifndef INA_CDEF
_Static_assert(sizeof(struct ina_tna) % 2 == 0 && sizeof(struct ina_tna) <= 128, "ina_tna");
#endif

#endif
