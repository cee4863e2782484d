/* In-network aggregation after SwitchML (Sapio et al., NSDI'21), for the Tofino native architecture: the twin of ../switchml.p4.
 * Frames, rules and control plane are the same; docs/tna-programs.md says why the inside looks otherwise.
 *
 *   first pass    parse -> admitted? -> which phase of the slot? -> exponents, flags -> dropped, answered, or once more round
 *   adding        32 values are taken off the packet and added, for each 32 of them; what is absorbed ends here
 *   loading       of a packet that carries the sums, the last 32 first: they come before those that it has already
 *   then          multicast the result; or, below the root of a tree, send it up
 *
 * Compile-time sizes: ../include/size.p4; -DPIPE=n: the pipe that aggregates. What is on the wire: ../include/headers.p4.
 */
#include <core.p4>
#include <tna.p4>

#include "include/headers.p4"
#include "include/parsing.p4"
#include "include/admission.p4"
#include "include/phase.p4"
#include "include/aggregation.p4"
#include "include/lanes.p4"
#include "include/replies.p4"
#include "include/forwarding.p4"

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
    Reply() reply;
    Forwarding() forwarding;

    action unpack() {
        meta.op = hdr.bridge.op;
        meta.to = hdr.bridge.to;
        meta.chunk = hdr.bridge.chunk;
        meta.complete = hdr.bridge.complete;
        meta.first = hdr.bridge.first;
        meta.group = hdr.bridge.group;
        meta.cell = hdr.bridge.cell;
        meta.row = hdr.bridge.row;
        meta.missing = hdr.bridge.missing;
        meta.overflow0 = hdr.bridge.overflow0;
        meta.overflow1 = hdr.bridge.overflow1;
        meta.overflow2 = hdr.bridge.overflow2;
        meta.overflow3 = hdr.bridge.overflow3;
    }
    action pack() {
        hdr.bridge.setValid();
        hdr.bridge.pass = meta.pass;
        hdr.bridge.op = meta.op;
        hdr.bridge.to = meta.to;
        hdr.bridge.chunk = meta.chunk;
        hdr.bridge.complete = meta.complete;
        hdr.bridge.first = meta.first;
        hdr.bridge.unused = 0;
        hdr.bridge.port = meta.port;
        hdr.bridge.group = meta.group;
        hdr.bridge.cell = meta.cell;
        hdr.bridge.row = meta.row;
        hdr.bridge.missing = meta.missing;
        hdr.bridge.overflow0 = meta.overflow0;
        hdr.bridge.overflow1 = meta.overflow1;
        hdr.bridge.overflow2 = meta.overflow2;
        hdr.bridge.overflow3 = meta.overflow3;
    }
    action start() {
        meta.op = Op.NOTHING;
        meta.to = To.NOBODY;
        meta.chunk = 0;
        meta.complete = 0;
        meta.first = 0;
        meta.missing = 0;
        meta.overflow0 = 0;
        meta.overflow1 = 0;
        meta.overflow2 = 0;
        meta.overflow3 = 0;
    }
    action go_round(Pass pass) {
        meta.pass = pass;
        traffic.ucast_egress_port = RECIRCULATION;
        traffic.bypass_egress = 1;
    }

    apply {
        bool leaves = false;  // after this pass
        meta.drop = Drop.NONE;
        if (meta.pass == Pass.ARRIVE) {
            start();
        } else {
            unpack();
        }
        if (hdr.switchml.isValid() || (hdr.udp.isValid() && hdr.udp.dst_port & SWITCHML_MASK == SWITCHML_PORT)) {
            if (meta.pass == Pass.ARRIVE) {
                admission.apply(hdr, meta, from_parser);
            }
            if (meta.pass == Pass.ARRIVE && meta.drop == Drop.NONE && standard.ingress_port[8:7] != PIPE) {
                go_round(Pass.ARRIVE);  // it is decided in the pipe that has the state
            } else {
                bool last = meta.pass == Pass.LOAD && meta.chunk == 0;
                if (meta.drop == Drop.NONE && (meta.pass == Pass.ARRIVE || meta.pass == Pass.FINISH
                                               || (last && meta.to != To.PARENT))) {
                    phase.apply(hdr, meta);
                }
                if (meta.pass == Pass.ARRIVE && meta.drop == Drop.NONE) {
                    exponent0.apply(hdr.exponents.e0, meta);
                    exponent1.apply(hdr.exponents.e1, meta);
                    flags.apply(hdr, meta);
                    meta.cell = meta.row;
                }
                if (meta.pass == Pass.LOAD) {
                    meta.op = Op.LOAD;
                    hdr.lanes.setValid();
                }
                if (meta.pass == Pass.ADD || meta.pass == Pass.LOAD) {
                    values.apply(hdr.lanes, meta);
                }

                if (meta.drop != Drop.NONE) {
                    deparser_meta.drop_ctl = 1;
                } else if (meta.pass == Pass.ARRIVE) {
                    if (hdr.lanes.isValid()) {
                        go_round(Pass.ADD);
                    } else if (meta.complete == 1 && meta.to != To.PARENT) {
                        go_round(Pass.FINISH);
                    } else {
                        leaves = true;
                    }
                } else if (meta.pass == Pass.ADD) {
                    hdr.lanes.setInvalid();
                    if (meta.chunk != LAST_CHUNK) {
                        meta.chunk = meta.chunk + 1;
                        meta.cell = meta.cell + ROWS;
                        go_round(Pass.ADD);
                    } else if (meta.complete == 1) {
                        go_round(Pass.LOAD);
                    } else {
                        leaves = true;
                    }
                } else if (meta.pass == Pass.LOAD && !last) {
                    meta.chunk = meta.chunk - 1;
                    meta.cell = meta.cell - ROWS;
                    go_round(Pass.LOAD);
                } else {
                    leaves = true;
                }
            }
            pack();
            if (leaves && meta.to == To.NOBODY) {
                deparser_meta.drop_ctl = 1;  // absorbed
            } else if (leaves) {
                reply.apply(hdr, meta, traffic);
            }
            if (meta.drop != Drop.NONE) {
                deparser_meta.drop_ctl = 1;
                drops.count((bit<8>)meta.drop);
            }
        } else {
            forwarding.apply(hdr, meta, deparser_meta, traffic);
        }
    }
}

control SwitchEgress(inout packet_t hdr, inout egress_state_t meta, in egress_intrinsic_metadata_t standard,
                     in egress_intrinsic_metadata_from_parser_t from_parser,
                     inout egress_intrinsic_metadata_for_deparser_t deparser_meta,
                     inout egress_intrinsic_metadata_for_output_port_t port_meta) {
    Replicas() replicas;

    apply {
        if (hdr.bridge.pass == Pass.LEAVE) {
            if (hdr.bridge.replicated == 1) {
                replicas.apply(hdr, standard);
            }
            if (hdr.bridge.overflow0 | hdr.bridge.overflow1 | hdr.bridge.overflow2 | hdr.bridge.overflow3 != 0) {
                hdr.switchml.overflow = 1;  // in a sum that it carries
            }
        } else if (hdr.bridge.port == standard.egress_port) {
            deparser_meta.drop_ctl = 1;  // a broadcast: not back to where it came from
        }
    }
}

Pipeline(IngressParser(), SwitchIngress(), IngressDeparser(), EgressParser(), SwitchEgress(), EgressDeparser()) pipe;

Switch(pipe) main;
