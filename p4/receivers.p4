/* In-network aggregation after SwitchML (Sapio et al., NSDI'21), for v1model, with sums for some workers only: a packet names them, and may
 * have no values where its worker adds nothing. So a gather is a sum with one contributor, and a reduce-scatter one with one receiver,
 * and links carry the values of contributors up and those for receivers down. A packet also names the phase's members, those who have
 * values and those who get them: nobody else sends or hears anything of it.
 * All else is SwitchML (switchml.p4): slots, recovery, trees, and sums and maxima for all.
 *
 *   parse -> zeros? -> admitted? -> a member? -> which phase of the slot? -> add exponents and values -> complete? -> multicast the
 *                                                result to members, to those without a receiver below without its values
 *                                                                                    or, below the root of a tree, send it up
 *
 * What is on the wire: include/receivers/headers.p4, include/switchml/headers.p4. Why no sum can be wrong: docs/design/protocol.md.
 */
#include <core.p4>
#include <v1model.p4>

#include "include/receivers/headers.p4"
#include "include/switchml/zeros.p4"
#include "include/switchml/metadata.p4"
#include "include/switchml/parsing.p4"
#include "include/switchml/admission.p4"
#include "include/switchml/phase.p4"
#include "include/switchml/aggregation.p4"
#include "include/switchml/replies.p4"
#include "include/receivers/pruning.p4"
#include "include/forwarding.p4"

control SwitchIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    counter(DROPS, CounterType.packets) drops;
    Zeros() zeros;
    NoValues() no_values;
    bit<8> has_values;
    Admission() admission;
    Members() members;
    Phase() phase;
    Exponents() exponents;
    Values() values;
    Reply() reply;
    OneReceiver() one_receiver;
    Forwarding() forwarding;

    apply {
        if (hdr.switchml.isValid() || (hdr.udp.isValid() && hdr.udp.dst_port & SWITCHML_MASK == SWITCHML_PORT)) {
            zeros.apply(hdr, has_values);
            admission.apply(hdr, meta, standard);
            if (meta.drop == Drop.NONE) {
                members.apply(hdr, meta);
            }
            if (meta.drop == Drop.NONE) {
                phase.apply(hdr, meta);
            }
            if (meta.drop == Drop.NONE) {
                exponents.apply(hdr, meta);
                values.apply(hdr, meta);
                if (hdr.receivers.isValid()) {
                    no_values.apply(hdr, meta, has_values);
                }
            }
            if (meta.to != To.NOBODY) {
                reply.apply(hdr, meta, standard);
                one_receiver.apply(hdr, meta);
            } else {
                mark_to_drop(standard);  // absorbed, or of no use
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
        if (meta.result == 1) {
            replicas.apply(hdr, standard);
            receivers.apply(hdr, standard);
        } else if (meta.flood == 1 && standard.egress_port == standard.ingress_port) {
            mark_to_drop(standard);
        }
    }
}

/* Slots share no state, and a worker sends those of one slot to one of these UDP ports: switches with several processors give each
 * its own. */
@shards[udp_dst_port=0xBEE0, count=16]
V1Switch(SwitchParser(), VerifyChecksums(), SwitchIngress(), SwitchEgress(), UpdateChecksums(), SwitchDeparser()) main;
