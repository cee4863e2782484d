/* Replies: the packet turns into the answer and goes down, to all children or to the one that asked; or it goes up. */
#ifndef INA_TOFINO_REPLIES_P4
#define INA_TOFINO_REPLIES_P4

#include "headers.p4"

#ifndef IS_PENDING  // an answer that does not carry the sums
#define IS_PENDING hdr.bridge.complete == 0
#endif

control Reply(inout packet_t hdr, inout state_t meta, inout ingress_intrinsic_metadata_for_tm_t traffic) {
    action to_parent(bit<9> port, bit<48> mac, bit<32> ip, bit<16> udp_port,
                     bit<48> own_mac, bit<32> own_ip, bit<16> own_port) {
        hdr.ethernet.src_addr = own_mac;
        hdr.ethernet.dst_addr = mac;
        hdr.ipv4.src_addr = own_ip;
        hdr.ipv4.dst_addr = ip;
        hdr.ipv4.ttl = 64;
        hdr.udp.src_port = own_port;
        hdr.udp.dst_port = udp_port;
        hdr.udp.checksum = 0;
        traffic.ucast_egress_port = port;
    }
    action orphaned() {
        meta.drop = Drop.NO_PARENT;
    }
    table parent {
        key = { hdr.switchml.job: exact; }
        actions = { to_parent; orphaned; }
        default_action = orphaned();
        size = 256;
    }

    action turn_round() {
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
    }

#ifdef RECEIVERS  // of a program that tells some children of a result before others (../receivers/pruning.p4)
    action go_on() {  // a copy takes the values along
        hdr.bridge.pass = Pass.LOAD;
        hdr.bridge.op = Op.LOAD;
        hdr.bridge.apart = Apart.TOLD;
        traffic.ucast_egress_port = RECIRCULATION;
    }
#endif

    action pending() {
        hdr.switchml.msg_type = SWITCHML_PENDING;
        hdr.switchml.overflow = 0;
        hdr.switchml.size = SIZE_NONE;
        hdr.pending.setValid();
        hdr.pending.missing = hdr.bridge.missing;
        hdr.ipv4.total_len = IPV4_LENGTH + CHECK_LENGTH + PENDING_LENGTH;
        hdr.udp.length = UDP_LENGTH + CHECK_LENGTH + PENDING_LENGTH;
    }

    action refused() {
        hdr.switchml.msg_type = SWITCHML_REFUSED;
        hdr.switchml.overflow = 0;
        hdr.switchml.size = SIZE_NONE;
        hdr.switchml.checked = 1;
        hdr.check.setValid();
        hdr.check.version = WIRE_VERSION;
        hdr.check.flags = 0;
        hdr.check.check0 = 0;
        hdr.check.check1 = 0;
        hdr.ipv4.total_len = IPV4_LENGTH + CHECK_LENGTH;
        hdr.udp.length = UDP_LENGTH + CHECK_LENGTH;
    }

    apply {
        hdr.bridge.replicated = 0;
        if (hdr.bridge.to == To.PARENT) {
            parent.apply();
        } else {
            if (hdr.bridge.apart != Apart.TOLD) {
                turn_round();
            }
            if (hdr.bridge.to == To.CHILDREN) {
                traffic.mcast_grp_a = hdr.bridge.group;
                hdr.bridge.replicated = 1;
            } else {
                traffic.ucast_egress_port = hdr.bridge.port;
                if (hdr.bridge.outdated == 1) {
                    refused();
                } else if (IS_PENDING) {
                    pending();
                }
            }
        }
#ifdef RECEIVERS
        if (hdr.bridge.pass == Pass.TELL) {
            go_on();
        } else
#endif
        {
            hdr.bridge.pass = Pass.LEAVE;
        }
    }
}

/* Egress: address each replica to its child, a worker or a switch below; the replication id is the child's number. */
control Replicas(inout packet_t hdr, in egress_intrinsic_metadata_t standard) {
    action to_worker(bit<48> mac, bit<32> ip, bit<16> port) {
        hdr.ethernet.dst_addr = mac;
        hdr.ipv4.dst_addr = ip;
        hdr.udp.dst_port = port;
    }
    table replica {
        key = {
            hdr.switchml.job: exact;
            standard.egress_rid: exact @name("standard.egress_rid");
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
