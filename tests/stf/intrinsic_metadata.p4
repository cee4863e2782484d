// Intrinsic metadata: ports, length, replication id, times and depths of the queue.
#include "include/begin.p4"

struct headers_t {
    data_t data;
}

struct metadata_t {
    bit<48> arrived;
}

control In(ALL) {
    apply {
        standard.egress_spec = 1;
        hdr.data.a[8:0] = standard.ingress_port;
        hdr.data.b = standard.packet_length;
        meta.arrived = standard.ingress_global_timestamp;
    }
}

#define EGRESS
control Out(ALL) {
    apply {
        hdr.data.c = (bit<16>)standard.egress_port;
        if (standard.egress_global_timestamp >= meta.arrived && (bit<48>)standard.enq_timestamp >= meta.arrived
            && standard.deq_timedelta < 10000000) {
            hdr.data.d = 1;
        }
        if (standard.enq_qdepth == 0 && standard.deq_qdepth == 0) {
            hdr.data.e = 1;
        }
        hdr.data.f = standard.packet_length;
    }
}

#include "include/end.p4"
