// Layer 2 on TNA, with the table that the controller forwards by (tests/worlds/deployed/test_deploy.py).
#include <core.p4>
#include <tna.p4>

header ethernet_t { bit<48> dst_addr; bit<48> src_addr; bit<16> ether_type; }
struct headers_t { ethernet_t ethernet; }
struct meta_t {}
struct empty_t {}

parser IngressParser(packet_in packet, out headers_t hdr, out meta_t meta, out ingress_intrinsic_metadata_t standard) {
    state start {
        packet.extract(standard);
        packet.advance(PORT_METADATA_SIZE);
        packet.extract(hdr.ethernet);
        transition accept;
    }
}

control SwitchIngress(inout headers_t hdr, inout meta_t meta, in ingress_intrinsic_metadata_t standard,
                      in ingress_intrinsic_metadata_from_parser_t from_parser,
                      inout ingress_intrinsic_metadata_for_deparser_t deparser, inout ingress_intrinsic_metadata_for_tm_t tm) {
    action drop() { deparser.drop_ctl = 1; }
    action forward(bit<9> port) { tm.ucast_egress_port = port; }
    action flood(bit<16> group) { tm.mcast_grp_a = group; }
    table l2 {
        key = { hdr.ethernet.dst_addr : exact; }
        actions = { forward; flood; @defaultonly drop; }
        const default_action = drop();
        size = 1024;
    }
    apply { l2.apply(); }
}

control IngressDeparser(packet_out packet, inout headers_t hdr, in meta_t meta, in ingress_intrinsic_metadata_for_deparser_t standard) {
    apply { packet.emit(hdr); }
}

parser EgressParser(packet_in packet, out empty_t hdr, out empty_t meta, out egress_intrinsic_metadata_t standard) {
    state start {
        packet.extract(standard);
        transition accept;
    }
}

control SwitchEgress(inout empty_t hdr, inout empty_t meta, in egress_intrinsic_metadata_t standard,
                     in egress_intrinsic_metadata_from_parser_t from_parser,
                     inout egress_intrinsic_metadata_for_deparser_t deparser,
                     inout egress_intrinsic_metadata_for_output_port_t output) {
    apply {}
}

control EgressDeparser(packet_out packet, inout empty_t hdr, in empty_t meta, in egress_intrinsic_metadata_for_deparser_t standard) {
    apply {}
}

Pipeline(IngressParser(), SwitchIngress(), IngressDeparser(), EgressParser(), SwitchEgress(), EgressDeparser()) pipe;
Switch(pipe) main;
