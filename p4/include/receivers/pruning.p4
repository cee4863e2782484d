/* Members: a phase is complete when all of its members' packets are there. One whose members are all below this switch ends here, as at
 * the root of a tree.
 * Pruning: what goes down to a child below which no worker is a receiver loses its values. It still says that the phase is complete, and
 * its exponent. A child without a member below gets nothing. */
#ifndef INA_PRUNING_P4
#define INA_PRUNING_P4

#include "headers.p4"
#include "../switchml/metadata.p4"

control Members(in headers_t hdr, inout metadata_t meta) {
    apply {
        if (hdr.receivers.isValid()) {
            if (meta.worker != 0 && meta.worker & hdr.receivers.members == 0) @unlikely {
                meta.drop = Drop.WRONG_SIZE;
            }
            if (hdr.receivers.members & ~meta.full == 0) {
                meta.parent = 0;
            }
        }
    }
}

control Prune(inout headers_t hdr, in bit<32> below) {  // below: the workers below the child
    apply {
        if (hdr.receivers.isValid() && hdr.values.isValid() && hdr.receivers.ranks & below == 0) {
            hdr.values.setInvalid();
            hdr.switchml.size = SIZE_NONE;
            hdr.ipv4.total_len = hdr.ipv4.total_len - VALUES_BYTES;
            hdr.udp.length = hdr.udp.length - VALUES_BYTES;
        }
    }
}

/* Ingress: an answer to one child, whose bits are those of the workers below it. What tells of missing workers, or of a version, names no receivers. */
control OneReceiver(inout headers_t hdr, in metadata_t meta) {
    Prune() prune;

    apply {
        if (hdr.switchml.msg_type != SWITCHML_TO) {
            hdr.receivers.setInvalid();
        } else if (meta.to == To.SENDER) {
            prune.apply(hdr, meta.worker);
        }
    }
}

/* Egress: the replicas of a result; the replication id is the child's number. */
control Receivers(inout headers_t hdr, inout standard_metadata_t standard) {
    Prune() prune;
    bit<32> below = 0;

    action set_below(bit<32> ranks) {
        below = ranks;
    }
    table ranks {
        key = {
            hdr.switchml.job: exact;
            standard.egress_rid: exact;
        }
        actions = { set_below; NoAction; }
        default_action = NoAction();
        size = 4096;
    }

    apply {
        if (hdr.receivers.isValid()) {
            ranks.apply();
            prune.apply(hdr, below);
            if (hdr.receivers.members & below == 0) {
                mark_to_drop(standard);
            }
        }
    }
}

#endif
