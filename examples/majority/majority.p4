/* majority: the sign that most workers have.
 *
 * Each job has two rows; packet number q of every worker meets in row q mod 2, and the result goes back to all when the last one is
 * there. A worker sends q + 1 only when it has the result of q, so that whoever sends q + 2 proves that nobody needs row q mod 2
 * any more.
 */
#include <core.p4>
#include <v1model.p4>

#include "include/frame.p4"

const bit<16> MAJORITY_PORT = 0xBEC3;
#ifndef JOBS
#define JOBS 256
#endif
const bit<32> ROWS = 2 * JOBS;

/* The operation, of 32 bits: a row begins with FIRST of a worker's value, becomes NEXT of what it has and each other worker's,
 * and RESULT of it goes back. Workers come in any order, each once.
 * A row counts signs: 1 for each positive value, -1 for each negative one; zero is no vote. The result is 1
 * or -1, the sign of the count, and 0 for a tie. */
#define SIGN(value) (value == 0 ? 32w0 : value[31:31] == 1 ? 32w0xFFFFFFFF : 32w1)
#define FIRST(value) SIGN(value)
#define NEXT(row, value) row + SIGN(value)
#define RESULT(row) SIGN(row)
const bit<8> REDUCED = 2;  // kinds from here on: the operation; others: no values, or values that are added up

/* +---------------+---------------+---------------+---------------+
 * |      job      |      life     |   exponent    |     kind      |
 * +---------------+---------------+---------------+---------------+
 * |                       number of the packet                    |
 * +---------------------------------------------------------------+
 * life: of the job's number, the next for each job that gets it; exponent: of a later block, the switch answers with the largest;
 * kind: of the values (enum ina_contents of host/protocol/tensors.h): packets by which workers find out whether they agree are added
 * up, whatever the operation is
 */
header majority_t {
    bit<8>  job;
    bit<8>  life;
    int<8>  exponent;
    bit<8>  kind;
    bit<32> number;
}
struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    udp_t      udp;
    majority_t majority;
    values_t   values;
}
struct metadata_t {
    bit<32> full;         // bitmap of all workers of the job
    bit<32> worker;       // this worker's bit
    bit<32> incarnation;  // unlike that of all other jobs: rows have it
    bit<8>  life;         // the job's: what packets must say
    bit<16> group;
    bit<32> row;
    bit<1>  result;       // each replica is addressed to its worker
    bit<1>  flood;        // as forwarding.p4 wants it
    bit<32> source;       // likewise
}
#include "include/forwarding.p4"

parser MajorityParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
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
        transition select(hdr.udp.dst_port) { MAJORITY_PORT: majority; default: accept; }
    }
    state majority {
        packet.extract(hdr.majority);
        packet.extract(hdr.values);
        transition accept;
    }
}

control MajorityIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<32>>(ROWS) incarnations;
    register<bit<32>>(ROWS) numbers;
    register<bit<32>>(ROWS) bitmaps;
    register<bit<8>>(ROWS) exponents;
#define VALUE_REGISTER(i) register<bit<32>>(ROWS) value##i;
    FOR_EACH_VALUE(VALUE_REGISTER)
    Forwarding() forwarding;

    action set_job(bit<32> full, bit<32> incarnation, bit<8> life, bit<16> group) {
        meta.full = full;
        meta.incarnation = incarnation;
        meta.life = life;
        meta.group = group;
    }
    table job {
        key = { hdr.majority.job: exact; }
        actions = { set_job; NoAction; }
        default_action = NoAction();
        size = 256;
    }
    action set_worker(bit<32> worker) { meta.worker = worker; }
    table worker {
        key = { hdr.majority.job: exact; hdr.ipv4.src_addr: exact; hdr.udp.src_port: exact; standard.ingress_port: exact; }
        actions = { set_worker; NoAction; }
        default_action = NoAction();
        size = 4096;
    }
    action turn_round() {
        bit<48> mac = hdr.ethernet.src_addr;
        hdr.ethernet.src_addr = hdr.ethernet.dst_addr;
        hdr.ethernet.dst_addr = mac;
        bit<32> ip = hdr.ipv4.src_addr;
        hdr.ipv4.src_addr = hdr.ipv4.dst_addr;
        hdr.ipv4.dst_addr = ip;
        bit<16> port = hdr.udp.src_port;
        hdr.udp.src_port = hdr.udp.dst_port;
        hdr.udp.dst_port = port;
        hdr.udp.checksum = 0;
    }

    apply {
        if (!hdr.majority.isValid()) {
            forwarding.apply(hdr, meta, standard);
            return;
        }
        mark_to_drop(standard);
        if (standard.parser_error != error.NoError || standard.checksum_error == 1
                || !job.apply().hit || !worker.apply().hit || hdr.majority.life != meta.life) {
            return;
        }
        meta.row = (bit<32>)hdr.majority.job << 1 | (bit<32>)hdr.majority.number[0:0];
        bit<32> incarnation;
        bit<32> number;
        bit<32> seen;
        bit<8> largest;
        incarnations.read(incarnation, meta.row);
        numbers.read(number, meta.row);
        bitmaps.read(seen, meta.row);
        exponents.read(largest, meta.row);

        bool fresh = incarnation != meta.incarnation || (seen == meta.full && (int<32>)(hdr.majority.number - number) > 0);
        if (!fresh && number != hdr.majority.number) {
            return;  // of a round that is over
        }
        bool reduced = hdr.majority.kind >= REDUCED;
        bool repeated = !fresh && seen & meta.worker != 0;
        if (fresh) {
            seen = 0;
            incarnations.write(meta.row, meta.incarnation);
            numbers.write(meta.row, hdr.majority.number);
#define STORE(i) value##i.write(meta.row, reduced ? FIRST(hdr.values.v##i) : hdr.values.v##i);
            FOR_EACH_VALUE(STORE)
        } else if (!repeated) {
#define COMBINE(i) { bit<32> old; value##i.read(old, meta.row); \
        value##i.write(meta.row, reduced ? NEXT(old, hdr.values.v##i) : old + hdr.values.v##i); }
            FOR_EACH_VALUE(COMBINE)
        }
        if (!repeated) {
            if (fresh || hdr.majority.exponent > (int<8>)largest) {
                largest = (bit<8>)hdr.majority.exponent;
            }
            seen = seen | meta.worker;
            bitmaps.write(meta.row, seen);
            exponents.write(meta.row, largest);
        }
        if (seen == meta.full) {
            hdr.majority.exponent = (int<8>)largest;
#define LOAD(i) { bit<32> last; value##i.read(last, meta.row); hdr.values.v##i = reduced ? RESULT(last) : last; }
            FOR_EACH_VALUE(LOAD)
            turn_round();
            if (repeated) {
                standard.egress_spec = standard.ingress_port;
            } else {
                standard.mcast_grp = meta.group;
                meta.result = 1;
            }
        }
    }
}

control MajorityEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action to_worker(bit<48> mac, bit<32> ip, bit<16> port) {
        hdr.ethernet.dst_addr = mac;
        hdr.ipv4.dst_addr = ip;
        hdr.udp.dst_port = port;
    }
    table replica {
        key = { hdr.majority.job: exact; standard.egress_rid: exact; }
        actions = { to_worker; NoAction; }
        default_action = NoAction();
        size = 4096;
    }
    apply {
        if (meta.result == 1) {
            replica.apply();
        }
    }
}

#define IPV4_FIELDS { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.total_len, hdr.ipv4.identification, \
    hdr.ipv4.flags, hdr.ipv4.frag_offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src_addr, hdr.ipv4.dst_addr }
control VerifyChecksums(inout headers_t hdr, inout metadata_t meta) {
    apply { verify_checksum(hdr.majority.isValid(), IPV4_FIELDS, hdr.ipv4.hdr_checksum, HashAlgorithm.csum16); }
}
control UpdateChecksums(inout headers_t hdr, inout metadata_t meta) {
    apply { update_checksum(hdr.majority.isValid(), IPV4_FIELDS, hdr.ipv4.hdr_checksum, HashAlgorithm.csum16); }
}
control MajorityDeparser(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr); }
}

@ina_program[protocol="majority", values=VALUES, slots=8192]
V1Switch(MajorityParser(), VerifyChecksums(), MajorityIngress(), MajorityEgress(), UpdateChecksums(), MajorityDeparser()) main;
