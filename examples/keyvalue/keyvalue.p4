/* keyvalue: streams of (key, value) pairs, added up by key, after ASK (ASPLOS'23) and DAIET (HotNets'17).
 *
 *   parse -> admitted? -> fresh, repeated or out of its window? -> add the pairs that find a slot -> the others go to the receiver;
 *                                                                                    none is left: the switch acknowledges
 *
 * Compile-time sizes: SLOTS of include/size.p4, and -DWINDOW=n, packets in flight of each sender. README.md has the proof.
 */
#include <core.p4>
#include <v1model.p4>

#include "include/frame.p4"

#ifndef WINDOW
#define WINDOW 64
#endif
#if WINDOW < 1 || WINDOW > 16384 || (WINDOW & (WINDOW - 1)) != 0
#error "WINDOW must be a power of two from 1 to 16384"
#endif
#if SLOTS < 16
#error "SLOTS must be at least 16: a packet reads 16 slots"
#endif
#define PAIRS 16
#define SENDERS 256  // of all streams together
#define FOR_EACH_PAIR(M) FOR_16(M, 0x)

const bit<16> KEYVALUE_PORT = 0xBEC1;
const bit<4>  KEYVALUE_VERSION = 1;
const bit<32> LAST_NUMBER = 0xFFFFFFFF - WINDOW;
const bit<16> HEADER_BYTES = 16;
const bit<16> PAIR_BYTES = 20;

/* Kinds of packets: from senders, from the receiver, and from the switch. */
const bit<4> DATA    = 1;  // pairs for the table; what finds no slot goes on to the receiver
const bit<4> LONG    = 2;  // of keys longer than 16 bytes, in several pairs each: for the receiver only
const bit<4> END     = 3;  // one pair, check words over all that the sender has sent: for the receiver only
const bit<4> ACK     = 4;  // of packet `number`, from the receiver; or from the switch, of a packet that it took whole
const bit<4> READ    = 5;  // the stream's slots in row `number`, please
const bit<4> CLEAR   = 6;  // free them
const bit<4> ROW     = 7;  // here they are
const bit<4> CLEARED = 8;

/* +-------+-------+---------------+---------------+---------------+
 * |version| kind  |    stream     |    sender     |     count     |
 * +-------+-------+---------------+---------------+---------------+
 * |                          incarnation                          |
 * +---------------------------------------------------------------+
 * |                            number                             |
 * +-------------------------------+-------------------------------+
 * |             taken             |             check             |
 * +-------------------------------+-------------------------------+
 * count        pairs that the packet had when it was sent
 * incarnation  of the stream, in its table entry, cells and slots: never 0, unlike that of any other stream, and after each restart
 *              of the switch another one
 * number       of the packet: each sender's begin at 0; in READ, CLEAR and their answers: of a row of 16 slots
 * taken        bit i: pair i is in the switch, and not in the packet
 * check        RFC 1071 checksum over this header and the pairs
 */
header keyvalue_t {
    bit<4>  version;
    bit<4>  kind;
    bit<8>  stream;
    bit<8>  sender;
    bit<8>  count;
    bit<32> incarnation;
    bit<32> number;
    bit<16> taken;
    bit<16> check;
}
header pair_t {
    bit<128> key;
    bit<32>  value;
}
struct headers_t {
    ethernet_t    ethernet;
    ipv4_t        ipv4;
    udp_t         udp;
    keyvalue_t    keyvalue;
    pair_t[PAIRS] pairs;
}

/* Why a packet was dropped: the index into the counter `drops`. */
enum bit<8> Drop {
    NONE           = 0,
    MALFORMED      = 1,  // too short, wrong length or count, unknown kind or version
    CORRUPT        = 2,  // a checksum does not fit
    UNKNOWN_STREAM = 3,
    WRONG_SOURCE   = 4,  // not the address, UDP port and ingress port of this sender, or of the receiver
    OLD_STREAM     = 5,  // of another incarnation
    STALE          = 6,  // a number that is acknowledged since long
    OUTSIDE        = 7,  // a number that its sender cannot send yet
    WRONG_ROW      = 8
}
const bit<32> DROPS = 9;

struct host_t {
    bit<48> mac;
    bit<32> ip;
    bit<16> udp_port;
    bit<9>  port;
}
struct metadata_t {
    Drop    drop;
    bit<8>  left;         // pairs that the parser has not seen yet
    bool    up;           // DATA, LONG or END
    host_t  receiver;
    host_t  sender;
    bit<32> incarnation;
    bit<32> window;       // first of the sender's cells
    bit<16> taken;
    bit<1>  flood;        // as forwarding.p4 wants it
    bit<32> source;       // likewise
}
#include "include/forwarding.p4"

parser KeyvalueParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ethertype) { ETHERTYPE_IPV4: ipv4; OTHER_SOURCES default: accept; }
    }
    SOURCE_STATES
    state ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.ihl, hdr.ipv4.protocol) { (5, IPPROTO_UDP): udp; default: accept; }
    }
    state udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst_port) { KEYVALUE_PORT: keyvalue; default: accept; }
    }
    state keyvalue {
        packet.extract(hdr.keyvalue);
        meta.left = hdr.keyvalue.count;
        transition more;
    }
    state more {
        transition select(meta.left) { 0: accept; default: pair; }
    }
    state pair {  // a count above 16 is an error: the stack is full
        packet.extract(hdr.pairs.next);
        meta.left = meta.left - 1;
        transition more;
    }
}

/* The checksum of header and pairs. That of no pair is the header's, so a pair that is taken only has to be left out. */
control Checksum(in headers_t hdr, out bit<16> check) {
    apply {
        hash(check, HashAlgorithm.csum16, 32w0, { hdr.keyvalue.version, hdr.keyvalue.kind, hdr.keyvalue.stream, hdr.keyvalue.sender,
            hdr.keyvalue.count, hdr.keyvalue.incarnation, hdr.keyvalue.number, hdr.keyvalue.taken }, 32w65536);
#define SUM(i) if (hdr.pairs[i].isValid()) { \
            hash(check, HashAlgorithm.csum16, 32w0, { ~check, hdr.pairs[i].key, hdr.pairs[i].value }, 32w65536); \
        }
        FOR_EACH_PAIR(SUM)
    }
}

/* Admission: is this packet whole, of a stream that is there, and from its sender or receiver? */
control Admission(in headers_t hdr, inout metadata_t meta, in standard_metadata_t standard) {
    Checksum() checksum;

    action set_stream(bit<32> incarnation, bit<48> mac, bit<32> ip, bit<16> udp_port, bit<9> port) {
        meta.incarnation = incarnation;
        meta.receiver = { mac, ip, udp_port, port };
    }
    table stream {
        key = { hdr.keyvalue.stream: exact; }
        actions = { set_stream; NoAction; }
        default_action = NoAction();
        size = 256;
    }
    action set_sender(bit<8> index, bit<48> mac, bit<32> ip, bit<16> udp_port, bit<9> port) {
        meta.window = (bit<32>)index * WINDOW;
        meta.sender = { mac, ip, udp_port, port };
    }
    table sender {
        key = { hdr.keyvalue.stream: exact; hdr.keyvalue.sender: exact; }
        actions = { set_sender; NoAction; }
        default_action = NoAction();
        size = SENDERS;
    }

    apply {
        bit<16> check;
        meta.up = hdr.keyvalue.kind == DATA || hdr.keyvalue.kind == LONG || hdr.keyvalue.kind == END;
        bool row = hdr.keyvalue.kind == READ || hdr.keyvalue.kind == CLEAR;
        bit<16> length = HEADER_BYTES + PAIR_BYTES * (bit<16>)hdr.keyvalue.count;
        checksum.apply(hdr, check);
        if (standard.parser_error != error.NoError || hdr.keyvalue.version != KEYVALUE_VERSION
                || !(meta.up || row || hdr.keyvalue.kind == ACK) || meta.up != (hdr.keyvalue.count != 0) || hdr.keyvalue.taken != 0
                || hdr.udp.length != length + 8 || hdr.ipv4.total_len != length + 28) {
            meta.drop = Drop.MALFORMED;
        } else if (standard.checksum_error == 1 || check != hdr.keyvalue.check) {
            meta.drop = Drop.CORRUPT;
        } else if (!stream.apply().hit) {
            meta.drop = Drop.UNKNOWN_STREAM;
        } else if (!row && !sender.apply().hit) {
            meta.drop = Drop.WRONG_SOURCE;
        } else {
            host_t source = meta.receiver;
            if (meta.up) {
                source = meta.sender;
            }
            if (hdr.ipv4.src_addr != source.ip || hdr.udp.src_port != source.udp_port || standard.ingress_port != source.port) {
                meta.drop = Drop.WRONG_SOURCE;
            } else if (hdr.keyvalue.incarnation != meta.incarnation) {
                meta.drop = Drop.OLD_STREAM;
            } else if (row && hdr.keyvalue.number >= SLOTS / PAIRS) {
                meta.drop = Drop.WRONG_ROW;
            }
        }
    }
}

/* The table: slot crc32(key) mod SLOTS of the switch's slots, which all streams share. A slot with an owner keeps its key until
 * its owner frees it. */
control Slots(inout headers_t hdr, inout metadata_t meta) {
    register<bit<32>>(SLOTS) owners;  // incarnation of the stream; 0: free
    register<bit<128>>(SLOTS) keys;
    register<bit<32>>(SLOTS) values;
    bit<32> slot;
    bit<32> owner;
    bit<128> key;
    bit<32> value;

    apply {
        if (hdr.keyvalue.kind == DATA) {
#define ADD(i) if (hdr.pairs[i].isValid()) { \
                hash(slot, HashAlgorithm.crc32, 32w0, { hdr.pairs[i].key }, (bit<32>)SLOTS); \
                owners.read(owner, slot); \
                keys.read(key, slot); \
                values.read(value, slot); \
                if (owner == 0) { \
                    owner = meta.incarnation; \
                    key = hdr.pairs[i].key; \
                    value = 0; \
                } \
                /* a sum that would wrap is one for the receiver */ \
                if (owner == meta.incarnation && key == hdr.pairs[i].key && value + hdr.pairs[i].value >= value) { \
                    owners.write(slot, owner); \
                    keys.write(slot, key); \
                    values.write(slot, value + hdr.pairs[i].value); \
                    meta.taken = meta.taken | 16w1 << i; \
                } \
            }
            FOR_EACH_PAIR(ADD)
        } else if (hdr.keyvalue.kind == READ) {
#define LOAD(i) slot = hdr.keyvalue.number * PAIRS + i; \
            owners.read(owner, slot); \
            hdr.pairs[i].setValid(); \
            keys.read(hdr.pairs[i].key, slot); \
            values.read(hdr.pairs[i].value, slot); \
            if (owner != meta.incarnation) { \
                meta.taken = meta.taken | 16w1 << i; \
            }
            FOR_EACH_PAIR(LOAD)
        } else if (hdr.keyvalue.kind == CLEAR) {
#define FREE(i) slot = hdr.keyvalue.number * PAIRS + i; \
            owners.read(owner, slot); \
            if (owner == meta.incarnation) { \
                owners.write(slot, 0); \
            }
            FOR_EACH_PAIR(FREE)
        }
    }
}

control KeyvalueIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    counter(DROPS, CounterType.packets) drops;
    // Packet q of a sender has cell q mod WINDOW, which knows the last packet there: its marks, and the number of the next.
    register<bit<32>>(SENDERS * WINDOW) incarnations;
    register<bit<32>>(SENDERS * WINDOW) nexts;
    register<bit<16>>(SENDERS * WINDOW) marks;
    Admission() admission;
    Slots() slots;
    Checksum() checksum;
    Forwarding() forwarding;

    action send(in host_t host) {
        hdr.ethernet.dst_addr = host.mac;
        hdr.ipv4.dst_addr = host.ip;
        hdr.udp.dst_port = host.udp_port;
        hdr.udp.checksum = 0;
        standard.egress_spec = host.port;
    }
    action answer(in host_t host, in bit<4> kind, in bit<8> count) {
        hdr.ethernet.src_addr = hdr.ethernet.dst_addr;
        hdr.ipv4.src_addr = hdr.ipv4.dst_addr;
        hdr.udp.src_port = hdr.udp.dst_port;
        hdr.keyvalue.kind = kind;
        hdr.keyvalue.count = count;
        send(host);
    }

    apply {
        if (!hdr.keyvalue.isValid() && !(hdr.udp.isValid() && hdr.udp.dst_port == KEYVALUE_PORT)) {
            forwarding.apply(hdr, meta, standard);
            return;
        }
        mark_to_drop(standard);
        bool fresh = true;
        bit<32> cell = 0;
        bit<32> next = 0;
        admission.apply(hdr, meta, standard);
        if (meta.drop == Drop.NONE && meta.up) {
            cell = meta.window + hdr.keyvalue.number % WINDOW;
            bit<32> incarnation;
            incarnations.read(incarnation, cell);
            nexts.read(next, cell);
            if (incarnation != meta.incarnation) {
                next = hdr.keyvalue.number % WINDOW;
            }
            fresh = hdr.keyvalue.number == next;
            if (hdr.keyvalue.number > next || hdr.keyvalue.number > LAST_NUMBER) {
                meta.drop = Drop.OUTSIDE;
            } else if (!fresh && hdr.keyvalue.number + WINDOW != next) {
                meta.drop = Drop.STALE;
            }
        }
        if (meta.drop != Drop.NONE) {
            drops.count((bit<32>)(bit<8>)meta.drop);
            return;
        }
        if (fresh) {
            slots.apply(hdr, meta);
        } else {
            marks.read(meta.taken, cell);
        }
        if (fresh && meta.up) {
            incarnations.write(cell, meta.incarnation);
            nexts.write(cell, hdr.keyvalue.number + WINDOW);
            marks.write(cell, meta.taken);
        }
        bit<16> length = HEADER_BYTES;
#define LEAVE_OUT(i) if (meta.taken[i:i] == 1) { \
            hdr.pairs[i].setInvalid(); \
        } else if (hdr.pairs[i].isValid()) { \
            length = length + PAIR_BYTES; \
        }
        FOR_EACH_PAIR(LEAVE_OUT)
        hdr.keyvalue.taken = meta.taken;
        if (hdr.keyvalue.kind == READ) {
            answer(meta.receiver, ROW, PAIRS);
        } else if (hdr.keyvalue.kind == CLEAR) {
            answer(meta.receiver, CLEARED, 0);
        } else if (hdr.keyvalue.kind == ACK) {
            send(meta.sender);
        } else if (length != HEADER_BYTES) {
            send(meta.receiver);
        } else {
            hdr.keyvalue.taken = 0;
            answer(meta.sender, ACK, 0);
        }
        hdr.udp.length = length + 8;
        hdr.ipv4.total_len = length + 28;
        checksum.apply(hdr, hdr.keyvalue.check);
    }
}

control KeyvalueEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (meta.flood == 1 && standard.egress_port == standard.ingress_port) {
            mark_to_drop(standard);
        }
    }
}

#define IPV4_FIELDS { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.total_len, hdr.ipv4.identification, \
    hdr.ipv4.flags, hdr.ipv4.frag_offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src_addr, hdr.ipv4.dst_addr }
control VerifyChecksums(inout headers_t hdr, inout metadata_t meta) {
    apply { verify_checksum(hdr.keyvalue.isValid(), IPV4_FIELDS, hdr.ipv4.hdr_checksum, HashAlgorithm.csum16); }
}
control UpdateChecksums(inout headers_t hdr, inout metadata_t meta) {
    apply { update_checksum(hdr.keyvalue.isValid(), IPV4_FIELDS, hdr.ipv4.hdr_checksum, HashAlgorithm.csum16); }
}
control KeyvalueDeparser(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr); }
}

V1Switch(KeyvalueParser(), VerifyChecksums(), KeyvalueIngress(), KeyvalueEgress(), UpdateChecksums(), KeyvalueDeparser()) main;
