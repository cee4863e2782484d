/* In-network aggregation after ATP (Lao et al., NSDI'21), for the Tofino native architecture: the twin of ../atp.p4.
 * Frames, rules and control plane are the same; docs/design/tna-programs.md says why the inside looks otherwise.
 *
 *   ARRIVE   up:   parse -> admitted? -> what does its aggregator do with it? -> exponent, flags, check words
 *            down: parse -> admitted? -> free the aggregator
 *   ADD      32 values are taken off the packet and added, for each 32 of them
 *   LOAD     of a packet that takes a sum up, the last 32 first: they come before those that it has already
 *   FINISH   the packet tells the state what it did -> absorbed, up to the server, to one worker, or to all
 *
 * Compile-time sizes: ../include/size.p4; -DPIPE=n: the pipe that aggregates. What is on the wire: ../include/atp/headers.p4.
 */
#include <core.p4>
#include <tna.p4>

#ifndef PROTOCOL
#define PROTOCOL "atp"  // ps.p4 is the same program
#endif

#include "include/atp/headers.p4"
#include "include/atp/parsing.p4"
#include "include/atp/admission.p4"
#include "include/atp/aggregator.p4"
#include "include/atp/aggregation.p4"
#include "include/atp/rounds.p4"
#include "include/lanes.p4"
#include "include/atp/paths.p4"
#include "include/forwarding.p4"

control SwitchIngress(inout packet_t hdr, inout state_t meta, in ingress_intrinsic_metadata_t standard,
                      in ingress_intrinsic_metadata_from_parser_t from_parser,
                      inout ingress_intrinsic_metadata_for_deparser_t deparser_meta,
                      inout ingress_intrinsic_metadata_for_tm_t traffic) {
    Counter<bit<32>, bit<8>>(DROPS, CounterType_t.PACKETS) drops;
    Counter<bit<32>, bit<32>>(256 * FATES, CounterType_t.PACKETS) fates;  // job * FATES + Fate
    Admission() admission;
    Last() last;
    Aggregator() aggregator;
    Marks() marks;
    Word() check0;
    Word() check1;
    Lanes() values;
    Up() up;
    Down() down;
    Refusal() refusal;
    Tickets() tickets;
    Chain() chain;
    Forwarding() forwarding;
    bit<8> whole;

    action go_round(Pass pass) {
        hdr.bridge.pass = pass;
        traffic.ucast_egress_port = RECIRCULATION;
        traffic.bypass_egress = 1;
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
        hdr.bridge.absorbed = 1;
        hdr.bridge.evicted = 1;
        go_round(Pass.FINISH);
    }
    action spoilt() {
        meta.drop = Drop.MALFORMED;
        deparser_meta.drop_ctl = 1;
    }
    table after_values {
        key = {
            from_parser.parser_err: ternary;
            hdr.bridge.pass: ternary;
            hdr.bridge.chunk: ternary;
            hdr.bridge.load: ternary;
            whole: ternary;
        }
        actions = { go_round; add_more; load; load_more; refuse; spoilt; }
        const entries = {
            (0, Pass.ADD,  LAST_CHUNK, 1, 1): load();
            (0, Pass.ADD,  LAST_CHUNK, 1, _): refuse();
            (0, Pass.ADD,  LAST_CHUNK, _, _): go_round(Pass.FINISH);
            (0, Pass.ADD,  _,          _, _): add_more();
            (_, Pass.ADD,  _,          _, _): spoilt();  // shorter than its IPv4 header says
            (_, Pass.LOAD, 0,          _, _): go_round(Pass.FINISH);
        }
        const default_action = load_more();
        size = 7;
    }
    table after_arrival {
        key = { meta.drop: ternary; hdr.lanes.isValid(): ternary; hdr.bridge.op: ternary; hdr.bridge.absorbed: ternary;
                hdr.bridge.claimed: ternary; hdr.bridge.outdated: ternary; }
        actions = { go_round; absorb; }
        const entries = {
            (Drop.VERSION, true, _,       _, _, 1): go_round(Pass.ADD);  // to be told, without its values
            (Drop.VERSION, _,    _,       _, _, 1): go_round(Pass.FINISH);
            (Drop.NONE, _,    Op.NOTHING, _, _, _): go_round(Pass.FINISH);
            (Drop.NONE, true, _,          _, _, _): go_round(Pass.ADD);
            (Drop.NONE, _,    _,          1, 0, _): absorb();
            (Drop.NONE, _,    _,          _, _, _): go_round(Pass.FINISH);
        }
        const default_action = absorb();
        size = 6;
    }

    apply {
        whole = 0;
        if (!hdr.atp.isValid() && (!hdr.udp.isValid() || hdr.udp.dst_port & ATP_MASK != ATP_PORT)) {
            forwarding.apply(hdr, meta, deparser_meta, traffic);
        } else {
            if (hdr.bridge.pass == Pass.ADD || hdr.bridge.pass == Pass.LOAD) {
                values.apply(hdr.lanes, hdr.flags, hdr.bridge);
                chain.apply(hdr, from_parser, whole);
                if (hdr.bridge.pass == Pass.ADD) {
                    hdr.lanes.setInvalid();
                }
                after_values.apply();
            } else {
                last.apply(hdr, meta);
                if (hdr.bridge.pass == Pass.ARRIVE) {
                    admission.apply(hdr, meta, from_parser);
                }
                if (hdr.bridge.pass == Pass.ARRIVE && meta.drop == Drop.NONE && standard.ingress_port[8:7] != PIPE) {
                    go_round(Pass.ARRIVE);  // it is decided in the pipe that has the state
                } else {
                    aggregator.apply(hdr, meta);
                    if (hdr.bridge.pass == Pass.ARRIVE) {
                        if (meta.drop == Drop.NONE && meta.downwards == 0) {
                            fates.count((bit<32>)(hdr.atp.job ++ ((bit<8>)meta.fate)[2:0]));
                            tickets.apply(hdr, meta);
                            marks.apply(hdr, meta);
                            check0.apply(hdr.check.check0, hdr);
                            check1.apply(hdr.check.check1, hdr);
                        }
                        after_arrival.apply();
                    } else {
                        hdr.bridge.pass = Pass.LEAVE;
                        if (hdr.bridge.outdated == 1) {
                            refusal.apply(hdr, traffic);
                        } else if (hdr.bridge.absorbed == 1) {
                            absorb();
                            if (hdr.bridge.load == 1) {
                                meta.drop = Drop.LOST;
                            }
                        } else if (hdr.bridge.downwards == 1) {
                            down.apply(hdr, traffic);
                        } else {
                            up.apply(hdr, meta, traffic);
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
    Overflows() overflows;
    bit<32> queued = 0;
    bit<32> depth = 0;
    bit<32> short = 0;  // of what marks a packet

    action cells_() {
        queued = (bit<32>)standard.enq_qdepth;
        depth = hdr.bridge.ecn_depth << CELLS_OF_PACKET;
    }
    table cells {
        actions = { cells_; }
        const default_action = cells_();
        size = 1;
    }
    action difference_() {
        short = depth |-| queued;
    }
    table difference {
        actions = { difference_; }
        const default_action = difference_();
        size = 1;
    }
    action mark() {
        hdr.atp.ecn = 1;
    }
    table long_queue {
        key = { hdr.bridge.ecn_depth: ternary; short: ternary; }
        actions = { mark; NoAction; }
        const entries = {
            (0, _): NoAction();
            (_, 0): mark();
        }
        const default_action = NoAction();
        size = 2;
    }

    apply {
        if (hdr.bridge.pass == Pass.LEAVE) {
            if (hdr.bridge.replicated == 1) {
                replicas.apply(hdr, standard);
            }
            overflows.apply(hdr.flags, hdr.atp.overflow);
            cells.apply();
            difference.apply();
            long_queue.apply();
        } else if (hdr.bridge.port == standard.egress_port) {
            deparser_meta.drop_ctl = 1;  // a broadcast: not back to where it came from
        }
    }
}

Pipeline(IngressParser(), SwitchIngress(), IngressDeparser(), EgressParser(), SwitchEgress(), EgressDeparser()) pipe;

Switch(pipe) main;
