/* What the frames of all our protocols share: Ethernet, IPv4 and UDP before the protocol's header, values behind it.
 * All fields are big endian, in the order in which they are written here.
 */
#ifndef INA_FRAME_P4
#define INA_FRAME_P4

#include "size.p4"

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_ARP  = 0x0806;
const bit<16> ETHERTYPE_VLAN = 0x8100;
const bit<16> ETHERTYPE_QINQ = 0x88A8;
const bit<8>  IPPROTO_UDP    = 17;

/*  0                   1                   2                   3
 *  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
 * +-------------------------------+-------------------------------+
 * |                    destination address (48)                   |
 * |                               +-------------------------------+
 * |                               |        source address (48)    |
 * +-------------------------------+                               |
 * |                                                               |
 * +-------------------------------+-------------------------------+
 * |            ethertype          |
 * +-------------------------------+
 */
header ethernet_t {
    bit<48> dst_addr;
    bit<48> src_addr;
    bit<16> ethertype;
}

/* RFC 791, without options.
 * +-------+-------+---------------+-------------------------------+
 * |version|  ihl  |      tos      |           total_len           |
 * +-------+-------+---------------+-----+-------------------------+
 * |         identification        |flags|       frag_offset       |
 * +---------------+---------------+-----+-------------------------+
 * |      ttl      |    protocol   |          hdr_checksum         |
 * +---------------+---------------+-------------------------------+
 * |                            src_addr                           |
 * +---------------------------------------------------------------+
 * |                            dst_addr                           |
 * +---------------------------------------------------------------+
 */
header ipv4_t {
    bit<4>  version;
    bit<4>  ihl;
    bit<8>  tos;
    bit<16> total_len;
    bit<16> identification;
    bit<3>  flags;
    bit<13> frag_offset;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> hdr_checksum;
    bit<32> src_addr;
    bit<32> dst_addr;
}

/* RFC 768.
 * +-------------------------------+-------------------------------+
 * |            src_port           |            dst_port           |
 * +-------------------------------+-------------------------------+
 * |             length            |            checksum           |
 * +-------------------------------+-------------------------------+
 */
header udp_t {
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> length;
    bit<16> checksum;
}

/* RFC 826, as far as the sender's IPv4 address; only looked at. */
header arp_sender_t {
    bit<112> before;  // types, lengths, operation, the sender's MAC address
    bit<32>  ip;
}

/* Whom frames that are not IPv4 say that they are from (forwarding.p4): a parser has these cases beside ETHERTYPE_IPV4, and these
 * states. Linux takes frames with a tag of VLAN 0 for ones without; what is in them is not looked for. */
const bit<32> HIDDEN_SOURCE = 0xFFFFFFFF;
#define OTHER_SOURCES  ETHERTYPE_ARP: arp; ETHERTYPE_VLAN: tagged; ETHERTYPE_QINQ: tagged;
#define SOURCE_STATES \
    state arp { \
        meta.source = packet.lookahead<arp_sender_t>().ip; \
        transition accept; \
    } \
    state tagged { \
        meta.source = HIDDEN_SOURCE; \
        transition accept; \
    }

/* Version of the frames: both ends compare it. 1: the frames before there was a check header. */
#define WIRE 2  // annotations take literals
const bit<8>  WIRE_VERSION = WIRE;
const bit<16> CHECK_LENGTH = 12;  // bytes

/* Behind the protocol's header, before the values.
 * +---------------+---------------+-------------------------------+
 * |    version    |     flags     |            headers            |
 * +---------------+---------------+-------------------------------+
 * |                             check0                            |
 * +---------------------------------------------------------------+
 * |                             check1                            |
 * +---------------------------------------------------------------+
 * version      WIRE_VERSION. Its place, that of `headers`, and all in front of them are the same in every later version
 * flags        how hosts make the check words (docs/design/protocol.md); switches do not look at it
 * headers      RFC 1071 checksum over the protocol's header (SwitchML: and exponents), then version, flags, check0 and check1.
 *              Whoever receives the frame verifies it; a switch computes it again for what it sends
 * check0, 1    written by hosts, over the values. A switch adds them modulo 2^32 when it adds the values of packets, stores and
 *              loads them with the sums, and knows nothing else of them. In maxima, and without values: those of one of the
 *              packets, which nobody looks at
 */
header check_t {
    bit<8>  version;
    bit<8>  flags;
    bit<16> headers;
    bit<32> check0;
    bit<32> check1;
}

/* VALUES two's-complement integers of the program's lane. */
#define VALUE_FIELD(i) bit<LANE_BITS> v##i;
header values_t {
    FOR_EACH_VALUE(VALUE_FIELD)
}

#endif
