/* Admission: is this packet of a registered child or of the parent, of this life of its job, for a slot that the job owns?
 * Tables, actions and keys that the controller writes have the names that they have in ../../include/admission.p4.
 */
#ifndef INA_TOFINO_ADMISSION_P4
#define INA_TOFINO_ADMISSION_P4

#include "headers.p4"

control Admission(inout packet_t hdr, inout state_t meta, in ingress_intrinsic_metadata_from_parser_t from_parser) {
    bit<1>  known_job = 0;
    bit<1>  known_worker = 0;
    bit<32> first_row = 0;
    bit<32> first_slot = 0;
    bit<32> place = 0;      // the row's, among the job's
    bit<14> unowned = 0;    // bits of a slot's number that the job does not use
    bit<14> outside = 0;
    bit<8>  stray = 0;      // how the packet's incarnation is another

    action set_job(bit<32> full, bit<8> last, bit<16> base, bit<14> mask, bit<32> incarnation, bit<16> group, bit<1> strict,
                   bit<1> parent) {
        known_job = 1;
        meta.full = full;
        meta.last = last;
        first_row = (bit<32>)(base ++ 1w0);
        first_slot = (bit<32>)base;
        unowned = ~mask;
        meta.incarnation = incarnation;
        hdr.bridge.group = group;
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
        known_worker = 1;
        meta.worker = worker;
    }
    action set_parent() {
        known_worker = 1;
        meta.worker = 0;
        meta.above = 1;
    }
    table worker {
        key = {
            hdr.switchml.job: exact;
            hdr.ipv4.src_addr: exact;
            hdr.udp.src_port: exact;
            hdr.bridge.port: exact @name("standard.ingress_port");
        }
        actions = { set_worker; set_parent; NoAction; }
        default_action = NoAction();
        size = 4096;
    }

    action right(Op join) {
        meta.join = join;
        meta.drop = Drop.NONE;
    }
    action wrong(Drop reason) {
        meta.drop = reason;
    }
    table shape {
        key = {
            from_parser.parser_err: ternary;
            meta.bad_checksum: ternary;
            hdr.switchml.reserved: ternary;
            hdr.switchml.msg_type: ternary;
            hdr.exponents.isValid(): ternary;
            hdr.pending.isValid(): ternary;
            hdr.lanes.isValid(): ternary;
            hdr.ipv4.total_len: ternary;
            hdr.udp.length: ternary;
        }
        actions = { right; wrong; }
#define VALUES_LENGTH (4 * VALUES)
        const entries = {
            (0, false, 0, SWITCHML_DATA, true, false, true, IPV4_LENGTH + VALUES_LENGTH, UDP_LENGTH + VALUES_LENGTH):
                right(Op.ADD);
            (0, false, 0, SWITCHML_MAXIMUM, true, false, true, IPV4_LENGTH + VALUES_LENGTH, UDP_LENGTH + VALUES_LENGTH):
                right(Op.MAXIMUM);
            (0, false, 0, SWITCHML_DATA, true, false, false, IPV4_LENGTH, UDP_LENGTH): right(Op.ADD);
            (0, false, 0, SWITCHML_MAXIMUM, true, false, false, IPV4_LENGTH, UDP_LENGTH): right(Op.MAXIMUM);
            (0, false, 0, SWITCHML_PENDING, true, true, false, IPV4_LENGTH + PENDING_LENGTH, UDP_LENGTH + PENDING_LENGTH):
                right(Op.NOTHING);
            (0, false, 0, SWITCHML_DATA, false, _, _, _, _): wrong(Drop.WRONG_SIZE);
            (0, false, 0, SWITCHML_MAXIMUM, false, _, _, _, _): wrong(Drop.WRONG_SIZE);
        }
        const default_action = wrong(Drop.MALFORMED);
        size = 8;
    }

    apply {
        job.apply();
        worker.apply();
        shape.apply();
        place = (bit<32>)(hdr.switchml.slot ++ hdr.switchml.set);

        stray = (bit<8>)hdr.exponents.e1 ^ meta.incarnation[7:0];
        outside = hdr.switchml.slot & unowned;
        hdr.bridge.row = first_row + place;
        hdr.bridge.cell = first_row + place;
        meta.slot = first_slot + (bit<32>)hdr.switchml.slot;

        if (meta.drop == Drop.NONE) {
            if (known_job == 0) {
                meta.drop = Drop.UNKNOWN_JOB;
            } else if (known_worker == 0 || (hdr.pending.isValid() && meta.above == 0)) {
                meta.drop = Drop.WRONG_SOURCE;
            } else if (meta.strict == 1 && stray != 0) {
                meta.drop = Drop.OLD_INCARNATION;
            } else if (outside != 0) {
                meta.drop = Drop.WRONG_SLOT;
            }
        }
    }
}

#endif
