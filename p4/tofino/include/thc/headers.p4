/* Packets of thc.p4 inside the switch: those of switchml.p4, and indices, of 32 values at a time. What is in front of the others
 * becomes values in egress, between one pass of the ingress and the next.
 */
#ifndef INA_TOFINO_THC_HEADERS_P4
#define INA_TOFINO_THC_HEADERS_P4

#include "../../../include/thc/headers.p4"
#include "../passes.p4"

#define SKIPS_EGRESS 0

/* A value's four indices, and the two upper and lower bytes that they stand for. */
#define INDICES_FIELD(i) bit<8> high##i; bit<8> low##i;
header lane_indices_t {
    FOR_EACH_LANE(INDICES_FIELD)
}

#define LEVELS_FIELD(i) bit<16> high##i; bit<16> low##i;
header levels_t {
    FOR_EACH_LANE(LEVELS_FIELD)
}

#define MORE_LANES lane_indices_t indices; levels_t levels;

// Ingress: for frames whose payload has this program's size.
#undef WITH_VALUES
#undef MORE_STATES
#define WITH_LANES lanes_or_indices
#define MORE_STATES \
    state lanes_or_indices { \
        transition select(hdr.switchml.msg_type) { \
            SWITCHML_INDICES: indices; \
            default: lanes; \
        } \
    } \
    state indices { \
        packet.extract(hdr.indices); \
        meta.has_values = 1; \
        transition accept; \
    }
#define EMIT_MORE_LANES packet.emit(hdr.indices);

// Egress.
#define EGRESS_ROUNDS Pass.ADD: headers_if_coded;
#define BEHIND_HEADERS indices_if_any
#define MORE_EGRESS_STATES \
    state headers_if_coded { \
        transition select(hdr.bridge.coded) { \
            1: headers; \
            default: accept; \
        } \
    } \
    state indices_if_any { \
        transition select(hdr.bridge.pass) { \
            Pass.ADD: indices; \
            default: accept; \
        } \
    } \
    state indices { \
        packet.extract(hdr.indices); \
        transition accept; \
    }
#define EMIT_ROUNDS packet.emit(hdr.bridge); packet.emit(hdr.flags);
#define EMIT_LEVELS packet.emit(hdr.levels);

#define MORE_SHAPES \
            (0, _, _, _, true,  SWITCHML_INDICES, SIZE_CODE, LENGTHS(CHECK_LENGTH + INDICES_LENGTH)): \
                right(Op.ADD, KIND(SWITCHML_DATA, SIZE_CODE), OURS); \
            (0, _, _, _, false, SWITCHML_INDICES, SIZE_CODE, LENGTHS(INDICES_LENGTH)): \
                right(Op.ADD, KIND(SWITCHML_DATA, SIZE_CODE), UNCHECKED);

#include "../switchml/headers.p4"

#endif
