/* Packets of omnireduce.p4 inside the switch: those of switchml.p4, and those that stand for zeros, which have no values (`coded`).
 * For their values, and for those of a packet that only asks, the parser puts zeros: a stage of the ingress less, so that lanes
 * may be in the first one, and the register of zeros.p4 has a stateful ALU.
 */
#ifndef INA_TOFINO_OMNIREDUCE_HEADERS_P4
#define INA_TOFINO_OMNIREDUCE_HEADERS_P4

#include "../../../include/omnireduce/headers.p4"
#include "../passes.p4"

#define PARSER_FORGETS

#define WITHOUT_VALUES (WIRE_VERSION, SIZE_NONE, SWITCHML_ZEROS): zeros;
#define ADDED_LANES lanes_to_add
#define MORE_STATES \
    state zeros { \
        meta.has_values = 1; \
        transition accept; \
    } \
    state lanes_to_add { \
        transition select(hdr.bridge.coded, hdr.bridge.op) { \
            (1, _): zero_lanes; \
            (0, Op.LOOK): passed_over; \
            default: lanes; \
        } \
    }

#define MORE_SHAPES \
            (0, _, _, _, true, SWITCHML_ZEROS, SIZE_NONE, LENGTHS(CHECK_LENGTH)): right(Op.ADD, KIND(SWITCHML_DATA, SIZE_CODE), OURS);

#include "../switchml/headers.p4"

#endif
