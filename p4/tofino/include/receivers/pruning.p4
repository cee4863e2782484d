/* Pruning: what goes down to a child below which no worker is a receiver has no values; it says that the phase is complete, and
 * the exponent. A child without a member below gets nothing.
 *
 * No pass can take the values off a replica: they are more than egress can parse, and only egress knows what lies below a child.
 * So if some children get values and others none, the result leaves twice: in TELL to these, before it has values, and a copy,
 * which takes them along, to those, when it is at its end. Each time egress drops the replicas to the others.
 */
#ifndef INA_TOFINO_PRUNING_P4
#define INA_TOFINO_PRUNING_P4

#include "headers.p4"

/* Ingress, in ARRIVE: who gets values of what this packet is answered with, or causes? */
control Wanted(inout packet_t hdr, in state_t meta) {
    action by_none() {
        hdr.bridge.empty = 1;
    }
    action by_some() {
        hdr.bridge.apart = Apart.SOME;
    }
    table by_whom {
        key = {
            hdr.bridge.to: ternary;
            hdr.bridge.empty: ternary;
            meta.own_gets: ternary;
            meta.gets: ternary;
            meta.gets_none: ternary;
        }
        actions = { by_none; by_some; NoAction; }
        const entries = {
            (To.SENDER,   _, 0, _, _): by_none();
            (To.CHILDREN, _, _, 0, _): by_none();
            (To.CHILDREN, 0, _, _, 0): NoAction();
            (To.CHILDREN, 0, _, _, _): by_some();
        }
        const default_action = NoAction();
        size = 4;
    }
    apply {
        by_whom.apply();
    }
}

/* Egress: the replicas of a result; the replication id is the child's number. */
control Receivers(inout packet_t hdr, in egress_intrinsic_metadata_t standard,
                  inout egress_intrinsic_metadata_for_deparser_t deparser_meta) {
    bit<32> below = 0;  // workers below the child
    bit<32> gets = 0;   // receivers, and members, among them
    bit<32> hears = 0;

    action set_below(bit<32> ranks) {
        below = ranks;
    }
    table ranks {
        key = {
            hdr.switchml.job: exact;
            standard.egress_rid: exact @name("standard.egress_rid");
        }
        actions = { set_below; NoAction; }
        default_action = NoAction();
        size = 4096;
    }

    action drop() {
        deparser_meta.drop_ctl = 1;
    }
    action without_values() {
        hdr.switchml.size = SIZE_NONE;
        hdr.ipv4.total_len = hdr.ipv4.total_len - VALUES_BYTES;
        hdr.udp.length = hdr.udp.length - VALUES_BYTES;
    }
    table prune {
        key = { hdr.bridge.pass: ternary; hdr.bridge.empty: ternary; gets: ternary; hears: ternary; }
        actions = { drop; without_values; NoAction; }
        const entries = {
            (_,          _, _, 0): drop();
            (Pass.LOAD,  _, 0, _): without_values();
            (Pass.LOAD,  _, _, _): drop();  // values follow
            (Pass.LEAVE, 0, 0, _): drop();  // it has been told
        }
        const default_action = NoAction();
        size = 4;
    }

    apply {
        ranks.apply();
        gets = hdr.receivers.ranks & below;
        hears = hdr.receivers.members & below;
        prune.apply();
    }
}

#endif
