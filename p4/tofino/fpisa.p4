/* In-network aggregation of floats after FPISA-A (Yuan et al., NSDI'22), for the Tofino native architecture: the twin of ../fpisa.p4 with
 * -DFPISA_A=1. All but the floats is SwitchML's twin (switchml.p4): passes, phases, replies; with 16 values a pass.
 *
 *   ARRIVE     parse -> admitted? -> which phase of the slot? -> exponents, flags, check words
 *   (egress)   eight floats become exponents and mantissas
 *   COMPARE    by how much is the exponent of each below what its lane can take? What is too large takes the sum's place
 *   (egress)   the mantissas are shifted by that
 *   SUM        and added; both for each eight of them, and what is absorbed ends here
 *   EXPONENTS  of a packet that carries the sums, the last eight first
 *   MANTISSAS
 *   (egress)   of both, floats are made
 *   FINISH     the phase has ended -> multicast the result; or, below the root of a tree, send it up
 *
 * Compile-time sizes: ../include/size.p4; -DPIPE=n: the pipe that aggregates. What is on the wire: ../include/fpisa/headers.p4. What a sum
 * is: docs/design/fpisa.md.
 */
#include <core.p4>
#include <tna.p4>

#include "include/fpisa/headers.p4"
#include "include/fpisa/numbers.p4"
#include "include/fpisa/next.p4"
#include "include/switchml/parsing.p4"
#include "include/switchml/admission.p4"
#include "include/switchml/phase.p4"
#include "include/switchml/aggregation.p4"
#include "include/lanes.p4"
#include "include/switchml/rounds.p4"
#include "include/switchml/next.p4"
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
    Word() check0;
    Word() check1;
    Lanes() values;
    NumberLanes() numbers;
    Rounds() rounds;
    Counts() counts;
    AfterArrival() after_arrival;
    AfterArrivalOfFloats() after_arrival_of_floats;
    AfterValues() after_values;
    AfterFloats() after_floats;
    Reply() reply;
    Forwarding() forwarding;
    bit<8> whole;

    action to_the_state() {  // it is decided in the pipe that has it
        traffic.ucast_egress_port = RECIRCULATION;
        traffic.bypass_egress = SKIPS_EGRESS;
    }
    apply {
        whole = 0;
        meta.drop = Drop.NONE;
        if (!hdr.switchml.isValid() && (!hdr.udp.isValid() || hdr.udp.dst_port & SWITCHML_MASK != SWITCHML_PORT)) {
            forwarding.apply(hdr, meta, deparser_meta, traffic);
        } else {
            if (hdr.numbers.isValid() || hdr.bridge.pass == Pass.ADD || hdr.bridge.pass == Pass.LOAD
                || hdr.bridge.pass == Pass.COMPARE) {
                if (hdr.switchml.msg_type == SWITCHML_FLOATS) {
                    numbers.apply(hdr.numbers, hdr.bridge);
                } else {
                    values.apply(hdr.lanes, hdr.flags, hdr.bridge);
                }
                counts.apply(hdr.bridge, from_parser, whole);
                if (hdr.bridge.pass == Pass.ADD) {
                    hdr.lanes.setInvalid();
                }
                if (hdr.bridge.pass == Pass.SUM) {
                    hdr.numbers.setInvalid();
                }
                if (hdr.switchml.msg_type == SWITCHML_FLOATS) {
                    after_floats.apply(hdr, meta, from_parser, deparser_meta, traffic, whole);
                } else {
                    after_values.apply(hdr, meta, from_parser, deparser_meta, traffic, whole);
                }
            } else {
                if (hdr.bridge.pass == Pass.ARRIVE) {
                    admission.apply(hdr, meta, from_parser);
                }
                if (hdr.bridge.pass == Pass.ARRIVE && meta.drop == Drop.NONE && standard.ingress_port[8:7] != PIPE) {
                    to_the_state();
                } else {
                    if (meta.drop == Drop.NONE) {
                        phase.apply(hdr, meta);
                    }
                    if (hdr.bridge.pass == Pass.ARRIVE) {
                        if (meta.drop == Drop.NONE) {
                            rounds.apply(hdr.bridge);
                            exponent0.apply(hdr.exponents.e0, hdr.bridge);
                            exponent1.apply(hdr.exponents.e1, hdr.bridge);
                            flags.apply(hdr, meta);
                            if (meta.has_values == 1 && hdr.check.isValid() && hdr.switchml.msg_type != SWITCHML_FLOATS) {
                                check0.apply(hdr.check.check0, hdr.bridge);
                                check1.apply(hdr.check.check1, hdr.bridge);
                            }
                        }
                        if (hdr.switchml.msg_type == SWITCHML_FLOATS) {
                            after_arrival_of_floats.apply(hdr, meta, deparser_meta, traffic);
                        } else {
                            after_arrival.apply(hdr, meta, deparser_meta, traffic);
                        }
                    } else if (hdr.bridge.refused == 1) {
                        meta.drop = Drop.LOST;
                    } else {
                        reply.apply(hdr, meta, traffic);
                    }
                }
            }
            if (meta.drop != Drop.NONE) {
                if (hdr.bridge.outdated == 0) {
                    deparser_meta.drop_ctl = 1;
                }
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
    Numbers() numbers;

    apply {
        if (hdr.bridge.pass == Pass.LEAVE) {
            if (hdr.bridge.replicated == 1) {
                replicas.apply(hdr, standard);
            }
            overflows.apply(hdr.flags, hdr.switchml.overflow);
            hdr.bridge.setInvalid();
            hdr.flags.setInvalid();
        } else if (hdr.bridge.pass == Pass.FLOOD) {
            if (hdr.bridge.port == standard.egress_port) {
                deparser_meta.drop_ctl = 1;  // a broadcast: not back to where it came from
            }
            hdr.bridge.setInvalid();
            hdr.flags.setInvalid();
        } else {
            numbers.apply(hdr);
        }
    }
}

Pipeline(IngressParser(), SwitchIngress(), IngressDeparser(), EgressParser(), SwitchEgress(), EgressDeparser()) pipe;

Switch(pipe) main;
