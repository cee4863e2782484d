/* Members: a worker that is none has no part in the sum.
 * Pruning: what goes down to a child below which no worker is a receiver loses its values. It still says that the sum is complete. A
 * child without a member below gets nothing. */
#ifndef INA_ATP_ROUTES_PRUNING_P4
#define INA_ATP_ROUTES_PRUNING_P4

#include "headers.p4"
#include "../atp/metadata.p4"

control Members(in headers_t hdr, inout metadata_t meta) {
    apply {
        if (hdr.receivers.isValid() && meta.downwards == 0 && hdr.atp.bitmap & ~hdr.receivers.members != 0) {
            meta.drop = Drop.WRONG_WORKERS;
        }
    }
}

/* Egress: the replicas of a result; the replication id is the child's number. */
control Receivers(inout headers_t hdr, inout standard_metadata_t standard) {
    bit<32> below = 0;

    action set_below(bit<32> ranks) {  // the workers below the child
        below = ranks;
    }
    table ranks {
        key = {
            hdr.atp.job: exact;
            standard.egress_rid: exact;
        }
        actions = { set_below; NoAction; }
        default_action = NoAction();
        size = 4096;
    }

    apply {
        if (hdr.receivers.isValid()) {
            ranks.apply();
            if (hdr.values.isValid() && hdr.receivers.ranks & below == 0) {
                hdr.values.setInvalid();
                hdr.ipv4.total_len = hdr.ipv4.total_len - VALUES_BYTES;
                hdr.udp.length = hdr.udp.length - VALUES_BYTES;
            }
            if (hdr.receivers.members & below == 0) {
                mark_to_drop(standard);
            }
        }
    }
}

#endif
