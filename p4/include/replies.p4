/* Replies: the packet turns into the answer and goes back, to all workers or to the one that asked. */
#ifndef INA_REPLIES_P4
#define INA_REPLIES_P4

#include "headers.p4"
#include "metadata.p4"

control Reply(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
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

    action pending() {
        hdr.switchml.msg_type = SWITCHML_PENDING;
        hdr.switchml.size = SIZE_NONE;
        hdr.values.setInvalid();
        hdr.pending.setValid();
        hdr.pending.bitmap = meta.bitmap;
        hdr.ipv4.total_len = IPV4_LENGTH + 4;  // the bitmap
        hdr.udp.length = UDP_LENGTH + 4;
    }

    apply {
        turn_round();
        if (meta.complete == 1 && meta.repeated == 0) {
            standard.mcast_grp = meta.group;
            meta.result = 1;
        } else {
            standard.egress_spec = standard.ingress_port;
            if (meta.complete == 0) {
                pending();
            }
        }
    }
}

/* Egress: address each replica of a result to its worker; the replication id is the worker's number. */
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
