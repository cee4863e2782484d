/* In-network aggregation after SwitchML (Sapio et al., NSDI'21), for the Tofino native architecture: the twin of ../switchml.p4.
 * Frames, rules and control plane are the same; docs/design/tna-programs.md says why the inside looks otherwise.
 *
 *   ARRIVE   parse -> admitted? -> which phase of the slot? -> exponents, flags
 *   ADD      32 values are taken off the packet and added, for each 32 of them; what is absorbed ends here
 *   LOAD     of a packet that carries the sums, the last 32 first: they come before those that it has already
 *   FINISH   the phase has ended -> multicast the result; or, below the root of a tree, send it up
 *
 * Compile-time sizes: ../include/size.p4; -DPIPE=n: the pipe that aggregates. What is on the wire: ../include/switchml/headers.p4.
 */
#include <core.p4>
#include <tna.p4>

#include "include/switchml/headers.p4"
#include "include/switchml/parsing.p4"
#include "include/switchml/admission.p4"
#include "include/switchml/phase.p4"
#include "include/switchml/aggregation.p4"
#include "include/lanes.p4"
#include "include/switchml/rounds.p4"
#include "include/switchml/replies.p4"
#include "include/forwarding.p4"

// A stateful ALU wants its operands whole.
@pa_container_size("ingress", "meta.kind", 32)
@pa_container_size("ingress", "meta.incarnation", 32)
control SwitchIngress(inout packet_t hdr, inout state_t meta, in ingress_intrinsic_metadata_t standard,
                      in ingress_intrinsic_metadata_from_parser_t from_parser,
                      inout ingress_intrinsic_metadata_for_deparser_t deparser_meta,
                      inout ingress_intrinsic_metadata_for_tm_t traffic) {
    Counter<bit<32>, bit<8>>(DROPS, CounterType_t.PACKETS) drops;
    Admission() admission;
    Phase() phase;
    Largest() exponent0;
    Largest() exponent1;
    Flags() flags;
    Lanes() values;
    Rounds() rounds;
    Counts() counts;
    Reply() reply;
    Forwarding() forwarding;
    bit<8> whole;

    action go_round(Pass pass) {
        hdr.bridge.pass = pass;
        traffic.ucast_egress_port = RECIRCULATION;
        traffic.bypass_egress = 1;
    }
    action add_more() {
        hdr.bridge.chunk = hdr.bridge.chunk + 1;
        hdr.bridge.cell = hdr.bridge.cell + (place_t)ROWS;
        go_round(Pass.ADD);
    }
    action load() {
        hdr.bridge.op = Op.LOAD;
        go_round(Pass.LOAD);
    }
    action load_more() {
        hdr.bridge.chunk = hdr.bridge.chunk - 1;
        hdr.bridge.cell = hdr.bridge.cell - (place_t)ROWS;
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
    }
    table after_values {
        key = {
            from_parser.parser_err: ternary;
            hdr.bridge.pass: ternary;
            hdr.bridge.chunk: ternary;
            hdr.bridge.complete: ternary;
            hdr.bridge.to: ternary;
            whole: ternary;
        }
        actions = { go_round; add_more; load; load_more; absorb; refuse; spoilt; }
        const entries = {
            (0, Pass.ADD,  LAST_CHUNK, _, To.NOBODY, _): absorb();
            (0, Pass.ADD,  LAST_CHUNK, 1, _,         1): load();
            (0, Pass.ADD,  LAST_CHUNK, 1, _,         _): refuse();
            (0, Pass.ADD,  LAST_CHUNK, _, _,         _): go_round(Pass.FINISH);
            (0, Pass.ADD,  _,          _, _,         _): add_more();
            (_, Pass.ADD,  _,          _, _,         _): spoilt();  // shorter than its IPv4 header says
            (_, Pass.LOAD, 0,          _, _,         _): go_round(Pass.FINISH);
        }
        const default_action = load_more();
        size = 8;
    }
    table after_arrival {
        key = { meta.drop: ternary; hdr.lanes.isValid(): ternary; hdr.bridge.to: ternary; }
        actions = { go_round; absorb; }
        const entries = {
            (Drop.NONE, true, _):         go_round(Pass.ADD);
            (Drop.NONE, _,    To.NOBODY): absorb();
            (Drop.NONE, _,    _):         go_round(Pass.FINISH);
        }
        const default_action = absorb();
        size = 4;
    }

    apply {
        whole = 0;
        meta.drop = Drop.NONE;
        if (!hdr.switchml.isValid() && (!hdr.udp.isValid() || hdr.udp.dst_port & SWITCHML_MASK != SWITCHML_PORT)) {
            forwarding.apply(hdr, meta, deparser_meta, traffic);
        } else {
            if (hdr.bridge.pass == Pass.ADD || hdr.bridge.pass == Pass.LOAD) {
                values.apply(hdr.lanes, hdr.flags, hdr.bridge);
                counts.apply(hdr.bridge, from_parser, whole);
                if (hdr.bridge.pass == Pass.ADD) {
                    hdr.lanes.setInvalid();
                }
                after_values.apply();
            } else {
                if (hdr.bridge.pass == Pass.ARRIVE) {
                    admission.apply(hdr, meta, from_parser);
                }
                if (hdr.bridge.pass == Pass.ARRIVE && meta.drop == Drop.NONE && standard.ingress_port[8:7] != PIPE) {
                    go_round(Pass.ARRIVE);  // it is decided in the pipe that has the state
                } else {
                    if (meta.drop == Drop.NONE) {
                        phase.apply(hdr, meta);
                    }
                    if (hdr.bridge.pass == Pass.ARRIVE) {
                        if (meta.drop == Drop.NONE) {
                            rounds.apply(hdr.bridge);
                            exponent0.apply(hdr.exponents.e0, hdr.bridge);
                            exponent1.apply(hdr.exponents.e1, hdr.bridge);
                            flags.apply(hdr);
                        }
                        after_arrival.apply();
                    } else if (hdr.bridge.refused == 1) {
                        meta.drop = Drop.LOST;
                    } else {
                        reply.apply(hdr, meta, traffic);
                    }
                }
            }
            if (meta.drop != Drop.NONE) {
                deparser_meta.drop_ctl = 1;
                drops.count((bit<8>)meta.drop);
            }
        }
    }
}

control SwitchEgress(inout packet_t hdr, inout egress_state_t meta, in egress_intrinsic_metadata_t standard,
                     in egress_intrinsic_metadata_from_parser_t from_parser,
                     inout egress_intrinsic_metadata_for_deparser_t deparser_meta,
                     inout egress_intrinsic_metadata_for_output_port_t port_meta) {
    Replicas() replicas;
    Overflows() overflows;

    apply {
        if (hdr.bridge.pass == Pass.LEAVE) {
            if (hdr.bridge.replicated == 1) {
                replicas.apply(hdr, standard);
            }
            overflows.apply(hdr.flags, hdr.switchml.overflow);
        } else if (hdr.bridge.port == standard.egress_port) {
            deparser_meta.drop_ctl = 1;  // a broadcast: not back to where it came from
        }
    }
}

Pipeline(IngressParser(), SwitchIngress(), IngressDeparser(), EgressParser(), SwitchEgress(), EgressDeparser()) pipe;

Switch(pipe) main;
