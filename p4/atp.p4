/* In-network aggregation after ATP (Lao et al., NSDI'21), for v1model.
 *
 *   up:    parse -> admitted? -> what does its aggregator do with it? -> sums -> the server, or absorbed
 *   down:  parse -> admitted? -> free the aggregator -> one worker, or all
 *
 * Best effort: whatever a switch cannot add up, it passes on, and the parameter server (host/protocol/ps.c) does.
 * Compile-time sizes: include/size.p4. What is on the wire: include/atp/headers.p4. Why no sum can be wrong:
 * docs/design/protocol-atp.md.
 */
#include <core.p4>
#include <v1model.p4>

#ifndef PROTOCOL
#define PROTOCOL "atp"  // ps.p4 is the same program
#endif

#include "include/atp/headers.p4"
#include "include/atp/metadata.p4"
#include "include/atp/parsing.p4"
#include "include/atp/admission.p4"
#include "include/atp/aggregator.p4"
#include "include/atp/aggregation.p4"
#include "include/atp/paths.p4"
#include "include/forwarding.p4"

control SwitchIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    counter(DROPS, CounterType.packets) drops;
    counter(256 * FATES, CounterType.packets) fates;  // job * FATES + Fate
    Admission() admission;
    Aggregator() aggregator;
    Sums() values;
    Up() up;
    Down() down;
    Refusal() refusal;
    Forwarding() forwarding;

    apply {
        if (hdr.atp.isValid() || (hdr.udp.isValid() && hdr.udp.dst_port & ATP_MASK == ATP_PORT)) {
            admission.apply(hdr, meta, standard);
            if (meta.drop == Drop.NONE) {
                aggregator.apply(hdr, meta, standard);
            }
            if (meta.drop == Drop.NONE) {
                if (meta.downwards == 1) {
                    down.apply(hdr, meta, standard);
                } else {
                    values.apply(hdr, meta);
                    fates.count((bit<32>)hdr.atp.job * FATES + (bit<32>)(bit<8>)meta.fate);
                    if ((meta.store == 1 || meta.add == 1) && meta.load == 0) {
                        mark_to_drop(standard);  // absorbed
                    } else {
                        up.apply(hdr, meta, standard);
                    }
                }
            }
            if (meta.refuse == 1) {
                refusal.apply(hdr, standard);
            } else if (meta.drop != Drop.NONE) {
                mark_to_drop(standard);
            }
            if (meta.drop != Drop.NONE) {
                drops.count((bit<32>)(bit<8>)meta.drop);
            }
        } else {
            forwarding.apply(hdr, meta, standard);
        }
    }
}

control SwitchEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    Replicas() replicas;

    apply {
        if (meta.replicated == 1) {
            replicas.apply(hdr, standard);
        } else if (meta.flood == 1 && standard.egress_port == standard.ingress_port) {
            mark_to_drop(standard);
        }
        if (hdr.atp.isValid() && meta.ecn_depth != 0 && standard.enq_qdepth >= meta.ecn_depth) {
            hdr.atp.ecn = 1;
        }
    }
}

V1Switch(SwitchParser(), VerifyChecksums(), SwitchIngress(), SwitchEgress(), UpdateChecksums(), SwitchDeparser()) main;
