/* Admission: is this packet of this life of its job, from one of the job's sources, about that source's own workers?
 * Tables, actions and keys have the names that they have in ../../../include/atp/admission.p4: one controller writes both.
 */
#ifndef INA_TOFINO_ATP_ADMISSION_P4
#define INA_TOFINO_ATP_ADMISSION_P4

#include "headers.p4"

// A packet's version, if it is not ours.
const bit<8> OTHER         = 1;
const bit<8> OTHER_REFUSED = 2;  // nobody answers a refusal

control Admission(inout packet_t hdr, inout state_t meta, in ingress_intrinsic_metadata_from_parser_t from_parser) {
    bit<1>  known_job = 0;
    bit<1>  known_source = 0;
    bit<1>  aggregates = 0;
    bit<32> strangers = 0;   // workers that are not behind the source
    bit<32> lifetime_ = 0;
    bit<1>  is_up = 0;
    bit<16> own_life = 0;
    bit<16> stray = 0;       // how the packet's life is another
    bit<32> lies = 0;        // workers for which it may not speak
    bit<16> length = 0;
    bit<8>  version = 0;
    bit<1>  known_type = 0;
    bit<32> part = 0;        // 0: it has all workers below the switch

    action set_job(bit<32> full, bit<32> incarnation, bit<16> life, bit<16> group, bit<1> aggregate, bit<19> ecn_depth,
                   bit<32> lifetime) {
        known_job = 1;
        meta.full = full;
        hdr.bridge.incarnation = incarnation;
        own_life = life;
        hdr.bridge.group = group;
        aggregates = aggregate;
        hdr.bridge.ecn_depth[18:0] = ecn_depth;
        lifetime_[25:0] = lifetime[31:6];
    }
    // At a table, not at main: BFRuntime, too, tells controllers what is there.
    @ina_program(protocol=PROTOCOL, values=VALUES, slots=SLOTS, wire=WIRE)
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
    action other(bit<8> how) {  // of another version: all that is known of it is where that is, and what lies in front
        version = how;
        meta.drop = Drop.NONE;
    }
    action wrong(Drop reason) {
        meta.drop = reason;
    }
    table shape {
        key = {
            from_parser.parser_err: ternary;
            meta.bad_checksum: ternary;
            meta.bad_headers: ternary;
            hdr.check.isValid(): ternary;
            hdr.check.version: ternary;
            hdr.atp.msg_type: ternary;
            hdr.udp.length: ternary;
            hdr.ipv4.total_len: ternary;
        }
        actions = { up; down; other; wrong; }
#define EMPTY UDP_LENGTH, IPV4_LENGTH
#define FULL  UDP_LENGTH + VALUES_LENGTH, IPV4_LENGTH + VALUES_LENGTH
        const entries = {
            (0, true, _, _, _, _, _, _): wrong(Drop.CORRUPT);
            (0, _, true, _, _, _, _, _): wrong(Drop.CORRUPT);
            (0, _, _, _, WIRE_VERSION, Type.DATA,         EMPTY): up(Op.ADD, 0);
            (0, _, _, _, WIRE_VERSION, Type.DATA,         FULL):  up(Op.ADD, 1);
            (0, _, _, _, WIRE_VERSION, Type.FLOATS,       EMPTY): up(Op.NOTHING, 0);
            (0, _, _, _, WIRE_VERSION, Type.FLOATS,       FULL):  up(Op.NOTHING, 0);
            (0, _, _, _, WIRE_VERSION, Type.OFFER,        EMPTY): up(Op.NOTHING, 0);
            (0, _, _, _, WIRE_VERSION, Type.OFFER,        FULL):  up(Op.NOTHING, 0);
            (0, _, _, _, WIRE_VERSION, Type.MAXIMA,       EMPTY): up(Op.MAXIMUM, 0);
            (0, _, _, _, WIRE_VERSION, Type.MAXIMA,       FULL):  up(Op.MAXIMUM, 6);
            (0, _, _, _, WIRE_VERSION, Type.RESULT,       EMPTY): down();
            (0, _, _, _, WIRE_VERSION, Type.RESULT,       FULL):  down();
            (0, _, _, _, WIRE_VERSION, Type.FLOAT_RESULT, EMPTY): down();
            (0, _, _, _, WIRE_VERSION, Type.FLOAT_RESULT, FULL):  down();
            (0, _, _, _, WIRE_VERSION, Type.ANSWER,       EMPTY): down();
            (0, _, _, _, WIRE_VERSION, Type.ANSWER,       FULL):  down();
            (0, _, _, _, WIRE_VERSION, Type.PENDING, UDP_LENGTH + PENDING_LENGTH, IPV4_LENGTH + PENDING_LENGTH): down();
            (0, _, _, _, WIRE_VERSION, _, _, _): wrong(Drop.MALFORMED);
            (0, _, _, _, _, Type.REFUSED, _, _): other(OTHER_REFUSED);
            (0, _, _, _, _, _,            _, _): other(OTHER);
            // too short for its values; for those that v1model's parser does not look for, too
            (_, _, _, true, _, Type.DATA,   UDP_LENGTH + VALUES_LENGTH, _): wrong(Drop.MALFORMED);
            (_, _, _, true, _, Type.MAXIMA, UDP_LENGTH + VALUES_LENGTH, _): wrong(Drop.MALFORMED);
            (_, true, _, true, _, _, _, _): wrong(Drop.CORRUPT);
            (_, _, true, true, _, _, _, _): wrong(Drop.CORRUPT);
        }
        const default_action = wrong(Drop.MALFORMED);
        size = 24;
    }

    action bring(bit<8> flags) {
        meta.flags = flags;
    }
    table brings {
        key = { hdr.atp.collision: exact; hdr.atp.ecn: exact; }
        actions = { bring; }
        const entries = {
            (0, 1): bring(1);
            (1, 0): bring(2);
            (1, 1): bring(3);
        }
        const default_action = bring(0);
        size = 4;
    }

    action refuse(Drop reason) {
        meta.drop = reason;
    }
    action sum(bit<1> wants) {
        meta.sums = 1;
        meta.wants = wants;
    }
    action outdated() {
        meta.drop = Drop.VERSION;
        hdr.bridge.outdated = 1;
    }
    table admitted {
        key = {
            meta.drop: ternary;
            from_parser.parser_err: ternary;
            length: ternary;
            known_type: ternary;
            known_job: ternary;
            known_source: ternary;
            meta.downwards: ternary;
            version: ternary;
            is_up: ternary;
            stray: ternary;
            hdr.atp.bitmap: ternary;
            lies: ternary;
            aggregates: ternary;
            meta.join: ternary;
            hdr.atp.resend: ternary;
            part: ternary;
        }
        actions = { refuse; outdated; sum; NoAction; }
        const entries = {
            (Drop.MALFORMED, 0, IPV4_LENGTH - UDP_LENGTH, 1, _, _, _, _, _, _, _, _, _, _, _, _): refuse(Drop.WRONG_SIZE);
            (Drop.MALFORMED, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _): NoAction();
            (Drop.CORRUPT,   _, _, _, _, _, _, _, _, _, _, _, _, _, _, _): NoAction();
            (_, _, _, _, 0, _, _, _,             _, _, _, _, _, _, _, _): refuse(Drop.UNKNOWN_JOB);
            (_, _, _, _, _, 0, _, _,             _, _, _, _, _, _, _, _): refuse(Drop.WRONG_SOURCE);
            (_, _, _, _, _, _, 0, OTHER,         _, _, _, _, _, _, _, _): outdated();
            (_, _, _, _, _, _, _, OTHER,         _, _, _, _, _, _, _, _): refuse(Drop.VERSION);
            (_, _, _, _, _, _, _, OTHER_REFUSED, _, _, _, _, _, _, _, _): refuse(Drop.VERSION);
            (_, _, _, _, _, _, 0, _, 0, _, _, _, _, _, _, _): refuse(Drop.WRONG_SOURCE);
            (_, _, _, _, _, _, 1, _, 1, _, _, _, _, _, _, _): refuse(Drop.WRONG_SOURCE);
            (_, _, _, _, _, _, 1, _, _, 0, _, _, _, _, _, _): NoAction();
            (_, _, _, _, _, _, 0, _, _, 0, 0, _, _, _, _, _): refuse(Drop.WRONG_WORKERS);
            (_, _, _, _, _, _, 0, _, _, 0, _, 0, 0, _, _, _): NoAction();
            (_, _, _, _, _, _, 0, _, _, 0, _, 0, _, Op.NOTHING, _, _): NoAction();
            (_, _, _, _, _, _, 0, _, _, 0, _, 0, _, _, 0, 0): sum(0);
            (_, _, _, _, _, _, 0, _, _, 0, _, 0, _, _, 0, _): sum(1);
            (_, _, _, _, _, _, 0, _, _, 0, _, 0, _, _, _, _): sum(0);
            (_, _, _, _, _, _, 0, _, _, 0, _, _, _, _, _, _): refuse(Drop.WRONG_WORKERS);
        }
        const default_action = refuse(Drop.OLD_LIFE);
        size = 18;
    }

    action others() {
        meta.others = ~hdr.atp.bitmap & meta.full;
    }
    table absent {
        actions = { others; }
        const default_action = others();
        size = 1;
    }

    apply {
        if ((bit<4>)hdr.atp.msg_type != 0 && (bit<4>)hdr.atp.msg_type <= (bit<4>)LAST_TYPE && hdr.atp.msg_type != Type.REFUSED) {
            known_type = 1;
        }
        @in_hash { hdr.bridge.cell = 16w0 ++ ROW; }
        job.apply();
        worker.apply();
        shape.apply();
        brings.apply();
        meta.now = (bit<32>)(from_parser.global_tstamp >> 16);

        length = hdr.ipv4.total_len - hdr.udp.length;
        stray = hdr.atp.life ^ own_life;
        lies = hdr.atp.bitmap & strangers;
        part = hdr.atp.bitmap ^ meta.full;
        meta.horizon = meta.now - lifetime_;

        absent.apply();
        admitted.apply();
    }
}

#endif
