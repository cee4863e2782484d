/* Packets of quorum.p4 inside the switch: those of switchml.p4, and offers (`coded`), which have a header behind the check header. An
 * offer that goes round takes along what its row had when it came (`carried`).
 */
#ifndef INA_TOFINO_QUORUM_HEADERS_P4
#define INA_TOFINO_QUORUM_HEADERS_P4

#include "../../../include/quorum/headers.p4"
#include "../passes.p4"

header carried_t {
    bit<32> full;
    bit<32> given;    // contributors
    bit<32> without;  // workers that have passed
    bit<8>  again;    // the sender had been seen in this phase
}

#define MORE_LANES offer_t offer; carried_t carried;

enum bit<8> Verdict {
    NOTHING   = 0,  // it is absorbed
    OPEN      = 1,  // all have asked
    NOT_ASKED = 2,
    DECIDED   = 3,  // before
    DECIDES   = 4
}

// Of an OFFER pass.
#define MORE_METADATA \
    bit<8>  changes;      /* the next two are, in the row */ \
    bit<32> given; \
    bit<32> without; \
    bit<8>  decided;      /* it was */ \
    bit<8>  lacking;      /* contributors, for those that are enough */ \
    bit<32> left;         /* workers that may yet contribute */ \
    bit<32> missing;      /* workers that have not asked */ \
    bit<32> known;        /* 0: the sender may yet contribute */ \
    Verdict verdict;

// For values of packets that only ask the parser puts zeros, as in ../omnireduce/headers.p4: so lanes may be in the first stage.
#define PARSER_FORGETS

#undef MORE_HEADERS
#define MORE_HEADERS packet.emit(hdr.offer); packet.emit(hdr.carried);
#define CHECK_FIELDS CHECK_FIELDS_OFFER  // an offer that is not there adds nothing

// Ingress.
#define WITH_CHECK check_of_what
#define MORE_PASSES Pass.OFFER: carried;
#define WITHOUT_VALUES
#define ADDED_LANES lanes_to_add
#undef MORE_STATES
#define MORE_STATES \
    state check_of_what { \
        transition select(hdr.switchml.msg_type) { \
            SWITCHML_OFFER: offer; \
            default: exponents_and_check; \
        } \
    } \
    state offer { \
        packet.extract(hdr.exponents); \
        packet.extract(hdr.check); \
        packet.extract(hdr.offer); \
        headers_checksum.add(hdr.exponents); \
        headers_checksum.add(hdr.check); \
        headers_checksum.add(hdr.offer); \
        meta.bad_headers = headers_checksum.verify(); \
        transition select(hdr.check.version, hdr.switchml.size) { \
            (WIRE_VERSION, SIZE_CODE): lanes; \
            (WIRE_VERSION, _): accept; \
            (_, SIZE_CODE): other_and_lanes; \
            default: other; \
        } \
    } \
    state carried { \
        SWITCHML_HEADERS \
        packet.extract(hdr.check); \
        packet.extract(hdr.offer); \
        packet.extract(hdr.carried); \
        transition accept; \
    } \
    state lanes_to_add { \
        transition select(hdr.bridge.coded, hdr.bridge.op) { \
            (1, _): offer_and_lanes; \
            (0, Op.LOOK): passed_over; \
            default: lanes; \
        } \
    } \
    state offer_and_lanes { \
        packet.extract(hdr.offer); \
        transition lanes; \
    }

// Egress.
#define EGRESS_ROUNDS
#define BEHIND_HEADERS offer_if_any
#define MORE_EGRESS_STATES \
    state offer_if_any { \
        transition select(hdr.bridge.coded) { \
            1: offer; \
            default: accept; \
        } \
    } \
    state offer { \
        packet.extract(hdr.offer); \
        transition accept; \
    }
#define EMIT_ROUNDS
#define EMIT_LEVELS packet.emit(hdr.offer);

#define MORE_SHAPES \
            (0, _, _, _, true, SWITCHML_OFFER, SIZE_NONE, LENGTHS(CHECK_LENGTH + OFFER_LENGTH)): \
                right(Op.NOTHING, KIND(SWITCHML_OFFER, SIZE_NONE), OURS);
#define MORE_KINDS \
            (_, _, _, 1, OF_KIND(SWITCHML_OFFER, SIZE_NONE), 0): join_set0(); \
            (_, _, _, 1, OF_KIND(SWITCHML_OFFER, SIZE_NONE), 1): join_set1();
#define IS_PENDING hdr.bridge.complete == 0 && hdr.bridge.coded == 0  // an offer that is open is answered as it is

#include "../switchml/headers.p4"

#endif
