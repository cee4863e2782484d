/* Replies: the packet turns into the answer and goes down, to all children or to the one that asked; or it goes up. */
#ifndef INA_REPLIES_P4
#define INA_REPLIES_P4

#include "headers.p4"
#include "metadata.p4"

control Reply(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
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
        standard.egress_spec = port;
    }
    action orphaned() {
        meta.drop = Drop.NO_PARENT;
        mark_to_drop(standard);
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

    /* Published clients get no pending frame, so there is a check header. */
    action pending() {
        hdr.switchml.msg_type = SWITCHML_PENDING;
        hdr.switchml.overflow = 0;
        hdr.switchml.size = SIZE_NONE;
        hdr.values.setInvalid();
        hdr.pending.setValid();
        hdr.pending.missing = meta.missing;
        hdr.ipv4.total_len = IPV4_LENGTH + CHECK_LENGTH + PENDING_LENGTH;
        hdr.udp.length = UDP_LENGTH + CHECK_LENGTH + PENDING_LENGTH;
    }

    action refused() {
        hdr.switchml.msg_type = SWITCHML_REFUSED;
        hdr.switchml.overflow = 0;
        hdr.switchml.size = SIZE_NONE;
        hdr.switchml.checked = 1;
        hdr.values.setInvalid();
        hdr.check.setValid();
        hdr.check.version = WIRE_VERSION;
        hdr.check.flags = 0;
        hdr.check.check0 = 0;
        hdr.check.check1 = 0;
        hdr.ipv4.total_len = IPV4_LENGTH + CHECK_LENGTH;
        hdr.udp.length = UDP_LENGTH + CHECK_LENGTH;
    }

    apply {
        if (meta.to == To.PARENT) {
            parent.apply();
        } else {
            turn_round();
            if (meta.to == To.CHILDREN) {
                standard.mcast_grp = meta.group;
                meta.result = 1;
            } else {
                standard.egress_spec = standard.ingress_port;
                if (meta.drop == Drop.VERSION) {
                    refused();
                } else if (meta.complete == 0) {
                    pending();
                }
            }
        }
    }
}

/* Egress: address each replica to its child, a worker or a switch below; the replication id is the child's number. */
control Replicas(inout headers_t hdr, in standard_metadata_t standard) {
    action to_worker(bit<48> mac, bit<32> ip, bit<16> port) {
        hdr.ethernet.dst_addr = mac;
        hdr.ipv4.dst_addr = ip;
        hdr.udp.dst_port = port;
    }
    table replica {
        key = {
            hdr.switchml.job: exact;
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
