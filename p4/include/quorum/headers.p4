/* SwitchML's headers, and packets by which workers offer to contribute.
 *
 * type 11 (up and down) offer: the header below follows the check header, and nothing follows it (size 7)
 * +---------------+---------------+-------------------------------+
 * |     state     |     least     |           reserved            |
 * +---------------+---------------+-------------------------------+
 * |                             rivals                            |
 * +---------------------------------------------------------------+
 * |                             ranks                             |
 * +---------------------------------------------------------------+
 * state     up: 0 ask ("who contributes? I may yet"), 1 give ("I can contribute"), 2 pass ("I shall not");
 *           down: 3 open ("not decided"), 4 decided
 * least     up: so many contributors are enough, once all workers have asked. Down: as it came
 * rivals    up: workers of which one is enough (they would contribute the same): it does not contribute if one of them does. Down: as
 *           it came
 * ranks     up: the sender, worker i in bit i. Down: decided: the contributors; open: whom the switch waits for, those that have not
 *           asked, else those that may yet contribute
 * `headers` of the check header covers it; the check words mean nothing.
 */
#ifndef INA_QUORUM_HEADERS_P4
#define INA_QUORUM_HEADERS_P4

#include "../size.p4"

#define PROTOCOL "quorum"

const bit<16> OFFER_LENGTH = 12;  // bytes

const bit<8> OFFER_ASK     = 0;
const bit<8> OFFER_GIVE    = 1;
const bit<8> OFFER_PASS    = 2;
const bit<8> OFFER_OPEN    = 3;
const bit<8> OFFER_DECIDED = 4;

header offer_t {
    bit<8>  state;
    bit<8>  least;
    bit<16> reserved;
    bit<32> rivals;
    bit<32> ranks;
}

#define MORE_PAYLOADS offer_t offer;

#define NOR_MORE_TYPES && (hdr.switchml.msg_type != SWITCHML_OFFER || !hdr.offer.isValid() || hdr.switchml.size != SIZE_NONE)
#define MORE_LENGTH (hdr.offer.isValid() ? OFFER_LENGTH : 16w0)

#define BEHIND_CHECK offer_if_any
#define MORE_STATES \
    state offer_if_any { \
        transition select(hdr.switchml.msg_type) { \
            SWITCHML_OFFER: offer; \
            default: values_if_any; \
        } \
    } \
    state offer { \
        packet.extract(hdr.offer); \
        transition values_if_any; \
    }
#define MORE_HEADERS packet.emit(hdr.offer);
#define CHECKED_ALIKE hdr.check.isValid() && !hdr.offer.isValid()
#define MORE_CHECKSUMS(update_or_verify) \
    update_or_verify(hdr.offer.isValid(), CHECK_FIELDS_OFFER, hdr.check.headers, HashAlgorithm.csum16);
#define CHECK_FIELDS_OFFER { hdr.switchml.msg_type, hdr.switchml.overflow, hdr.switchml.size, hdr.switchml.job, hdr.switchml.tsi, \
    hdr.switchml.set, hdr.switchml.checked, hdr.switchml.slot, hdr.exponents.e0, hdr.exponents.e1, \
    hdr.check.version, hdr.check.flags, hdr.check.check0, hdr.check.check1, hdr.offer.state, hdr.offer.least, \
    hdr.offer.reserved, hdr.offer.rivals, hdr.offer.ranks }

#define OFFERS  // a row's phase may be one of them (switchml/phase.p4)

#include "../switchml/headers.p4"

#endif
