/* In-network aggregation after THC (Li et al., NSDI'24), for v1model: workers send 4 bits a value, the switch looks up what they stand
 * for and adds that up in bytes. All else is SwitchML (switchml.p4): slots, recovery, trees, and sums and maxima of 32-bit values.
 *
 *   parse -> look up -> admitted? -> which phase of the slot? -> add exponents and values -> complete? -> multicast the result
 *                                                                                    or, below the root of a tree, send it up
 *
 * What is on the wire: include/thc/headers.p4, include/switchml/headers.p4. Why no sum can be wrong: docs/design/protocol.md.
 */
#include <core.p4>
#include <v1model.p4>

#include "include/thc/headers.p4"
#include "include/thc/levels.p4"
#include "include/switchml/metadata.p4"
#include "include/switchml/parsing.p4"
#include "include/switchml/admission.p4"
#include "include/switchml/phase.p4"
#include "include/switchml/aggregation.p4"
#include "include/switchml/replies.p4"
#include "include/forwarding.p4"

control SwitchIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    counter(DROPS, CounterType.packets) drops;
    Levels() levels;
    Admission() admission;
    Phase() phase;
    Exponents() exponents;
    Values() values;
    Reply() reply;
    Forwarding() forwarding;

    apply {
        if (hdr.switchml.isValid() || (hdr.udp.isValid() && hdr.udp.dst_port & SWITCHML_MASK == SWITCHML_PORT)) {
            levels.apply(hdr);
            admission.apply(hdr, meta, standard);
            if (meta.drop == Drop.NONE) {
                phase.apply(hdr, meta);
            }
            if (meta.drop == Drop.NONE) {
                exponents.apply(hdr, meta);
                values.apply(hdr, meta);
            }
            if (meta.to != To.NOBODY) {
                reply.apply(hdr, meta, standard);
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
