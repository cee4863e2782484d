/* A TNA program for tests of the runtime: filters, whose answers it writes into the addresses. */
#include <core.p4>
#include <tna.p4>

header ethernet_h {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

struct headers_t {
    ethernet_h ethernet;
}

struct metadata_t {}

parser IngressParser(packet_in pkt, out headers_t hdr, out metadata_t md, out ingress_intrinsic_metadata_t ig) {
    state start {
        pkt.extract(ig);
        pkt.advance(PORT_METADATA_SIZE);
        pkt.extract(hdr.ethernet);
        transition accept;
    }
}

control Ingress(inout headers_t hdr, inout metadata_t md, in ingress_intrinsic_metadata_t ig,
                in ingress_intrinsic_metadata_from_parser_t from_parser,
                inout ingress_intrinsic_metadata_for_deparser_t for_deparser,
                inout ingress_intrinsic_metadata_for_tm_t tm) {
    Lpf<bit<32>, bit<4>>(16) average;
    Wred<bit<32>, bit<4>>(16, 1, 0) red;
    DirectLpf<bit<32>>() mine;

    bit<32> sample = hdr.ethernet.src[31:0];
    bit<32> out1 = 0;
    bit<32> out2 = 0;
    bit<8> out3 = 0;

    action filter() { out2 = mine.execute(sample); }
    table addresses {
        key = { hdr.ethernet.dst : exact; }
        actions = { filter; NoAction; }
        default_action = NoAction();
        filters = mine;
        size = 16;
    }

    apply {
        out1 = average.execute(sample, 3);
        out3 = red.execute(sample, 3);
        addresses.apply();
        hdr.ethernet.src[47:16] = out1;
        hdr.ethernet.dst[47:16] = out2;
        hdr.ethernet.type = (bit<16>) out3;
        tm.ucast_egress_port = 1;
        tm.bypass_egress = 1;
    }
}

control IngressDeparser(packet_out pkt, inout headers_t hdr, in metadata_t md,
                        in ingress_intrinsic_metadata_for_deparser_t for_deparser) {
    apply { pkt.emit(hdr); }
}

parser EgressParser(packet_in pkt, out headers_t hdr, out metadata_t md, out egress_intrinsic_metadata_t eg) {
    state start {
        pkt.extract(eg);
        transition accept;
    }
}

control Egress(inout headers_t hdr, inout metadata_t md, in egress_intrinsic_metadata_t eg,
               in egress_intrinsic_metadata_from_parser_t from_parser,
               inout egress_intrinsic_metadata_for_deparser_t for_deparser,
               inout egress_intrinsic_metadata_for_output_port_t output_port) {
    apply { }
}

control EgressDeparser(packet_out pkt, inout headers_t hdr, in metadata_t md,
                       in egress_intrinsic_metadata_for_deparser_t for_deparser) {
    apply { }
}

Pipeline(IngressParser(), Ingress(), IngressDeparser(), EgressParser(), Egress(), EgressDeparser()) pipe;
Switch(pipe) main;
