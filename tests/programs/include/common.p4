/* One header of 24 bytes, a pipeline around the control `Body` of the program that includes this file. */
#include <core.p4>
#include <v1model.p4>

header data_t {
    bit<48> to;
    bit<48> from;
    bit<16> kind;
    bit<32> a;
    bit<32> b;
    bit<16> c;
}

struct headers_t {
    data_t data;
}

struct metadata_t {
    bit<8> found;
}

#ifndef OWN_PARSER
parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.data);
        transition accept;
    }
}
#endif

control Unchecked(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control Out(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { }
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.data);
    }
}

#define SWITCH(body) V1Switch(Parse(), Unchecked(), body(), Out(), Unchecked(), Deparse()) main;
