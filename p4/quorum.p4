/* In-network aggregation after SwitchML (Sapio et al., NSDI'21), for v1model, that need not wait for the slowest: before a sum workers
 * offer to contribute, and the first so many of them do. The others send zeros, and know from the answer that they are not in the sum,
 * and how many are. So which workers a sum is of is decided in one phase of small packets; all that follows is SwitchML's as it is, and so
 * is its proof.
 *
 *   parse -> admitted? -> an offer? -> which phase of the slot? -> who contributes? -> decided? -> multicast who does
 *                              |                                                or, below the root of a tree, send it up
 *                              +-> which phase of the slot? -> ... (switchml.p4)
 *
 * What is on the wire: include/quorum/headers.p4, include/switchml/headers.p4. Why all learn the same: docs/design/protocol.md.
 */
#include <core.p4>
#include <v1model.p4>

#include "include/quorum/headers.p4"
#include "include/switchml/metadata.p4"
#include "include/switchml/parsing.p4"
#include "include/switchml/admission.p4"
#include "include/quorum/offers.p4"
#include "include/switchml/phase.p4"
#include "include/switchml/aggregation.p4"
#include "include/switchml/replies.p4"
#include "include/forwarding.p4"

control SwitchIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    counter(DROPS, CounterType.packets) drops;
    Admission() admission;
    Relay() relay;
    Phase() phase;
    Exponents() exponents;
    Values() values;
    Reply() reply;
    Forwarding() forwarding;

    apply {
        if (hdr.switchml.isValid() || (hdr.udp.isValid() && hdr.udp.dst_port & SWITCHML_MASK == SWITCHML_PORT)) {
            admission.apply(hdr, meta, standard);
            if (meta.drop == Drop.NONE) {
                relay.apply(hdr, meta);
            }
            if (meta.drop == Drop.NONE && meta.to == To.NOBODY) {
                phase.apply(hdr, meta);
            }
            if (meta.drop == Drop.NONE && !hdr.offer.isValid()) {
                exponents.apply(hdr, meta);
                values.apply(hdr, meta);
            }
            if (meta.to != To.NOBODY) {
                reply.apply(hdr, meta, standard);
                if (hdr.switchml.msg_type != SWITCHML_OFFER) {
                    hdr.offer.setInvalid();  // what tells of a version has none
                }
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

    apply {
        if (meta.result == 1) {
            replicas.apply(hdr, standard);
        } else if (meta.flood == 1 && standard.egress_port == standard.ingress_port) {
            mark_to_drop(standard);
        }
    }
}

/* Slots share no state, and a worker sends those of one slot to one of these UDP ports: switches with several processors give each
 * its own. */
@shards[udp_dst_port=0xBEE0, count=16]
V1Switch(SwitchParser(), VerifyChecksums(), SwitchIngress(), SwitchEgress(), UpdateChecksums(), SwitchDeparser()) main;
