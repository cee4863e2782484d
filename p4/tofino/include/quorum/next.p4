/* Next: what follows a pass of an offer that this switch keeps. */
#ifndef INA_TOFINO_QUORUM_NEXT_P4
#define INA_TOFINO_QUORUM_NEXT_P4

#include "headers.p4"
#include "../switchml/next.p4"

control AfterOffer(inout packet_t hdr, in state_t meta, inout ingress_intrinsic_metadata_for_deparser_t deparser_meta,
                   inout ingress_intrinsic_metadata_for_tm_t traffic) {
    action go_round(Pass pass) {
        hdr.bridge.pass = pass;
        traffic.ucast_egress_port = RECIRCULATION;
        traffic.bypass_egress = SKIPS_EGRESS;
    }
    action offer() {
        hdr.bridge.first = 0;  // it has begun
        go_round(Pass.OFFER);
    }
    action arrive() {
        hdr.carried.setInvalid();
        go_round(Pass.ARRIVE);
    }
    action absorb() {
        deparser_meta.drop_ctl = 1;
    }
    action tell_decided(To to) {
        hdr.bridge.to = to;
        hdr.bridge.complete = 1;
        hdr.switchml.overflow = 0;
        hdr.offer.state = OFFER_DECIDED;
        hdr.offer.ranks = meta.given;
        hdr.carried.setInvalid();
        go_round(Pass.FINISH);
    }
    action tell_open() {
        hdr.bridge.to = To.SENDER;
        hdr.switchml.overflow = 0;
        hdr.offer.state = OFFER_OPEN;
        hdr.offer.ranks = meta.left;
        hdr.carried.setInvalid();
        go_round(Pass.FINISH);
    }
    action tell_not_asked() {
        hdr.bridge.to = To.SENDER;
        hdr.switchml.overflow = 0;
        hdr.offer.state = OFFER_OPEN;
        hdr.offer.ranks = meta.missing;
        hdr.carried.setInvalid();
        go_round(Pass.FINISH);
    }
    table what {
        key = { hdr.bridge.pass: ternary; hdr.bridge.round: ternary; meta.verdict: ternary; }
        actions = { offer; arrive; absorb; tell_decided; tell_open; tell_not_asked; }
        const entries = {
            (Pass.ARRIVE, _, _):                 offer();
            (_,           0, _):                 arrive();  // another came between
            (_,           _, Verdict.DECIDES):   tell_decided(To.CHILDREN);
            (_,           _, Verdict.DECIDED):   tell_decided(To.SENDER);
            (_,           _, Verdict.OPEN):      tell_open();
            (_,           _, Verdict.NOT_ASKED): tell_not_asked();
        }
        const default_action = absorb();
        size = 6;
    }
    apply {
        what.apply();
    }
}

#endif
