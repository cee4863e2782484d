/* exercise: parse
 *
 * Answer each contribution at once. Fill in what is marked TODO; `ina exercise show parse` has the task, and
 * `ina exercise check parse.p4` runs the tests. The packet format:
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
 */
#include <core.p4>
#include <v1model.p4>

const bit<16> SUM_TYPE = 0x88B5;
const bit<8> CONTRIBUTION = 1;
const bit<8> RESULT = 2;
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
            // TODO: frames of type SUM_TYPE go to a state of their own.
            default: accept;
        }
    }
    // TODO: that state extracts hdr.sum and hdr.values. If the count is not VALUES, the error is BadCount.
    // Hint: verify(CONDITION, ERROR) ends the parser with the error if the condition is false.
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Answer(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        // TODO: drop what is malformed, is not of the course, or is no contribution.
        // Hint: standard.parser_error is error.NoError where the parser has found nothing wrong; a header that was not extracted
        // is not valid.
        mark_to_drop(standard);

        // TODO: make the contribution a result, change the addresses, and send it back.
        // Hint: what standard.egress_spec says last is where the frame goes.
    }
}

control Leave(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {}
}

control Update(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        // TODO: the other headers, in their order. A header that is not valid is not emitted.
    }
}

V1Switch(Parse(), Verify(), Answer(), Leave(), Update(), Deparse()) main;
