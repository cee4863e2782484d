// Multicast groups: a copy for each port and replication id, which egress sees; an empty group drops.
#include "include/begin.p4"

struct headers_t {
    data_t data;
}

struct metadata_t {
}

control In(ALL) {
    apply {
        standard.egress_spec = 1;
        standard.mcast_grp = hdr.data.c;
    }
}

#define EGRESS
control Out(ALL) {
    apply {
        hdr.data.a = (bit<32>)standard.egress_rid;
        hdr.data.b = (bit<32>)standard.egress_port;
        if (standard.egress_port == standard.ingress_port) {
            mark_to_drop(standard);
        }
    }
}

#include "include/end.p4"
