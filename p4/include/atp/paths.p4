/* Paths: up to the parameter server, switch by switch, and down to the workers. */
#ifndef INA_ATP_PATHS_P4
#define INA_ATP_PATHS_P4

#include "headers.p4"
#include "metadata.p4"

control Up(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action to_parent(bit<9> port, bit<48> mac, bit<32> ip, bit<16> udp_port, bit<48> own_mac, bit<32> own_ip, bit<16> own_port) {
        standard.egress_spec = port;
        hdr.ethernet.dst_addr = mac;
        hdr.ethernet.src_addr = own_mac;
        hdr.ipv4.dst_addr = ip;
        hdr.ipv4.src_addr = own_ip;
        hdr.ipv4.ttl = 64;
        hdr.udp.dst_port = udp_port;
        hdr.udp.src_port = own_port;
        hdr.udp.checksum = 0;
    }
    table parent {
        key = { hdr.atp.job: exact; }
        actions = { to_parent; NoAction; }
        default_action = NoAction();
        size = 256;
    }
    apply {
        if (!parent.apply().hit) {
            meta.drop = Drop.UNKNOWN_JOB;
        }
    }
}

control Down(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action to_child(bit<9> port, bit<48> mac, bit<32> ip, bit<16> udp_port) {
        standard.egress_spec = port;
        hdr.ethernet.dst_addr = mac;
        hdr.ipv4.dst_addr = ip;
        hdr.udp.dst_port = udp_port;
    }
    table one {  // the way to a single worker
        key = {
            hdr.atp.job: exact;
            hdr.atp.bitmap: exact;
        }
        actions = { to_child; NoAction; }
        default_action = NoAction();
        size = 4096;
    }
    apply {
        hdr.ethernet.src_addr = hdr.ethernet.dst_addr;
        hdr.ipv4.src_addr = hdr.ipv4.dst_addr;
        hdr.ipv4.ttl = 64;
        hdr.udp.src_port = hdr.udp.dst_port;
        hdr.udp.checksum = 0;
        if (!one.apply().hit) {
            standard.mcast_grp = meta.group;
            meta.replicated = 1;
        }
    }
}

/* Back to the child that speaks another version: the switch's own version, nothing else. */
control Refusal(inout headers_t hdr, inout standard_metadata_t standard) {
    apply {
        bit<48> mac = hdr.ethernet.src_addr;
        hdr.ethernet.src_addr = hdr.ethernet.dst_addr;
        hdr.ethernet.dst_addr = mac;
        bit<32> ip = hdr.ipv4.src_addr;
        hdr.ipv4.src_addr = hdr.ipv4.dst_addr;
        hdr.ipv4.dst_addr = ip;
        hdr.ipv4.ttl = 64;
        bit<16> port = hdr.udp.src_port;
        hdr.udp.src_port = hdr.udp.dst_port;
        hdr.udp.dst_port = port;
        hdr.udp.checksum = 0;
        hdr.ipv4.total_len = IPV4_LENGTH;
        hdr.udp.length = UDP_LENGTH;
        hdr.atp.msg_type = Type.REFUSED;
        hdr.check.version = WIRE_VERSION;
        hdr.check.flags = 0;
        hdr.check.check0 = 0;
        hdr.check.check1 = 0;
        hdr.values.setInvalid();
        standard.egress_spec = standard.ingress_port;
    }
}

/* Egress: address each replica to its child; the replication id is the child's number. */
control Replicas(inout headers_t hdr, in standard_metadata_t standard) {
    action to_worker(bit<48> mac, bit<32> ip, bit<16> port) {
        hdr.ethernet.dst_addr = mac;
        hdr.ipv4.dst_addr = ip;
        hdr.udp.dst_port = port;
    }
    table replica {
        key = {
            hdr.atp.job: exact;
            standard.egress_rid: exact;
        }
        actions = { to_worker; NoAction; }
        default_action = NoAction();
        size = 4096;
    }
    apply {
        replica.apply();
    }
}

#endif
