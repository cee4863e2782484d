/* A TNA program for tests of the runtime: addresses to ports or groups, packets counted in each pipe. */
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
    Counter<bit<64>, PortId_t>(512, CounterType_t.PACKETS_AND_BYTES) received;

    action send(PortId_t port) { tm.ucast_egress_port = port; }
    action flood(MulticastGroupId_t group) { tm.mcast_grp_a = group; tm.rid = 0xffff; }
    action to_cpu() { tm.copy_to_cpu = 1; }
    action drop() { for_deparser.drop_ctl = 1; }

    table addresses {
        key = { hdr.ethernet.dst : exact; }
        actions = { send; flood; to_cpu; drop; }
        default_action = drop();
        size = 1024;
    }

    apply {
        received.count(ig.ingress_port);
        addresses.apply();
    }
}

control IngressDeparser(packet_out pkt, inout headers_t hdr, in metadata_t md,
                        in ingress_intrinsic_metadata_for_deparser_t for_deparser) {
    apply { pkt.emit(hdr); }
}

parser EgressParser(packet_in pkt, out headers_t hdr, out metadata_t md, out egress_intrinsic_metadata_t eg) {
    state start {
        pkt.extract(eg);
        pkt.extract(hdr.ethernet);
        transition accept;
    }
}

control Egress(inout headers_t hdr, inout metadata_t md, in egress_intrinsic_metadata_t eg,
               in egress_intrinsic_metadata_from_parser_t from_parser,
               inout egress_intrinsic_metadata_for_deparser_t for_deparser,
               inout egress_intrinsic_metadata_for_output_port_t output_port) {
    Register<bit<32>, bit<1>>(1) sent;
    RegisterAction<bit<32>, bit<1>, bit<32>>(sent) count = {
        void apply(inout bit<32> value) { value = value + 1; }
    };
    apply {
        count.execute(0);
        if (eg.egress_rid != 0) {
            hdr.ethernet.src = (bit<48>) eg.egress_rid;
        }
    }
}

control EgressDeparser(packet_out pkt, inout headers_t hdr, in metadata_t md,
                       in egress_intrinsic_metadata_for_deparser_t for_deparser) {
    apply { pkt.emit(hdr); }
}

Pipeline(IngressParser(), Ingress(), IngressDeparser(), EgressParser(), Egress(), EgressDeparser()) pipe;
Switch(pipe) main;
