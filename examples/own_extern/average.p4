/* Sends each packet back with the moving average of the values so far, and its square root, which externs of the program's own
 * compute: average.py has their bodies. */
#include <core.p4>
#include <v1model.p4>

extern bit<32> square_root(in bit<32> value, out bit<32> rest);

extern Average {
    Average(bit<32> weight);
    bit<32> update(in bit<32> sample);
}

header value_t {
    bit<32> value;
    bit<32> average;
    bit<32> root;
    bit<32> rest;
}

struct headers_t {
    value_t value;
}

struct metadata_t {}

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.value);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Answer(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    Average(8) average;

    apply {
        hdr.value.average = average.update(hdr.value.value);
        hdr.value.root = square_root(hdr.value.value, hdr.value.rest);
        standard.egress_spec = standard.ingress_port;
    }
}

control Leave(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {}
}

control Compute(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(Parse(), Verify(), Answer(), Leave(), Compute(), Deparse()) main;
