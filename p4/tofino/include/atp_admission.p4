/* Admission: is this packet of this life of its job, from one of the job's sources, about that source's own workers?
 * Tables, actions and keys have the names that they have in ../../include/atp_admission.p4: one controller writes both.
 */
#ifndef INA_TOFINO_ATP_ADMISSION_P4
#define INA_TOFINO_ATP_ADMISSION_P4

#include "atp_headers.p4"

control Admission(inout packet_t hdr, inout state_t meta, in ingress_intrinsic_metadata_from_parser_t from_parser) {
    bit<1>  known_job = 0;
    bit<1>  known_source = 0;
    bit<1>  aggregates = 0;
    bit<32> strangers = 0;   // workers that are not behind the source
    bit<32> lifetime_ = 0;
    bit<1>  is_up = 0;
    bit<16> stray = 0;       // how the packet's incarnation is another
    bit<32> lies = 0;        // workers for which it may not speak
    bit<32> part = 0;        // 0: it has all workers below the switch

    action set_job(bit<32> full, bit<32> incarnation, bit<16> group, bit<1> aggregate, bit<19> ecn_depth, bit<32> lifetime) {
        known_job = 1;
        meta.full = full;
        meta.incarnation = incarnation;
        hdr.bridge.group = group;
        aggregates = aggregate;
        hdr.bridge.ecn_depth = ecn_depth * (VALUES / 16);  // cells of 80 bytes, of which a packet has about so many
        lifetime_ = (bit<32>)lifetime[31:6];
    }
    table job {
        key = { hdr.atp.job: exact; }
        actions = { set_job; NoAction; }
        default_action = NoAction();
        size = 256;
    }

    action set_worker(bit<32> worker) {  // a worker, or a switch below: the bits of all workers there
        known_source = 1;
        strangers = ~worker;
    }
    action set_parent() {  // the switch above, or the parameter server
        known_source = 1;
        meta.downwards = 1;
        hdr.bridge.downwards = 1;
    }
    table worker {
        key = {
            hdr.atp.job: exact;
            hdr.ipv4.src_addr: exact;
            hdr.udp.src_port: exact;
            hdr.bridge.port: exact @name("standard.ingress_port");
        }
        actions = { set_worker; set_parent; NoAction; }
        default_action = NoAction();
        size = 4096;
    }

    action up(Op join, bit<8> kind) {
        is_up = 1;
        meta.join = join;
        meta.kind = kind;
        meta.drop = Drop.NONE;
    }
    action down() {
        meta.drop = Drop.NONE;
    }
    action wrong(Drop reason) {
        meta.drop = reason;
    }
    table shape {
        key = {
            from_parser.parser_err: ternary;
            meta.bad_checksum: ternary;
            hdr.atp.msg_type: ternary;
            hdr.udp.length: ternary;
            hdr.ipv4.total_len: ternary;
        }
        actions = { up; down; wrong; }
#define EMPTY UDP_LENGTH, IPV4_LENGTH
#define FULL  UDP_LENGTH + VALUES_LENGTH, IPV4_LENGTH + VALUES_LENGTH
        const entries = {
            (0, false, Type.DATA,         EMPTY): up(Op.ADD, 0);
            (0, false, Type.DATA,         FULL):  up(Op.ADD, 1);
            (0, false, Type.FLOATS,       EMPTY): up(Op.NOTHING, 0);
            (0, false, Type.FLOATS,       FULL):  up(Op.NOTHING, 0);
            (0, false, Type.MAXIMA,       EMPTY): up(Op.MAXIMUM, 0);
            (0, false, Type.MAXIMA,       FULL):  up(Op.MAXIMUM, 6);
            (0, false, Type.RESULT,       EMPTY): down();
            (0, false, Type.RESULT,       FULL):  down();
            (0, false, Type.FLOAT_RESULT, EMPTY): down();
            (0, false, Type.FLOAT_RESULT, FULL):  down();
            (0, false, Type.PENDING, UDP_LENGTH + PENDING_LENGTH, IPV4_LENGTH + PENDING_LENGTH): down();
        }
        const default_action = wrong(Drop.MALFORMED);
        size = 12;
    }

    apply {
        job.apply();
        worker.apply();
        shape.apply();
        meta.now = (bit<32>)(from_parser.global_tstamp >> 16);

        bit<16> length = hdr.udp.length + (IPV4_LENGTH - UDP_LENGTH);
        stray = hdr.atp.incarnation ^ meta.incarnation[15:0];
        lies = hdr.atp.bitmap & strangers;
        part = hdr.atp.bitmap ^ meta.full;
        meta.horizon = meta.now - lifetime_;
        length = length ^ hdr.ipv4.total_len;

        hdr.bridge.cell = hdr.bridge.row;
        meta.others = part & meta.full;
        if (meta.drop == Drop.MALFORMED && from_parser.parser_err == PARSER_ERROR_OK && !meta.bad_checksum && length == 0
                && (bit<4>)hdr.atp.msg_type != 0 && (bit<4>)hdr.atp.msg_type <= LAST_TYPE) {
            meta.drop = Drop.WRONG_SIZE;
        } else if (meta.drop == Drop.NONE) {
            if (known_job == 0) {
                meta.drop = Drop.UNKNOWN_JOB;
            } else if (known_source == 0 || meta.downwards == is_up) {
                meta.drop = Drop.WRONG_SOURCE;
            } else if (stray != 0) {
                meta.drop = Drop.OLD_INCARNATION;
            } else if (meta.downwards == 0 && (hdr.atp.bitmap == 0 || lies != 0)) {
                meta.drop = Drop.WRONG_WORKERS;
            } else if (is_up == 1 && aggregates == 1 && meta.join != Op.NOTHING) {
                meta.sums = 1;
                if (hdr.atp.resend == 0 && part != 0) {
                    meta.wants = 1;
                }
            }
        }
    }
}

#endif
