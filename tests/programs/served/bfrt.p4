// A little of everything that BFRuntime has tables for, on TNA (tests/p4/bfrt/test_bfrt_tna.py).
#include <core.p4>
#include <tna.p4>

struct pair_t { bit<32> first; bit<32> second; }
struct port_t { bit<8> zone; bit<16> label; }
header ethernet_t { bit<48> dst; bit<48> src; bit<16> ether_type; }
struct headers_t { ethernet_t ethernet; }
struct meta_t { port_t port; }
struct empty_t {}

parser IngressParser(packet_in packet, out headers_t hdr, out meta_t meta, out ingress_intrinsic_metadata_t standard) {
    state start {
        packet.extract(standard);
        meta.port = port_metadata_unpack<port_t>(packet);
        packet.extract(hdr.ethernet);
        transition accept;
    }
}

control SwitchIngress(inout headers_t hdr, inout meta_t meta, in ingress_intrinsic_metadata_t standard,
                      in ingress_intrinsic_metadata_from_parser_t from_parser,
                      inout ingress_intrinsic_metadata_for_deparser_t deparser, inout ingress_intrinsic_metadata_for_tm_t tm) {
    Register<pair_t, bit<8>>(256, {5, 7}) pairs;
    RegisterAction<pair_t, bit<8>, bit<32>>(pairs) bump = {
        void apply(inout pair_t value, out bit<32> result) {
            value.first = value.first + 1;
            result = value.second;
        }
    };
    Counter<bit<32>, bit<8>>(256, CounterType_t.PACKETS_AND_BYTES) seen;
    DirectCounter<bit<32>>(CounterType_t.PACKETS) hits;

    action drop() { deparser.drop_ctl = 1; }
    action to_port(bit<9> port) {
        tm.ucast_egress_port = port;
        hits.count();
    }
    action to_group(bit<16> group) {
        tm.mcast_grp_a = group;
        hits.count();
    }
    table forward {
        key = { hdr.ethernet.dst : ternary; meta.port.zone : exact; }
        actions = { to_port; to_group; @defaultonly drop; }
        const default_action = drop();
        counters = hits;
        size = 64;
    }
    apply {
        bit<8> index = (bit<8>)standard.ingress_port;
        bump.execute(index);
        seen.count(index);
        forward.apply();
    }
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
