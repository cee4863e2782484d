/* Admission: is this packet of this life of its job, from one of the job's sources, about that source's own workers?
 * Tables, actions and keys have the names that they have in ../../include/atp_admission.p4: one controller writes both.
 */
#ifndef INA_TOFINO_ATP_ADMISSION_P4
#define INA_TOFINO_ATP_ADMISSION_P4

#include "atp_headers.p4"

control Admission(in packet_t hdr, inout state_t meta, in ingress_intrinsic_metadata_from_parser_t from_parser) {
    action set_job(bit<32> full, bit<32> incarnation, bit<16> group, bit<1> aggregate, bit<19> ecn_depth, bit<32> lifetime) {
        meta.full = full;
        meta.incarnation = incarnation;
        meta.group = group;
        meta.aggregate = aggregate;
        meta.ecn_depth = ecn_depth * (VALUES / 16);  // cells of 80 bytes, of which a packet has about so many
        meta.lifetime = lifetime;
    }
    table job {
        key = { hdr.atp.job: exact; }
        actions = { set_job; NoAction; }
        default_action = NoAction();
        size = 256;
    }

    action set_worker(bit<32> worker) {  // a worker, or a switch below: the bits of all workers there
        meta.workers = worker;
    }
    action set_parent() {  // the switch above, or the parameter server
        meta.downwards = 1;
    }
    table worker {
        key = {
            hdr.atp.job: exact;
            hdr.ipv4.src_addr: exact;
            hdr.udp.src_port: exact;
            meta.port: exact @name("standard.ingress_port");
        }
        actions = { set_worker; set_parent; NoAction; }
        default_action = NoAction();
        size = 4096;
    }

    apply {
        bool result = hdr.atp.msg_type == Type.RESULT || hdr.atp.msg_type == Type.FLOAT_RESULT;
        bool pending = hdr.atp.msg_type == Type.PENDING;
        bool known_job = job.apply().hit;
        bool known_worker = worker.apply().hit;
        if (from_parser.parser_err != PARSER_ERROR_OK || meta.bad_checksum
                || hdr.ipv4.total_len != hdr.udp.length + (IPV4_LENGTH - UDP_LENGTH)
                || (bit<4>)hdr.atp.msg_type == 0 || (bit<4>)hdr.atp.msg_type > LAST_TYPE) {
            meta.drop = Drop.MALFORMED;
        } else if (pending ? !hdr.pending.isValid() : !hdr.lanes.isValid() && hdr.udp.length != UDP_LENGTH) {
            meta.drop = Drop.WRONG_SIZE;
        } else if (!known_job) {
            meta.drop = Drop.UNKNOWN_JOB;
        } else if (!known_worker || (meta.downwards == 1) != (result || pending)) {
            meta.drop = Drop.WRONG_SOURCE;
        } else if (hdr.atp.incarnation != meta.incarnation[15:0]) {
            meta.drop = Drop.OLD_INCARNATION;
        } else if (meta.downwards == 0 && (hdr.atp.bitmap == 0 || hdr.atp.bitmap & ~meta.workers != 0)) {
            meta.drop = Drop.WRONG_WORKERS;
        }
    }
}

#endif
