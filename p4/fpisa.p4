/* In-network aggregation of floats after FPISA (Yuan et al., NSDI'22), for v1model: workers send IEEE 754 numbers, the switch adds them
 * up with an exponent for each, so nothing has to be agreed before. All else is SwitchML (switchml.p4): slots, recovery, trees, and sums
 * and maxima of 32-bit integers.
 *
 *   parse -> admitted? -> which phase of the slot? -> add floats, or values -> complete? -> multicast the result
 *                                                                                       or, below the root of a tree, send it up
 *
 *   -DFIXED_ORDER=n   sums in the order of the workers, of up to n (2, 4, 8 or 16), in n times the memory
 *   -DFPISA_A=1       what a Tofino can do (tofino/fpisa.p4)
 *
 * What is on the wire: include/fpisa/headers.p4, include/switchml/headers.p4. What a sum is: docs/design/fpisa.md.
 */
#include <core.p4>
#include <v1model.p4>

#include "include/fpisa/headers.p4"
#include "include/switchml/metadata.p4"
#include "include/switchml/parsing.p4"
#include "include/switchml/admission.p4"
#include "include/switchml/phase.p4"
#include "include/switchml/aggregation.p4"
#include "include/fpisa/floats.p4"
#include "include/switchml/replies.p4"
#include "include/forwarding.p4"

control SwitchIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    counter(DROPS, CounterType.packets) drops;
    Admission() admission;
    Phase() phase;
    Exponents() exponents;
    Values() values;
    Floats() floats;
    Reply() reply;
    Forwarding() forwarding;

    apply {
        if (hdr.switchml.isValid() || (hdr.udp.isValid() && hdr.udp.dst_port & SWITCHML_MASK == SWITCHML_PORT)) {
            admission.apply(hdr, meta, standard);
#ifdef FIXED_ORDER
            if (meta.drop == Drop.NONE && (meta.worker & -meta.worker) >> (FIXED_ORDER) != 0) {
                meta.drop = Drop.WRONG_SOURCE;  // of a controller that has not read `workers` of @ina_program
            }
#endif
            if (meta.drop == Drop.NONE) {
                phase.apply(hdr, meta);
            }
            if (meta.drop == Drop.NONE) {
                exponents.apply(hdr, meta);
                if (hdr.switchml.msg_type == SWITCHML_FLOATS) {
                    floats.apply(hdr, meta);
                } else {
                    values.apply(hdr, meta);
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
