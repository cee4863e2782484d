// Entries of single pipes, value sets of single parsers, idle time-outs, key masks, direct cells (tests/p4/bfrt/test_bfrt_pipes.py).
#include <core.p4>
#include <tna.p4>

header ethernet_t { bit<48> dst; bit<48> src; bit<16> ether_type; }
struct headers_t { ethernet_t ethernet; }
struct meta_t { bit<1> known; }
struct empty_t {}

parser IngressParser(packet_in packet, out headers_t hdr, out meta_t meta, out ingress_intrinsic_metadata_t standard) {
    value_set<bit<16>>(4) kinds;
    state start {
        packet.extract(standard);
        packet.advance(PORT_METADATA_SIZE);
        packet.extract(hdr.ethernet);
        meta.known = 0;
        transition select(hdr.ethernet.ether_type) {
            kinds: known;
            default: accept;
        }
    }
    state known {
        meta.known = 1;
        transition accept;
    }
}

control SwitchIngress(inout headers_t hdr, inout meta_t meta, in ingress_intrinsic_metadata_t standard,
                      in ingress_intrinsic_metadata_from_parser_t from_parser,
                      inout ingress_intrinsic_metadata_for_deparser_t deparser, inout ingress_intrinsic_metadata_for_tm_t tm) {
    DirectCounter<bit<32>>(CounterType_t.PACKETS) hits;
    DirectRegister<bit<32>>(7) last;
    DirectRegisterAction<bit<32>, bit<32>>(last) next = {
        void apply(inout bit<32> value, out bit<32> result) {
            value = value + 1;
            result = value;
        }
    };

    Meter<bit<3>>(8, MeterType_t.BYTES) paid;

    action drop() { deparser.drop_ctl = 1; }
    action to_port(bit<9> port) {
        tm.ucast_egress_port = port;
        hits.count();
    }
    @dynamic_table_key_masks(1)
    table forward {
        key = { hdr.ethernet.dst : exact; meta.known : exact; }
        actions = { to_port; drop; }
        default_action = drop();
        counters = hits;
        idle_timeout = true;
        size = 64;
    }
    action number() { hdr.ethernet.src = (bit<48>)next.execute(); }
    table numbered {
        key = { hdr.ethernet.dst : exact; }
        actions = { number; @defaultonly NoAction; }
        const default_action = NoAction();
        registers = last;
        size = 8;
    }
    apply {
        forward.apply();
        numbered.apply();
        tm.bypass_egress = 1;
        hdr.ethernet.src[47:40] = paid.execute(0);
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
