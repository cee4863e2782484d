/* Headers: with frame.p4, the only definition of what is on the wire. The host side (numpy, C, scapy) is generated from this file.
 * All fields are big endian, in the order in which they are written here.
 */
#ifndef INA_HEADERS_P4
#define INA_HEADERS_P4

#include "../frame.p4"

const bit<16> SWITCHML_PORT  = 0xBEE0;  // the low four bits are free: a worker may spread its flow over 16 ports
const bit<16> SWITCHML_MASK  = 0xFFF0;

/* SwitchML (NSDI'21; field layout of the published p4app-switchML).
 * +-------+-+-----+---------------+-------------------------------+
 * | type  |O|size |      job      |              tsi              :
 * +-------+-+-----+---------------+-+-+---------------------------+
 * :              tsi              |S|C|            slot           |
 * +-------------------------------+-+-+---------------------------+
 * type  1 data to be summed, 2 pending (down only: "yours is here, others are missing"), 3 data of which the largest is wanted,
 *       4 refused (down only: "your version is not mine", which is in the check header; nothing follows)
 * O     a signed overflow happened in what is summed here (the published header leaves this bit unused)
 * size  payload: 0 = 128 B, 1 = 256, 2 = 512, 3 = 1024, 4 = 4096, 5 = 8192, 7 = none
 * tsi   number of this packet in the life of the job, modulo 2^32 (published clients: anything)
 * S     set (version) of the slot
 * C     a check header follows the exponents: in every frame of ours, in none of a published client
 */

/* Kinds of packets, of this program and of those that include it: a number, and an annotation that says the rest. This is the only list
 * of them: ina/aggregation/wire/kinds.py reads it, and says what each word means; all others are made from it (`make generated`).
 */
@kind[program="switchml", reduction="sum", values="optional", payload="values", words="integers", checked=1,
      contributors="all", receivers="all", completes="all", again="pending"]
const bit<4> SWITCHML_DATA    = 1;
@kind[program="switchml", payload="pending", contributors="none", receivers="sender"]
const bit<4> SWITCHML_PENDING = 2;
@kind[program="switchml", reduction="max", values="optional", payload="values", words="integers",
      contributors="all", receivers="all", completes="all", again="pending"]
const bit<4> SWITCHML_MAXIMUM = 3;
@kind[program="switchml", contributors="none", receivers="sender"]
const bit<4> SWITCHML_REFUSED = 4;
@kind[program="thc", reduction="own", values="always", payload="indices", words="indices", checked=1, result="data",
      contributors="all", receivers="none", completes="all", again="pending"]
const bit<4> SWITCHML_INDICES = 5;
@kind[program="omnireduce", reduction="own", values="zeros", words="integers", checked=1, result="data",
      contributors="all", receivers="all", completes="all", again="pending"]
const bit<4> SWITCHML_ZEROS   = 6;
@kind[program="fpisa", reduction="own", values="optional", payload="values", words="floats",
      contributors="all", receivers="all", completes="all", again="pending"]
const bit<4> SWITCHML_FLOATS  = 7;
@kind[program="receivers", reduction="sum", values="optional", extra="receivers", payload="values", words="integers", checked=1,
      contributors="sources", receivers="receivers", completes="members", again="pending"]
const bit<4> SWITCHML_TO      = 8;
@kind[program="requantised", reduction="own", values="always", payload="values", words="lanes", result="bytes",
      contributors="all", receivers="none", completes="all", again="pending"]
const bit<4> SWITCHML_LANES   = 9;
@kind[program="requantised", values="always", payload="bytes", words="bytes", contributors="none", receivers="all"]
const bit<4> SWITCHML_BYTES   = 10;
@kind[program="quorum", extra="offer", contributors="offering", receivers="all", completes="enough", again="offer"]
const bit<4> SWITCHML_OFFER   = 11;

const bit<3> SIZE_NONE        = 7;

// What IPv4 and UDP say of their lengths, check header and payload not counted: SwitchML 8, exponents 2, UDP 8, IPv4 20.
const bit<16> UDP_LENGTH     = 18;
const bit<16> IPV4_LENGTH    = 38;
const bit<16> PENDING_LENGTH = 4;  // what a pending frame has in the place of values
const bit<32> PENDING_FRAME  = 68; // shortest frame, with Ethernet

header switchml_t {
    bit<4>  msg_type;
    bit<1>  overflow;
    bit<3>  size;
    bit<8>  job;
    bit<32> tsi;
    bit<1>  set;
    bit<1>  checked;
    bit<14> slot;
}

/* +---------------+---------------+
 * |       e0      |       e1      |
 * +---------------+---------------+
 * e0    exponent of a later block; the switch answers with the largest (127: not finite)
 * e1    life of the job's number: each job that gets it has the next, modulo 2^8 (published clients: a second exponent)
 */
header exponents_t {
    int<8> e0;
    int<8> e1;
}

/* Only in a pending frame: the workers below the switch that made it of which it has no packet, worker i in bit i. */
header pending_t {
    bit<32> missing;
}

#ifndef MORE_PAYLOADS  // of a program that includes this file (p4/include/thc/headers.p4)
#define MORE_PAYLOADS
#endif

struct headers_t {
    ethernet_t  ethernet;
    ipv4_t      ipv4;
    udp_t       udp;
    switchml_t  switchml;
    exponents_t exponents;
    check_t     check;
    pending_t   pending;
    MORE_PAYLOADS
    values_t    values;
}

#endif
