/* A switch that adds up: each packet carries a number, and comes back with the total so far. */
#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> dst; bit<48> src; bit<16> type; }
header number_t { bit<32> value; }
struct headers_t { ethernet_t ethernet; number_t number; }
struct metadata_t {}

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.number);
        transition accept;
    }
}

control Add(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<32>>(1) total;

    action reply(bit<9> port) {
        standard.egress_spec = port;
    }
    table workers {
        key = { hdr.ethernet.src: exact; }
        actions = { reply; NoAction; }
        default_action = NoAction;
    }

    apply {
        bit<32> sum;
        if (workers.apply().hit) {
            total.read(sum, 0);
            hdr.number.value = sum + hdr.number.value;
            total.write(0, hdr.number.value);
        } else {
            mark_to_drop(standard);
        }
    }
}

control Nothing(inout headers_t hdr, inout metadata_t meta) { apply {} }
control Leave(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply {} }
control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(Parse(), Nothing(), Add(), Leave(), Nothing(), Deparse()) main;
