/* ATP's header: with frame.p4, the only definition of what is on the wire. */
#ifndef INA_ATP_HEADERS_P4
#define INA_ATP_HEADERS_P4

#include "../frame.p4"

const bit<16> ATP_PORT = 0xBEF0;  // the low four bits are free: a worker may spread its flow over 16 ports
const bit<16> ATP_MASK = 0xFFF0;

/* ATP (NSDI'21 §3.2), with other widths: one bitmap of all workers instead of two levels' worth, a wider number, an exponent.
 *  0                   1                   2                   3
 *  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
 * +-------+-+-+-+-+---------------+-------------------------------+
 * | type  |R|C|E|O|   exponent    |             index             |
 * +-------+-+-+-+-+---------------+---------------+---------------+
 * |              life             |      job      |   sequence    :
 * +-------------------------------+---------------+---------------+
 * :                            sequence                           |
 * +---------------------------------------------------------------+
 * |                             bitmap                            |
 * +---------------------------------------------------------------+
 * type         1 data, 2 floats, 6 maxima: data of which the largest of each value counts, 8 offer, 10 data from and for some
 *              workers (upwards);
 *              3 result, 4 result in floats, 5 pending, 9 answer to an offer, 11 result for some workers (downwards), 7 refused (to a
 *              worker or switch below: "your version is not mine", which is in the check header; nothing follows)
 * R            resend: the worker has waited for the result; a switch gives away what it holds of this number
 * C            collision: some switch had the aggregator taken by something else; workers then choose another
 * E            ECN: some queue on the way was long
 * O            a signed overflow happened in the sum
 * exponent     of a later block, or whether this one can be said in integers; the largest wins (127: not)
 * index        aggregator that the number uses at every switch (modulo the switch's pool)
 * life         of the job's number: each job that gets it has the next, modulo 2^16
 * sequence     number of this packet in the life of the job, modulo 2^40
 * bitmap       upwards: workers whose values are in the sum, worker i in bit i; downwards: workers that it is for
 *
 * Offers and answers have no values, and use no aggregator: switches pass them on as they are. So the words of values and aggregators
 * say what ../quorum/headers.p4 has a header for, and `headers` of the check header covers it:
 * index        of an offer: state, 8 bits, least, 8 bits; of an answer: state, 8 bits, 0
 * check0       of an offer: rivals; of an answer: the contributors, or whom the server waits for
 *
 * Types 10 and 11 are those of programs that include ../atp_routes/headers.p4, which has their header.
 */
enum bit<4> Type {
    DATA         = 1,
    FLOATS       = 2,
    RESULT       = 3,
    FLOAT_RESULT = 4,
    PENDING      = 5,
    MAXIMA       = 6,
    REFUSED      = 7,
    OFFER        = 8,
    ANSWER       = 9,
    TO           = 10,
    TO_RESULT    = 11
}

/* The rest of each type, as in ../switchml/headers.p4. */
@kind[program="atp", reduction="sum", values="optional", payload="values", words="integers", checked=1, result="result",
      contributors="all", receivers="none", completes="all", again="pending"]
const Type ATP_DATA         = Type.DATA;
@kind[program="atp", reduction="sum", values="always", payload="values", words="floats", checked=1, result="float_result",
      contributors="all", receivers="none", completes="all", again="pending"]
const Type ATP_FLOATS       = Type.FLOATS;
@kind[program="atp", values="optional", payload="values", words="integers", checked=1, contributors="none", receivers="all"]
const Type ATP_RESULT       = Type.RESULT;
@kind[program="atp", values="always", payload="values", words="floats", checked=1, contributors="none", receivers="all"]
const Type ATP_FLOAT_RESULT = Type.FLOAT_RESULT;
@kind[program="atp", payload="pending", contributors="none", receivers="sender"]
const Type ATP_PENDING      = Type.PENDING;
@kind[program="atp", reduction="max", values="optional", payload="values", words="integers", result="result",
      contributors="all", receivers="none", completes="all", again="pending"]
const Type ATP_MAXIMA       = Type.MAXIMA;
@kind[program="atp", contributors="none", receivers="sender"]
const Type ATP_REFUSED      = Type.REFUSED;
@kind[program="atp", result="answer", contributors="offering", completes="enough", again="answer"]
const Type ATP_OFFER        = Type.OFFER;
@kind[program="atp", contributors="none", receivers="all"]
const Type ATP_ANSWER       = Type.ANSWER;
@kind[program="atp_routes", reduction="sum", values="optional", extra="receivers", payload="values", words="integers", checked=1,
      result="to_result", contributors="sources", receivers="none", completes="members", again="pending"]
const Type ATP_TO           = Type.TO;
@kind[program="atp_routes", values="optional", extra="receivers", payload="values", words="integers", checked=1, contributors="none",
      receivers="receivers"]
const Type ATP_TO_RESULT    = Type.TO_RESULT;

// What IPv4 and UDP say of their lengths, payload not counted: check 12, ATP 16, UDP 8, IPv4 20.
const bit<16> UDP_LENGTH     = 36;
const bit<16> IPV4_LENGTH    = 56;
const bit<16> VALUES_LENGTH  = VALUES_BYTES;
const bit<16> PENDING_LENGTH = 4;

/* Only in a pending frame, from the server: the workers whose values it has. Switches do not look at them. */
header pending_t {
    bit<32> bitmap;
}

header atp_t {
    Type    msg_type;
    bit<1>  resend;
    bit<1>  collision;
    bit<1>  ecn;
    bit<1>  overflow;
    int<8>  exponent;
    bit<16> index;
    bit<16> life;
    bit<8>  job;
    bit<40> sequence;
    bit<32> bitmap;
}

#ifndef MORE_PAYLOADS  // of a program that includes this file (../atp_routes/headers.p4)
#define MORE_PAYLOADS
#define LAST_TYPE    Type.ANSWER
#define MORE_RESULTS
#define MORE_LENGTH  16w0
#define MORE_STARTS
#define MORE_STATES
#define MORE_HEADERS
#define CHECKED_ALIKE hdr.check.isValid()
#define MORE_CHECKSUMS(update_or_verify)
#define KIND_BITS    8
#define KIND         (hdr.values.isValid() ? (bit<8>)(bit<4>)hdr.atp.msg_type : 0)
#define EXPECTED     meta.full
#endif

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    udp_t      udp;
    atp_t      atp;
    check_t    check;
    MORE_PAYLOADS
    values_t   values;  // of what is added up only: what else has values is passed on as it is
}

#endif
