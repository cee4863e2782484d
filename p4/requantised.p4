/* In-network aggregation with requantised results, for v1model: workers send lanes of 16 bits, which the switch adds up, and sends down
 * rounded to 8 bits (as SCIN's switches do). All else is SwitchML (switchml.p4): slots, recovery, trees, and sums and maxima of 32-bit
 * integers.
 *
 *   parse -> bytes? -> admitted? -> which phase of the slot? -> add exponents and values -> complete? -> round, multicast the result
 *                                                                                    or, below the root of a tree, send it up
 *
 * What is on the wire: include/requantised/headers.p4, include/switchml/headers.p4. Why no sum can be wrong: docs/design/protocol.md.
 */
#include <core.p4>
#include <v1model.p4>

#include "include/requantised/headers.p4"
#include "include/requantised/rounding.p4"
#include "include/switchml/metadata.p4"
#include "include/switchml/parsing.p4"
#include "include/switchml/admission.p4"
#include "include/switchml/phase.p4"
#include "include/switchml/aggregation.p4"
#include "include/switchml/replies.p4"
#include "include/forwarding.p4"

control SwitchIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    counter(DROPS, CounterType.packets) drops;
    FromBytes() from_bytes;
    bool from_above;
    Admission() admission;
    Phase() phase;
    Exponents() exponents;
    Values() values;
    Reply() reply;
    ToBytes() to_bytes;
    Forwarding() forwarding;

    apply {
        if (hdr.switchml.isValid() || (hdr.udp.isValid() && hdr.udp.dst_port & SWITCHML_MASK == SWITCHML_PORT)) {
            from_bytes.apply(hdr, from_above);
            admission.apply(hdr, meta, standard);
            if (meta.drop == Drop.NONE && hdr.switchml.msg_type == SWITCHML_LANES && from_above != (meta.worker == 0)) @unlikely {
                meta.drop = Drop.WRONG_SOURCE;  // bytes come from above, and lanes from below
            }
            if (meta.drop == Drop.NONE) {
                phase.apply(hdr, meta);
            }
            if (meta.drop == Drop.NONE) {
                exponents.apply(hdr, meta);
                values.apply(hdr, meta);
            }
            if (meta.to != To.NOBODY) {
                reply.apply(hdr, meta, standard);
                if (meta.to != To.PARENT) {
                    to_bytes.apply(hdr);
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
