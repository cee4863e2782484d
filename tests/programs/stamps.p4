/* What a program sees of the queue that a packet waited in, written into the packet; `again` sends it through once more. */
#include <core.p4>
#include <v1model.p4>

header udp_frame_t {           /* Ethernet, IPv4 without options, UDP: the host's number is the last byte of its MAC address */
    bit<40> to_prefix;
    bit<8>  to;
    bit<288> rest;
}

header stamp_t {
    bit<32> number;
    bit<8>  again;             /* passes that are left */
    bit<8>  passes;            /* passes that it has made */
    bit<48> ingress;           /* us; the last pass's, as all below */
    bit<32> enqueued;          /* us */
    bit<32> enq_depth;         /* packets */
    bit<32> waited;            /* us */
    bit<32> deq_depth;         /* packets */
    bit<48> egress;            /* us */
}

struct headers_t {
    udp_frame_t frame;
    stamp_t stamp;
}

struct metadata_t { }

parser Packets(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.frame);
        packet.extract(hdr.stamp);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = (bit<9>)hdr.frame.to;
        hdr.stamp.ingress = standard.ingress_global_timestamp;
    }
}

control Stamp(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        hdr.stamp.enqueued = standard.enq_timestamp;
        hdr.stamp.enq_depth = (bit<32>)standard.enq_qdepth;
        hdr.stamp.waited = standard.deq_timedelta;
        hdr.stamp.deq_depth = (bit<32>)standard.deq_qdepth;
        hdr.stamp.egress = standard.egress_global_timestamp;
        hdr.stamp.passes = hdr.stamp.passes + 1;
        if (hdr.stamp.again > 0) {
            hdr.stamp.again = hdr.stamp.again - 1;
            recirculate_preserving_field_list(0);
        }
    }
}

control Compute(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.frame);
        packet.emit(hdr.stamp);
    }
}

V1Switch(Packets(), Verify(), Forward(), Stamp(), Compute(), Deparse()) main;
