/* Next: what follows a pass: another one, or the end. */
#ifndef INA_TOFINO_NEXT_P4
#define INA_TOFINO_NEXT_P4

#include "headers.p4"

#ifndef SKIPS_EGRESS  // of a program in which egress does a part of what is done between passes: 0
#define SKIPS_EGRESS 1
#endif

control AfterArrival(inout packet_t hdr, in state_t meta, inout ingress_intrinsic_metadata_for_deparser_t deparser_meta,
                     inout ingress_intrinsic_metadata_for_tm_t traffic) {
    action go_round(Pass pass) {
        hdr.bridge.pass = pass;
        traffic.ucast_egress_port = RECIRCULATION;
        traffic.bypass_egress = SKIPS_EGRESS;
    }
    action absorb() {
        deparser_meta.drop_ctl = 1;
    }
    table what {
        key = { meta.drop: ternary; meta.has_values: ternary; hdr.bridge.to: ternary; }
        actions = { go_round; absorb; }
        const entries = {
            (Drop.NONE,    1, _):         go_round(Pass.ADD);
            (Drop.NONE,    _, To.NOBODY): absorb();
            (Drop.NONE,    _, _):         go_round(Pass.FINISH);
            (Drop.VERSION, 1, To.SENDER): go_round(Pass.ADD);  // to be told, without its values
            (Drop.VERSION, _, To.SENDER): go_round(Pass.FINISH);
        }
        const default_action = absorb();
        size = 5;
    }
    apply {
        what.apply();
    }
}

/* `whole`: all that the sum should have is in it. */
control AfterValues(inout packet_t hdr, inout state_t meta, in ingress_intrinsic_metadata_from_parser_t from_parser,
                    inout ingress_intrinsic_metadata_for_deparser_t deparser_meta,
                    inout ingress_intrinsic_metadata_for_tm_t traffic, in bit<8> whole) {
    action go_round(Pass pass) {
        hdr.bridge.pass = pass;
        traffic.ucast_egress_port = RECIRCULATION;
        traffic.bypass_egress = SKIPS_EGRESS;
    }
    action add_more() {
        hdr.bridge.chunk = hdr.bridge.chunk + 1;
        hdr.bridge.cell = hdr.bridge.cell + ROWS;
        go_round(Pass.ADD);
    }
    action load() {
        hdr.bridge.op = Op.LOAD;
        go_round(Pass.LOAD);
    }
    action load_more() {
        hdr.bridge.chunk = hdr.bridge.chunk - 1;
        hdr.bridge.cell = hdr.bridge.cell - ROWS;
        go_round(Pass.LOAD);
    }
    action absorb() {
        deparser_meta.drop_ctl = 1;
    }
    action refuse() {
        hdr.bridge.refused = 1;
        hdr.bridge.complete = 0;
        go_round(Pass.FINISH);
    }
    action spoilt() {
        meta.drop = Drop.MALFORMED;
        deparser_meta.drop_ctl = 1;
    }
    table what {
        key = {
            from_parser.parser_err: ternary;
            hdr.bridge.pass: ternary;
            hdr.bridge.chunk: ternary;
            hdr.bridge.complete: ternary;
            hdr.bridge.to: ternary;
            whole: ternary;
            hdr.bridge.empty: ternary;
            hdr.bridge.apart: ternary;
        }
        actions = { go_round; add_more; load; load_more; absorb; refuse; spoilt; }
        const entries = {
            (0, Pass.ADD,  LAST_CHUNK, _, To.NOBODY, _, _, _):          absorb();
            (0, Pass.ADD,  LAST_CHUNK, 1, _,         1, 0, Apart.SOME): go_round(Pass.TELL);
            (0, Pass.ADD,  LAST_CHUNK, 1, _,         1, 0, _):          load();
            (0, Pass.ADD,  LAST_CHUNK, 1, _,         0, _, _):          refuse();
            (0, Pass.ADD,  LAST_CHUNK, _, _,         _, _, _):          go_round(Pass.FINISH);
            (0, Pass.ADD,  _,          _, _,         _, _, _):          add_more();
            (_, Pass.ADD,  _,          _, _,         _, _, _):          spoilt();  // shorter than its IPv4 header says
            (_, Pass.LOAD, 0,          _, _,         _, _, _):          go_round(Pass.FINISH);
        }
        const default_action = load_more();
        size = 8;
    }
    apply {
        what.apply();
    }
}

#endif
