/* In-network aggregation after OmniReduce (Fei et al., SIGCOMM'21), for v1model: only blocks that some worker has values in are
 * sent down, and go up from those workers alone. A packet says how far ahead its worker's next block is, and the result the least of these.
 * All else is SwitchML (switchml.p4): slots, recovery, trees, and sums and maxima.
 *
 *   parse -> zeros? -> admitted? -> which phase of the slot? -> add exponents and values -> complete? -> multicast the result
 *                                                                                    or, below the root of a tree, send it up
 *
 * What is on the wire: include/omnireduce/headers.p4, include/switchml/headers.p4. Why no sum can be wrong: docs/design/protocol.md.
 */
#include <core.p4>
#include <v1model.p4>

#include "include/omnireduce/headers.p4"
#include "include/switchml/zeros.p4"
#include "include/switchml/metadata.p4"
#include "include/switchml/parsing.p4"
#include "include/switchml/admission.p4"
#include "include/switchml/phase.p4"
#include "include/switchml/aggregation.p4"
#include "include/switchml/replies.p4"
#include "include/forwarding.p4"

control SwitchIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    counter(DROPS, CounterType.packets) drops;
    Zeros() zeros;
    NoValues() no_values;
    bit<8> has_values;
    Admission() admission;
    Phase() phase;
    Exponents() exponents;
    Values() values;
    Reply() reply;
    Forwarding() forwarding;

    apply {
        if (hdr.switchml.isValid() || (hdr.udp.isValid() && hdr.udp.dst_port & SWITCHML_MASK == SWITCHML_PORT)) {
            zeros.apply(hdr, has_values);
            admission.apply(hdr, meta, standard);
            if (meta.drop == Drop.NONE) {
                phase.apply(hdr, meta);
            }
            if (meta.drop == Drop.NONE) {
                exponents.apply(hdr, meta);
                values.apply(hdr, meta);
                if (hdr.values.isValid()) {
                    no_values.apply(hdr, meta, has_values);
                }
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
