/* Next: what follows a pass of floats. Those that are to be added are compared, then added, eight at a time; others are taken off. */
#ifndef INA_TOFINO_FPISA_NEXT_P4
#define INA_TOFINO_FPISA_NEXT_P4

#include "headers.p4"

control AfterArrivalOfFloats(inout packet_t hdr, in state_t meta, inout ingress_intrinsic_metadata_for_deparser_t deparser_meta,
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
        key = { meta.drop: ternary; meta.has_values: ternary; hdr.bridge.to: ternary; hdr.bridge.op: ternary; }
        actions = { go_round; absorb; }
        const entries = {
            (Drop.NONE,    1, _,         Op.STORE): go_round(Pass.COMPARE);
            (Drop.NONE,    1, _,         Op.ADD):   go_round(Pass.COMPARE);
            (Drop.NONE,    1, _,         _):        go_round(Pass.ADD);
            (Drop.NONE,    _, To.NOBODY, _):        absorb();
            (Drop.NONE,    _, _,         _):        go_round(Pass.FINISH);
            (Drop.VERSION, 1, To.SENDER, _):        go_round(Pass.ADD);
            (Drop.VERSION, _, To.SENDER, _):        go_round(Pass.FINISH);
        }
        const default_action = absorb();
        size = 7;
    }
    apply {
        what.apply();
    }
}

control AfterFloats(inout packet_t hdr, inout state_t meta, in ingress_intrinsic_metadata_from_parser_t from_parser,
                    inout ingress_intrinsic_metadata_for_deparser_t deparser_meta,
                    inout ingress_intrinsic_metadata_for_tm_t traffic, in bit<8> whole) {
    action go_round(Pass pass) {
        hdr.bridge.pass = pass;
        traffic.ucast_egress_port = RECIRCULATION;
        traffic.bypass_egress = SKIPS_EGRESS;
    }
    action more(Pass pass) {
        hdr.bridge.chunk = hdr.bridge.chunk + 1;
        hdr.bridge.cell = hdr.bridge.cell + ROWS;
        go_round(pass);
    }
    action load(cell_place_t further) {
        hdr.bridge.chunk = LAST_NUMBERS;
        hdr.bridge.cell = hdr.bridge.cell + further;
        go_round(Pass.EXPONENTS);
    }
    action load_more() {
        hdr.bridge.coded = 1;
        hdr.bridge.chunk = hdr.bridge.chunk - 1;
        hdr.bridge.cell = hdr.bridge.cell - ROWS;
        go_round(Pass.EXPONENTS);
    }
    action loaded() {
        hdr.bridge.coded = 1;
        go_round(Pass.FINISH);
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
        }
        actions = { go_round; more; load; load_more; loaded; absorb; refuse; spoilt; }
#define AT_LAST(pass, chunk) \
            (0, pass, chunk, _, To.NOBODY, _): absorb(); \
            (0, pass, chunk, 1, _,         1): load((cell_place_t)(LAST_NUMBERS - chunk) * ROWS); \
            (0, pass, chunk, 1, _,         0): refuse(); \
            (0, pass, chunk, _, _,         _): go_round(Pass.FINISH);
        const entries = {
            (0, Pass.COMPARE,   _, _, _, _): go_round(Pass.SUM);
            AT_LAST(Pass.SUM, LAST_NUMBERS)
            (0, Pass.SUM,       _, _, _, _): more(Pass.COMPARE);
            AT_LAST(Pass.ADD, LAST_CHUNK)
            (0, Pass.ADD,       _, _, _, _): more(Pass.ADD);
            (_, Pass.EXPONENTS, _, _, _, _): go_round(Pass.MANTISSAS);
            (_, Pass.MANTISSAS, 0, _, _, _): loaded();
            (_, Pass.MANTISSAS, _, _, _, _): load_more();
        }
        const default_action = spoilt();  // shorter than its IPv4 header says
        size = 14;
    }
    apply {
        what.apply();
    }
}

#endif
