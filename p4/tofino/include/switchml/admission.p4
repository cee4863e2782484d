/* Admission: is this packet of a registered child or of the parent, of this life of its job, for a slot that the job owns?
 * Tables, actions and keys that the controller writes have the names that they have in ../../../include/switchml/admission.p4.
 */
#ifndef INA_TOFINO_ADMISSION_P4
#define INA_TOFINO_ADMISSION_P4

#include "headers.p4"

#ifndef PROTOCOL
#define PROTOCOL "switchml"
#endif
#ifndef MORE_SHAPES  // of a program that includes this file (../thc/headers.p4)
#define MORE_SHAPES
#endif

// A packet's version.
const bit<8> OURS          = 0;
const bit<8> UNCHECKED     = 1;  // without a check header: of a published client, or of version 1
const bit<8> OTHER         = 2;
const bit<8> OTHER_REFUSED = 3;  // nobody answers a refusal

control Admission(inout packet_t hdr, inout state_t meta, in ingress_intrinsic_metadata_from_parser_t from_parser) {
    bit<1>  known_job = 0;
    bit<1>  known_worker = 0;
    place_t first_row = 0;
    place_t first_slot = 0;
    place_t row = 0;        // among the job's
    place_t slot = 0;
    bit<14> owned = 0;      // bits of a slot's number that the job uses
    bit<14> outside = 0;
    bit<8>  own_life = 0;
    bit<8>  stray = 0;      // how the packet's life is another
    bit<8>  version = 0;
#ifdef RECEIVERS
    Members() members;
#endif

    action set_job(bit<32> full, bit<8> last, bit<16> base, bit<14> mask, bit<32> incarnation, bit<8> life, bit<16> group,
                   bit<1> strict, bit<1> parent) {
        known_job = 1;
        meta.full = full;
        meta.last = last;
        first_row[15:1] = base[14:0];
        first_slot = base;
        owned = mask;
        meta.incarnation = incarnation;
        own_life = life;
        hdr.bridge.group = group;
        meta.strict = strict;
        meta.parent = parent;
    }
    // At a table, not at main: BFRuntime, too, tells controllers what is there.
    @ina_program(protocol=PROTOCOL, values=VALUES, slots=SLOTS, wire=WIRE)
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

    action right(Op join, bit<32> kind, bit<8> how) {
        meta.join = join;
        meta.kind = kind;
        version = how;
        meta.drop = Drop.NONE;
    }
    action other(bit<8> how) {  // all that is known of it is where the version is, and what lies in front
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
            meta.other: ternary;
            hdr.check.isValid(): ternary;
            hdr.switchml.msg_type: ternary;
            hdr.switchml.size: ternary;
            hdr.ipv4.total_len: ternary;
            hdr.udp.length: ternary;
        }
        actions = { right; other; wrong; }
#define LENGTHS(payload) IPV4_LENGTH + payload, UDP_LENGTH + payload
#define VALUES_LENGTH VALUES_BYTES
#define DATA_OR_MAXIMUM SWITCHML_DATA &&& 0xd
        const entries = {
            (0, true, _, _, _, _, _, _, _): wrong(Drop.CORRUPT);
            (0, _, true, _, _, _, _, _, _): wrong(Drop.CORRUPT);
            // too short for its bitmap, which v1model's parser does not look for
            (_, true, _, _, true, SWITCHML_PENDING, SIZE_NONE, _, _): wrong(Drop.CORRUPT);
            (_, _, true, _, true, SWITCHML_PENDING, SIZE_NONE, _, _): wrong(Drop.CORRUPT);
            (0, _, _, 1, _, SWITCHML_REFUSED, _, _, _): other(OTHER_REFUSED);
            (0, _, _, 1, _, _,                _, _, _): other(OTHER);
            (0, _, _, _, true, SWITCHML_DATA,    SIZE_CODE, LENGTHS(CHECK_LENGTH + VALUES_LENGTH)):
                right(Op.ADD, KIND(SWITCHML_DATA, SIZE_CODE), OURS);
            MORE_SHAPES
            (0, _, _, _, true, SWITCHML_MAXIMUM, SIZE_CODE, LENGTHS(CHECK_LENGTH + VALUES_LENGTH)):
                right(Op.MAXIMUM, KIND(SWITCHML_MAXIMUM, SIZE_CODE), OURS);
            (0, _, _, _, true, SWITCHML_DATA,    SIZE_NONE, LENGTHS(CHECK_LENGTH)):
                right(Op.ADD, KIND(SWITCHML_DATA, SIZE_NONE), OURS);
            (0, _, _, _, true, SWITCHML_MAXIMUM, SIZE_NONE, LENGTHS(CHECK_LENGTH)):
                right(Op.MAXIMUM, KIND(SWITCHML_MAXIMUM, SIZE_NONE), OURS);
            (0, _, _, _, true, SWITCHML_PENDING, SIZE_NONE, LENGTHS(CHECK_LENGTH + PENDING_LENGTH)):
                right(Op.NOTHING, 0, OURS);
            (0, _, _, _, false, SWITCHML_DATA,    SIZE_CODE, LENGTHS(VALUES_LENGTH)):
                right(Op.ADD, KIND(SWITCHML_DATA, SIZE_CODE), UNCHECKED);
            (0, _, _, _, false, SWITCHML_MAXIMUM, SIZE_CODE, LENGTHS(VALUES_LENGTH)):
                right(Op.MAXIMUM, KIND(SWITCHML_MAXIMUM, SIZE_CODE), UNCHECKED);
            (0, _, _, _, false, SWITCHML_DATA,    SIZE_NONE, LENGTHS(0)):
                right(Op.ADD, KIND(SWITCHML_DATA, SIZE_NONE), UNCHECKED);
            (0, _, _, _, false, SWITCHML_MAXIMUM, SIZE_NONE, LENGTHS(0)):
                right(Op.MAXIMUM, KIND(SWITCHML_MAXIMUM, SIZE_NONE), UNCHECKED);
            (0, _, _, _, _, DATA_OR_MAXIMUM, SIZE_CODE, _, _): wrong(Drop.MALFORMED);
            (0, _, _, _, _, DATA_OR_MAXIMUM, SIZE_NONE, _, _): wrong(Drop.MALFORMED);
            (0, _, _, _, _, DATA_OR_MAXIMUM, _,         _, _): wrong(Drop.WRONG_SIZE);
        }
        const default_action = wrong(Drop.MALFORMED);
        size = 26;
    }

    action where() {
        @in_hash { row = 1w0 ++ hdr.switchml.slot ++ hdr.switchml.set; }
        @in_hash { slot = 2w0 ++ hdr.switchml.slot; }
    }
    table at {
        actions = { where; }
        const default_action = where();
        size = 1;
    }

    action refuse(Drop reason) {
        meta.drop = reason;
    }
    action outdated() {
        meta.drop = Drop.VERSION;
        hdr.bridge.outdated = 1;
        hdr.bridge.to = To.SENDER;
    }
    table admitted {
        key = {
            meta.drop: ternary;
            known_job: ternary;
            known_worker: ternary;
            hdr.pending.isValid(): ternary;
            meta.above: ternary;
            version: ternary;
            meta.strict: ternary;
            stray: ternary;
            outside: ternary;
            OWN_WORKERS: ternary @name("own_workers");
        }
        actions = { refuse; outdated; NoAction; }
        const entries = {
            (Drop.NONE, 0, _, _,    _, _,             _, _, _, _): refuse(Drop.UNKNOWN_JOB);
            (Drop.NONE, _, 0, _,    _, _,             _, _, _, _): refuse(Drop.WRONG_SOURCE);
            (Drop.NONE, _, _, true, 0, _,             _, _, _, _): refuse(Drop.WRONG_SOURCE);
            (Drop.NONE, _, _, _,    0, OTHER,         _, _, _, _): outdated();
            (Drop.NONE, _, _, _,    _, OTHER,         _, _, _, _): refuse(Drop.VERSION);
            (Drop.NONE, _, _, _,    _, OTHER_REFUSED, _, _, _, _): refuse(Drop.VERSION);
            (Drop.NONE, _, _, _,    0, UNCHECKED,     1, _, _, _): outdated();
            (Drop.NONE, _, _, _,    _, UNCHECKED,     1, _, _, _): refuse(Drop.VERSION);
            (Drop.NONE, _, _, _,    0, _,             _, 0, 0, 0): refuse(Drop.WRONG_SIZE);  // no member of the phase
            (Drop.NONE, _, _, _,    _, _,             _, 0, 0, _): NoAction();
            (Drop.NONE, _, _, _,    _, _,             0, _, 0, _): NoAction();
            (Drop.NONE, _, _, _,    _, _,             1, 0, _, _): refuse(Drop.WRONG_SLOT);
            (Drop.NONE, _, _, _,    _, _,             1, _, _, _): refuse(Drop.OLD_LIFE);
            (Drop.NONE, _, _, _,    _, _,             _, _, _, _): refuse(Drop.WRONG_SLOT);
        }
        const default_action = NoAction();
        size = 14;
    }

    apply {
        job.apply();
        worker.apply();
        shape.apply();
        at.apply();
#ifdef RECEIVERS  // of a program whose phases are of some workers (../receivers/members.p4)
        members.apply(hdr, meta);
#endif

        stray = (bit<8>)hdr.exponents.e1 ^ own_life;
        outside = hdr.switchml.slot & ~owned;
        hdr.bridge.row = first_row + row;
        hdr.bridge.cell = (cell_place_t)hdr.bridge.row;
        meta.slot = first_slot + slot;

        admitted.apply();
    }
}

#endif
