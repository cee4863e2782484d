/* Packets of receivers.p4 inside the switch: those of switchml.p4, and those that name workers, which have a header behind the
 * check header. For values that such a packet does not have (`coded`), and for those of one that only asks, the parser puts zeros,
 * as in ../omnireduce/headers.p4.
 */
#ifndef INA_TOFINO_RECEIVERS_HEADERS_P4
#define INA_TOFINO_RECEIVERS_HEADERS_P4

#include "../../../include/receivers/headers.p4"
#include "../passes.p4"

#define RECEIVERS
#define PARSER_FORGETS

#define MORE_LANES receivers_t receivers;

// Of members.p4.
#undef EXPECTED
#define EXPECTED meta.expected
#define OWN_WORKERS meta.own
#define MORE_METADATA \
    bit<32> members;      /* of a packet that names none: all */ \
    bit<32> own;          /* members from below the sender */ \
    bit<32> expected;     /* members from below this switch */ \
    bit<32> elsewhere;    /* members from elsewhere */ \
    bit<1>  all_below;    /* there is none */ \
    bit<32> own_gets;     /* receivers below the sender */ \
    bit<32> gets;         /* receivers below this switch */ \
    bit<32> gets_none;    /* members below this switch that are no receivers */

#undef MORE_HEADERS
#define MORE_HEADERS packet.emit(hdr.receivers);
#define CHECK_FIELDS CHECK_FIELDS_TO  // receivers that are not there add nothing

// Ingress.
#define WITH_CHECK check_of_what
#define BEHIND_CHECK_ONLY receivers_if_any
#define WITHOUT_VALUES
#define ADDED_LANES lanes_to_add
#undef MORE_STATES
#define MORE_STATES \
    state check_of_what { \
        transition select(hdr.switchml.msg_type) { \
            SWITCHML_TO: check_and_receivers; \
            default: exponents_and_check; \
        } \
    } \
    state check_and_receivers { \
        packet.extract(hdr.exponents); \
        packet.extract(hdr.check); \
        packet.extract(hdr.receivers); \
        headers_checksum.add(hdr.exponents); \
        headers_checksum.add(hdr.check); \
        headers_checksum.add(hdr.receivers); \
        meta.bad_headers = headers_checksum.verify(); \
        transition select(hdr.check.version, hdr.switchml.size) { \
            (WIRE_VERSION, SIZE_CODE): lanes; \
            (WIRE_VERSION, SIZE_NONE): zeros; \
            (WIRE_VERSION, _): accept; \
            (_, SIZE_CODE): other_and_lanes; \
            default: other; \
        } \
    } \
    state zeros { \
        meta.has_values = 1; \
        transition accept; \
    } \
    state receivers_if_any { \
        transition select(hdr.switchml.msg_type) { \
            SWITCHML_TO: receivers; \
            default: accept; \
        } \
    } \
    state receivers { \
        packet.extract(hdr.receivers); \
        transition accept; \
    } \
    state lanes_to_add { \
        transition select(hdr.switchml.msg_type) { \
            SWITCHML_TO: receivers_and_lanes; \
            default: lanes_or_zeros; \
        } \
    } \
    state receivers_and_lanes { \
        packet.extract(hdr.receivers); \
        transition lanes_or_zeros; \
    } \
    state lanes_or_zeros { \
        transition select(hdr.bridge.coded, hdr.bridge.op) { \
            (1, _): zero_lanes; \
            (0, Op.LOOK): passed_over; \
            default: lanes; \
        } \
    }

// Egress: replicas leave in two passes; with the first a copy goes round.
#define EGRESS_ROUNDS Pass.LOAD: told;
#define BEHIND_HEADERS receivers_if_any
#define MORE_EGRESS_STATES \
    state told { \
        transition select(standard.egress_port) { \
            RECIRCULATION_PORT &&& RECIRCULATION_MASK: accept; \
            default: headers; \
        } \
    } \
    state receivers_if_any { \
        transition select(hdr.switchml.msg_type) { \
            SWITCHML_TO: receivers; \
            default: accept; \
        } \
    } \
    state receivers { \
        packet.extract(hdr.receivers); \
        transition accept; \
    }
#define EMIT_ROUNDS packet.emit(hdr.bridge); packet.emit(hdr.flags);
#define EMIT_LEVELS packet.emit(hdr.receivers);

#undef KIND
#define MORE_SHAPES \
            (0, _, _, _, true, SWITCHML_TO, SIZE_CODE, LENGTHS(CHECK_LENGTH + RECEIVERS_LENGTH + VALUES_LENGTH)): \
                right(Op.ADD, KIND(SWITCHML_TO, SIZE_CODE), OURS); \
            (0, _, _, _, true, SWITCHML_TO, SIZE_NONE, LENGTHS(CHECK_LENGTH + RECEIVERS_LENGTH)): \
                right(Op.ADD, KIND(SWITCHML_TO, SIZE_CODE), OURS); \
            (0, _, _, _, true, SWITCHML_TO, SIZE_CODE, _, _): wrong(Drop.MALFORMED); \
            (0, _, _, _, true, SWITCHML_TO, SIZE_NONE, _, _): wrong(Drop.MALFORMED); \
            (0, _, _, _, true, SWITCHML_TO, _,         _, _): wrong(Drop.WRONG_SIZE);
#define MORE_KINDS \
            (_, _, _, 1, FITS, SWITCHML_TO, _, 0): join_set0(); \
            (_, _, _, 1, FITS, SWITCHML_TO, _, 1): join_set1();

#include "../switchml/headers.p4"

#endif
