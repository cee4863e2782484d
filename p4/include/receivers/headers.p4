/* SwitchML's headers, and packets whose sums are for some workers only.
 *
 * type  8 (up and down) for receivers: the header of sets.p4 follows the check header. The size says if values follow; without them
 *         (size 7) a packet that goes up stands for one of zeros, and one that goes down says that the phase is complete, but its sums
 *         are for others: there is no receiver below
 */
#ifndef INA_RECEIVERS_HEADERS_P4
#define INA_RECEIVERS_HEADERS_P4

#include "../size.p4"
#include "sets.p4"

#define PROTOCOL "receivers"

#define MORE_PAYLOADS receivers_t receivers;

#define NOR_MORE_TYPES && (hdr.switchml.msg_type != SWITCHML_TO || !hdr.receivers.isValid())
#define MORE_LENGTH (hdr.receivers.isValid() ? RECEIVERS_LENGTH : 16w0)

#define BEHIND_CHECK receivers_if_any
#define MORE_STATES \
    state receivers_if_any { \
        transition select(hdr.switchml.msg_type) { \
            SWITCHML_TO: receivers; \
            default: values_if_any; \
        } \
    } \
    state receivers { \
        packet.extract(hdr.receivers); \
        transition values_if_any; \
    }
#define MORE_HEADERS packet.emit(hdr.receivers);
#define CHECKED_ALIKE hdr.check.isValid() && !hdr.receivers.isValid()
#define MORE_CHECKSUMS(update_or_verify) \
    update_or_verify(hdr.receivers.isValid(), CHECK_FIELDS_TO, hdr.check.headers, HashAlgorithm.csum16);
#define CHECK_FIELDS_TO { hdr.switchml.msg_type, hdr.switchml.overflow, hdr.switchml.size, hdr.switchml.job, hdr.switchml.tsi, \
    hdr.switchml.set, hdr.switchml.checked, hdr.switchml.slot, hdr.exponents.e0, hdr.exponents.e1, \
    hdr.check.version, hdr.check.flags, hdr.check.check0, hdr.check.check1, hdr.receivers.ranks, \
    hdr.receivers.members }

// Packets for other receivers, or from other workers, are of another kind.
#define KIND_BITS 72
#define KIND (hdr.receivers.isValid() ? hdr.receivers.ranks ++ hdr.receivers.members : 64w0) \
    ++ hdr.switchml.msg_type ++ 1w0 ++ hdr.switchml.size
#define EXPECTED (hdr.receivers.isValid() ? hdr.receivers.members & meta.full : meta.full)
#define COUNT_DOWN if (hdr.receivers.isValid()) { left = EXPECTED & ~seen == 0 ? (bit<8>)meta.parent : 2; }

// A packet that stands for one of zeros (switchml/zeros.p4), and what it becomes.
#define TYPE_OF_ZEROS SWITCHML_TO
#define TYPE_OF_VALUES SWITCHML_TO

#include "../switchml/headers.p4"

#endif
