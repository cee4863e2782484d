/* In-network aggregation after ATP (Lao et al., NSDI'21), for the Tofino native architecture: the twin of ../atp.p4.
 * Frames, rules and control plane are the same; docs/tna-programs.md says why the inside looks otherwise.
 *
 *   first pass    up:   parse -> admitted? -> what does its aggregator do with it? -> exponent, flags -> passed on, or round
 *                 down: parse -> admitted? -> free the aggregator -> one worker, or all
 *   adding        32 values are taken off the packet and added, for each 32 of them; what is absorbed ends here
 *   loading       of a packet that takes a sum up, the last 32 first: they come before those that it has already
 *   finishing     a packet without values tells the state what it did
 *
 * Compile-time sizes: ../include/size.p4; -DPIPE=n: the pipe that aggregates. What is on the wire: ../include/atp_headers.p4.
 */
#include <core.p4>
#include <tna.p4>

#include "include/atp_headers.p4"
#include "include/atp_parsing.p4"
#include "include/atp_admission.p4"
#include "include/atp_aggregator.p4"
#include "include/atp_aggregation.p4"
#include "include/lanes.p4"
#include "include/atp_paths.p4"
#include "include/forwarding.p4"

control SwitchIngress(inout packet_t hdr, inout state_t meta, in ingress_intrinsic_metadata_t standard,
                      in ingress_intrinsic_metadata_from_parser_t from_parser,
                      inout ingress_intrinsic_metadata_for_deparser_t deparser_meta,
                      inout ingress_intrinsic_metadata_for_tm_t traffic) {
    Counter<bit<32>, bit<8>>(DROPS, CounterType_t.PACKETS) drops;
    Counter<bit<32>, bit<32>>(256 * FATES, CounterType_t.PACKETS) fates;  // job * FATES + Fate
    Admission() admission;
    Aggregator() aggregator;
    Marks() marks;
    Lanes() values;
    Up() up;
    Down() down;
    Forwarding() forwarding;

    action start() {
        meta.fate = Fate.PASSED;
        meta.downwards = 0;
        meta.ecn_depth = 0;
        meta.store = 0;
        meta.add = 0;
        meta.load = 0;
        meta.absorbed = 0;
        meta.claimed = 0;
        meta.evicted = 0;
        meta.surplus = 0;
        meta.op = Op.NOTHING;
        meta.first = 0;
        meta.chunk = 0;
        meta.overflow0 = 0;
        meta.overflow1 = 0;
        meta.overflow2 = 0;
        meta.overflow3 = 0;
    }
    action unpack() {
        meta.op = hdr.bridge.op;
        meta.chunk = hdr.bridge.chunk;
        meta.load = hdr.bridge.load;
        meta.absorbed = hdr.bridge.absorbed;
        meta.claimed = hdr.bridge.claimed;
        meta.evicted = hdr.bridge.evicted;
        meta.first = hdr.bridge.first;
        meta.cell = hdr.bridge.cell;
        meta.row = hdr.bridge.row;
        meta.surplus = hdr.bridge.surplus;
        meta.overflow0 = hdr.bridge.overflow0;
        meta.overflow1 = hdr.bridge.overflow1;
        meta.overflow2 = hdr.bridge.overflow2;
        meta.overflow3 = hdr.bridge.overflow3;
        meta.ecn_depth = hdr.bridge.ecn_depth;
    }
    action pack() {
        hdr.bridge.setValid();
        hdr.bridge.pass = meta.pass;
        hdr.bridge.op = meta.op;
        hdr.bridge.chunk = meta.chunk;
        hdr.bridge.replicated = 0;
        hdr.bridge.load = meta.load;
        hdr.bridge.absorbed = meta.absorbed;
        hdr.bridge.claimed = meta.claimed;
        hdr.bridge.evicted = meta.evicted;
        hdr.bridge.first = meta.first;
        hdr.bridge.unused = 0;
        hdr.bridge.port = meta.port;
        hdr.bridge.cell = meta.cell;
        hdr.bridge.row = meta.row;
        hdr.bridge.surplus = meta.surplus;
        hdr.bridge.overflow0 = meta.overflow0;
        hdr.bridge.overflow1 = meta.overflow1;
        hdr.bridge.overflow2 = meta.overflow2;
        hdr.bridge.overflow3 = meta.overflow3;
        hdr.bridge.unused2 = 0;
        hdr.bridge.ecn_depth = meta.ecn_depth;
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
        if (hdr.atp.isValid() || (hdr.udp.isValid() && hdr.udp.dst_port & ATP_MASK == ATP_PORT)) {
            if (meta.pass == Pass.ARRIVE) {
                admission.apply(hdr, meta, from_parser);
            }
            if (meta.pass == Pass.ARRIVE && meta.drop == Drop.NONE && standard.ingress_port[8:7] != PIPE) {
                go_round(Pass.ARRIVE);  // it is decided in the pipe that has the state
            } else {
                bool first_values = meta.pass == Pass.ADD && meta.chunk == 0;
                bool last = meta.pass == Pass.LOAD && meta.chunk == 0;
                if (meta.drop == Drop.NONE && (meta.pass == Pass.ARRIVE || meta.pass == Pass.FINISH
                                               || (first_values && meta.claimed == 1) || (last && meta.evicted == 1))) {
                    aggregator.apply(hdr, meta, from_parser);
                }
                if (meta.pass == Pass.ARRIVE && meta.drop == Drop.NONE && meta.downwards == 0) {
                    fates.count((bit<32>)hdr.atp.job * FATES + (bit<32>)(bit<8>)meta.fate);
                    if (meta.store == 1 || meta.add == 1 || meta.load == 1) {
                        marks.apply(hdr, meta);
                    }
                    meta.cell = meta.row;
                    meta.first = meta.store;
                    if (meta.store == 1) {
                        meta.op = Op.STORE;
                    } else if (meta.add == 1 && hdr.atp.msg_type == Type.MAXIMA) {
                        meta.op = Op.MAXIMUM;
                    } else if (meta.add == 1) {
                        meta.op = Op.ADD;
                    } else if (meta.load == 1) {
                        meta.op = Op.LOOK;
                    }
                    if (meta.op != Op.NOTHING && meta.load == 0) {
                        meta.absorbed = 1;
                    }
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
                    if (meta.op != Op.NOTHING && hdr.lanes.isValid()) {
                        go_round(Pass.ADD);
                    } else if (meta.claimed == 1 || meta.evicted == 1 || meta.surplus != 0) {
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
                    } else if (meta.load == 1) {
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
            if (leaves) {
                meta.pass = Pass.LEAVE;
            }
            pack();
            if (leaves && meta.absorbed == 1) {
                deparser_meta.drop_ctl = 1;
            } else if (leaves && meta.downwards == 1) {
                down.apply(hdr, meta, traffic);
            } else if (leaves) {
                up.apply(hdr, meta, traffic);
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
                hdr.atp.overflow = 1;  // in a sum that it carries
            }
            if (hdr.bridge.ecn_depth != 0 && standard.enq_qdepth >= hdr.bridge.ecn_depth) {
                hdr.atp.ecn = 1;
            }
        } else if (hdr.bridge.port == standard.egress_port) {
            deparser_meta.drop_ctl = 1;  // a broadcast: not back to where it came from
        }
    }
}

Pipeline(IngressParser(), SwitchIngress(), IngressDeparser(), EgressParser(), SwitchEgress(), EgressDeparser()) pipe;

Switch(pipe) main;
