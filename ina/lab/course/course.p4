/* Packet format of the course, and the parser that the step "parse" writes: all later steps include them.
 *
 * Everything is big-endian. A frame of the course is 38 bytes, or more: what follows the values is padding.
 *
 *  0                   1                   2                   3
 *  +---------------+---------------+---------------+---------------+
 *  |  Ethernet: destination 6 bytes, source 6 bytes, type 0x88B5   |
 *  +---------------+---------------+---------------+---------------+
 *  |     kind      |     count     |     hops      |      job      |
 *  +---------------+-------------+-+---------------+---------------+
 *  |    worker     |     slot    |v|             block             |
 *  +---------------+-------------+-+---------------+---------------+
 *  |             values: v0, v1, v2, v3, 32 bits each              |
 *  +---------------------------------------------------------------+
 *
 * kind: 1 contribution, 2 result, 3 question; count: of values, always 4; hops: switches that the frame may still pass; job: who
 * adds up together; worker: who sends, from 0; slot: where in the switch a block is added up; version: which of the slot's two
 * pools; block: which part of the worker's vector this is, from 0.
 */
#include <core.p4>
#include <v1model.p4>

const bit<16> SUM_TYPE = 0x88B5;  // of Ethernet, for experiments (IEEE 802)
const bit<8> CONTRIBUTION = 1;
const bit<8> RESULT = 2;
const bit<8> QUESTION = 3;
const bit<8> VALUES = 4;

error { BadCount }

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

header sum_t {
    bit<8>  kind;
    bit<8>  count;
    bit<8>  hops;
    bit<8>  job;
    bit<8>  worker;
    bit<7>  slot;
    bit<1>  version;
    bit<16> block;
}

header values_t {
    bit<32> v0;
    bit<32> v1;
    bit<32> v2;
    bit<32> v3;
}

struct headers_t {
    ethernet_t ethernet;
    sum_t      sum;
    values_t   values;
}

struct metadata_t {}

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            SUM_TYPE: sum;
            default: accept;
        }
    }
    state sum {
        packet.extract(hdr.sum);
        verify(hdr.sum.count == VALUES, error.BadCount);
        packet.extract(hdr.values);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Update(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}
