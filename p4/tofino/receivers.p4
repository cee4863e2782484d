/* In-network aggregation after SwitchML (Sapio et al., NSDI'21), with sums for some workers only, for the Tofino native
 * architecture: the twin of ../receivers.p4. All but what names workers is SwitchML's twin (switchml.p4).
 *
 *   ARRIVE   parse -> admitted? a member? -> which phase of the slot? of the same sets? -> exponents, flags, check words, has
 *            anybody brought values? who gets them?
 *   ADD      32 values are taken off the packet, or zeros for it, and added, for each 32 of them; what is absorbed ends here
 *   TELL     if some children get values and others none: multicast the end of the phase to these, and go on with a copy
 *   LOAD     of a packet that carries the sums, the last 32 first: they come before those that it has already
 *   FINISH   the phase has ended -> multicast the result; or, below the root of a tree, send it up
 *
 * Compile-time sizes: ../include/size.p4; -DPIPE=n: the pipe that aggregates. What is on the wire:
 * ../include/receivers/headers.p4.
 */
#include <core.p4>
#include <tna.p4>

#include "include/receivers/headers.p4"
#include "include/switchml/zeros.p4"
#include "include/receivers/members.p4"
#include "include/switchml/parsing.p4"
#include "include/switchml/admission.p4"
#include "include/switchml/phase.p4"
#include "include/switchml/aggregation.p4"
#include "include/lanes.p4"
#include "include/switchml/rounds.p4"
#include "include/switchml/next.p4"
#include "include/switchml/replies.p4"
#include "include/receivers/pruning.p4"
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
    Zeros() zeros;
    Brought() brought;
    NoValues() no_values;
    Wanted() wanted;
    Phase() phase;
    Largest() exponent0;
    Largest() exponent1;
    Flags() flags;
    Word() check0;
    Word() check1;
    Lanes() values;
    Rounds() rounds;
    Counts() counts;
    AfterArrival() after_arrival;
    AfterValues() after_values;
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
            if (hdr.bridge.pass == Pass.ADD || hdr.bridge.pass == Pass.LOAD) {
                values.apply(hdr.lanes, hdr.flags, hdr.bridge);
                counts.apply(hdr.bridge, from_parser, whole);
                if (hdr.bridge.pass == Pass.ADD) {
                    hdr.lanes.setInvalid();
                }
                after_values.apply(hdr, meta, from_parser, deparser_meta, traffic, whole);
            } else {
                if (hdr.bridge.pass == Pass.ARRIVE) {
                    admission.apply(hdr, meta, from_parser);
                }
                if (hdr.bridge.pass == Pass.ARRIVE && meta.drop == Drop.NONE && standard.ingress_port[8:7] != PIPE) {
                    to_the_state();
                } else {
                    if (hdr.bridge.pass == Pass.ARRIVE && hdr.switchml.msg_type == SWITCHML_TO
                        && hdr.switchml.size == SIZE_NONE) {
                        zeros.apply(hdr);
                    }
                    if (meta.drop == Drop.NONE && hdr.bridge.pass != Pass.TELL) {
                        phase.apply(hdr, meta);
                    }
                    if (hdr.bridge.pass == Pass.ARRIVE) {
                        if (meta.drop == Drop.NONE) {
                            rounds.apply(hdr.bridge);
                            exponent0.apply(hdr.exponents.e0, hdr.bridge);
                            exponent1.apply(hdr.exponents.e1, hdr.bridge);
                            flags.apply(hdr, meta);
                            if (hdr.receivers.isValid()) {
                                brought.apply(hdr.bridge);
                                wanted.apply(hdr, meta);
                            }
                            if (meta.has_values == 1 && hdr.check.isValid()) {
                                check0.apply(hdr.check.check0, hdr.bridge);
                                check1.apply(hdr.check.check1, hdr.bridge);
                            }
                        }
                        after_arrival.apply(hdr, meta, deparser_meta, traffic);
                    } else if (hdr.bridge.refused == 1) {
                        meta.drop = Drop.LOST;
                    } else {
                        if (hdr.bridge.complete == 1 && hdr.bridge.empty == 1) {
                            no_values.apply(hdr);
                        }
                        reply.apply(hdr, meta, traffic);
                        if (hdr.bridge.complete == 0) {
                            hdr.receivers.setInvalid();  // what tells of missing workers, or of a version, names none
                        }
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
    Receivers() receivers;
    Overflows() overflows;

    apply {
        if (hdr.switchml.isValid()) {
            if (hdr.bridge.replicated == 1) {
                replicas.apply(hdr, standard);
                if (hdr.receivers.isValid()) {
                    receivers.apply(hdr, standard, deparser_meta);
                }
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
        }
    }
}

Pipeline(IngressParser(), SwitchIngress(), IngressDeparser(), EgressParser(), SwitchEgress(), EgressDeparser()) pipe;

Switch(pipe) main;
