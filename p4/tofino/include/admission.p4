/* Admission: is this packet of a registered child or of the parent, of this life of its job, for a slot that the job owns?
 * Tables, actions and keys have the names that they have in ../../include/admission.p4: one controller writes both.
 */
#ifndef INA_TOFINO_ADMISSION_P4
#define INA_TOFINO_ADMISSION_P4

#include "headers.p4"

control Admission(in packet_t hdr, inout state_t meta, in ingress_intrinsic_metadata_from_parser_t from_parser) {
    bit<16> slot_base = 0;
    bit<14> slot_mask = 0;

    action set_job(bit<32> full, bit<8> last, bit<16> base, bit<14> mask, bit<32> incarnation, bit<16> group, bit<1> strict,
                   bit<1> parent) {
        meta.full = full;
        meta.last = last;
        slot_base = base;
        slot_mask = mask;
        meta.incarnation = incarnation;
        meta.group = group;
        meta.strict = strict;
        meta.parent = parent;
    }
    table job {
        key = { hdr.switchml.job: exact; }
        actions = { set_job; NoAction; }
        default_action = NoAction();
        size = 256;
    }

    action set_worker(bit<32> worker) {
        meta.worker = worker;
    }
    action set_parent() {
        meta.worker = 0;
    }
    table worker {
        key = {
            hdr.switchml.job: exact;
            hdr.ipv4.src_addr: exact;
            hdr.udp.src_port: exact;
            meta.port: exact @name("standard.ingress_port");
        }
        actions = { set_worker; set_parent; NoAction; }
        default_action = NoAction();
        size = 4096;
    }

    apply {
        bit<16> payload = 0;
        if (hdr.lanes.isValid()) {
            payload = 4 * VALUES;
        } else if (hdr.pending.isValid()) {
            payload = PENDING_LENGTH;
        }
        bool known_job = job.apply().hit;
        bool known_worker = worker.apply().hit;
        if (from_parser.parser_err != PARSER_ERROR_OK || meta.bad_checksum || hdr.switchml.reserved != 0
                || (hdr.switchml.msg_type != SWITCHML_DATA && hdr.switchml.msg_type != SWITCHML_MAXIMUM
                    && !hdr.pending.isValid())) {
            meta.drop = Drop.MALFORMED;
        } else if (!hdr.exponents.isValid()) {
            meta.drop = Drop.WRONG_SIZE;
        } else if (hdr.ipv4.total_len != IPV4_LENGTH + payload || hdr.udp.length != UDP_LENGTH + payload) {
            meta.drop = Drop.MALFORMED;
        } else if (!known_job) {
            meta.drop = Drop.UNKNOWN_JOB;
        } else if (!known_worker || (hdr.pending.isValid() && meta.worker != 0)) {
            meta.drop = Drop.WRONG_SOURCE;
        } else if (meta.strict == 1 && (bit<8>)hdr.exponents.e1 != meta.incarnation[7:0]) {
            meta.drop = Drop.OLD_INCARNATION;
        } else if (hdr.switchml.slot & slot_mask != hdr.switchml.slot) {
            meta.drop = Drop.WRONG_SLOT;
        } else {
            meta.slot = (bit<32>)slot_base + (bit<32>)hdr.switchml.slot;
            meta.row = meta.slot << 1 | (bit<32>)hdr.switchml.set;
        }
    }
}

#endif
