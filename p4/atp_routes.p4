/* In-network aggregation after ATP (Lao et al., NSDI'21), for v1model, with sums for some workers only: a packet names them, and may
 * have no values where its worker adds nothing. So a gather is a sum with one contributor, and a reduce-scatter one with one receiver,
 * and links carry the values of contributors up and those for receivers down. A packet also names the sum's members, those who have
 * values and those who get them: nobody else sends or hears anything of it.
 * All else is ATP (atp.p4): aggregators that jobs share, a parameter server, trees, and sums and maxima for all.
 *
 *   up:    parse -> admitted? -> a member? -> what does its aggregator do with it? -> zeros? -> sums -> the server, or absorbed
 *   down:  parse -> admitted? -> free the aggregator -> one worker, or members, to those without a receiver below without its values
 *
 * What is on the wire: include/atp_routes/headers.p4, include/atp/headers.p4. Why no sum can be wrong: docs/design/protocol-atp.md.
 */
#include <core.p4>
#include <v1model.p4>

#include "include/atp_routes/headers.p4"
#include "include/atp/metadata.p4"
#include "include/atp/parsing.p4"
#include "include/atp/admission.p4"
#include "include/atp/aggregator.p4"
#include "include/atp/aggregation.p4"
#include "include/atp/paths.p4"
#include "include/atp_routes/zeros.p4"
#include "include/atp_routes/pruning.p4"
#include "include/forwarding.p4"

control SwitchIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    counter(DROPS, CounterType.packets) drops;
    counter(256 * FATES, CounterType.packets) fates;  // job * FATES + Fate
    Admission() admission;
    Members() members;
    Aggregator() aggregator;
    Zeros() zeros;
    bit<8> brings;
    Sums() values;
    NoValues() no_values;
    Up() up;
    Down() down;
    Refusal() refusal;
    Forwarding() forwarding;

    apply {
        if (hdr.atp.isValid() || (hdr.udp.isValid() && hdr.udp.dst_port & ATP_MASK == ATP_PORT)) {
            admission.apply(hdr, meta, standard);
            if (meta.drop == Drop.NONE) {
                members.apply(hdr, meta);
            }
            if (meta.drop == Drop.NONE) {
                aggregator.apply(hdr, meta, standard);
            }
            if (meta.drop == Drop.NONE) {
                if (meta.downwards == 1) {
                    down.apply(hdr, meta, standard);
                } else {
                    zeros.apply(hdr, meta, brings);
                    values.apply(hdr, meta);
                    no_values.apply(hdr, meta, brings);
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
                hdr.receivers.setInvalid();
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
    Receivers() receivers;

    apply {
        if (meta.replicated == 1) {
            replicas.apply(hdr, standard);
            receivers.apply(hdr, standard);
        } else if (meta.flood == 1 && standard.egress_port == standard.ingress_port) {
            mark_to_drop(standard);
        }
        if (hdr.atp.isValid() && meta.ecn_depth != 0 && standard.enq_qdepth >= meta.ecn_depth) {
            hdr.atp.ecn = 1;
        }
    }
}

V1Switch(SwitchParser(), VerifyChecksums(), SwitchIngress(), SwitchEgress(), UpdateChecksums(), SwitchDeparser()) main;
