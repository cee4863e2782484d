/* ATP's headers, and packets whose sums are from some workers and for some only (../atp/headers.p4 has the types).
 *
 * type 10 (up)    the header of ../receivers/sets.p4 follows the check header. The lengths of IPv4 and UDP say if values follow;
 *                 without them the packet stands for one of zeros
 * type 11 (down)  the result, with the same header: without values it says that the sum is complete, but is for others: there is no
 *                 receiver below
 */
#ifndef INA_ATP_ROUTES_HEADERS_P4
#define INA_ATP_ROUTES_HEADERS_P4

#include "../size.p4"
#include "../receivers/sets.p4"

#define PROTOCOL "atp_routes"

#define MORE_PAYLOADS receivers_t receivers;
#define LAST_TYPE     Type.TO_RESULT
#define MORE_RESULTS  || hdr.atp.msg_type == Type.TO_RESULT
#define MORE_LENGTH   (hdr.receivers.isValid() ? RECEIVERS_LENGTH : 16w0)

#define MORE_STARTS \
    (Type.TO, _): receivers; \
    (Type.TO_RESULT, _): receivers;
#define MORE_STATES \
    state receivers { \
        packet.extract(hdr.receivers); \
        transition select(hdr.udp.length) { \
            UDP_LENGTH + RECEIVERS_LENGTH + VALUES_LENGTH: values; \
            default: accept; \
        } \
    }
#define MORE_HEADERS packet.emit(hdr.receivers);
#define CHECKED_ALIKE hdr.check.isValid() && !hdr.receivers.isValid()
#define MORE_CHECKSUMS(update_or_verify) \
    update_or_verify(hdr.receivers.isValid(), CHECK_FIELDS_TO, hdr.check.headers, HashAlgorithm.csum16);
#define CHECK_FIELDS_TO { hdr.atp.msg_type, hdr.atp.resend, hdr.atp.collision, hdr.atp.ecn, hdr.atp.overflow, hdr.atp.exponent, \
    hdr.atp.index, hdr.atp.life, hdr.atp.job, hdr.atp.sequence, hdr.atp.bitmap, \
    hdr.check.version, hdr.check.flags, hdr.check.check0, hdr.check.check1, hdr.receivers.ranks, hdr.receivers.members }

// Packets for other receivers, or from other workers, are of another kind. With values or without, they are of one.
#define KIND_BITS 72
#define KIND (hdr.receivers.isValid() ? hdr.receivers.ranks ++ hdr.receivers.members : 64w0) \
    ++ (hdr.values.isValid() || hdr.receivers.isValid() ? (bit<8>)(bit<4>)hdr.atp.msg_type : 0)
#define EXPECTED (hdr.receivers.isValid() ? hdr.receivers.members & meta.full : meta.full)

#include "../atp/headers.p4"

#endif
