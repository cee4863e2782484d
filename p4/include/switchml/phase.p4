/* Phase: which round of its row does this packet belong to, and who has been seen in it?
 *
 * SwitchML (NSDI'21 §3.5) keeps a bitmap per set and clears a worker's bit when that worker uses the other set. One
 * version bit does not survive a duplicate that is late by two phases: its bit is clear again, and it would be added
 * twice. So a row also stores the tsi of its phase, and a packet is accepted
 *   - if it is of that phase, or
 *   - if the row is free (never used by this incarnation of the job, or complete) and the packet is newer.
 * A worker sends the next packet of a slot only when it has the result of this one, so a newer packet proves that no
 * worker needs the row that it takes: nothing has to be cleared (docs/design/protocol.md has the proof).
 * All packets of a phase are of one kind, type and size, as the first one says: with or without payload, sums or maxima.
 *
 * In a tree of switches a row of the root, and of a switch alone, is *collecting* while `missing` > 0, then *final*. Below
 * the root the parent is waited for like one more child that answers last: `missing` > 1 collecting, 1 *sent up*, 0 *final*.
 * What comes from above is taken only while the row is sent up. Then the sums are safe here and the children know that by a
 * pending frame; one child, that with the lowest bit, has the sums sent up again: one copy does for all.
 * Published clients number packets differently: for them (strict = 0) the bitmaps of the paper decide.
 */
#ifndef INA_PHASE_P4
#define INA_PHASE_P4

#include "headers.p4"
#include "metadata.p4"

#ifndef KIND  // of a packet: all of a phase have the same
#define KIND_BITS 8
#define KIND hdr.switchml.msg_type ++ 1w0 ++ hdr.switchml.size
#endif
#ifndef EXPECTED  // workers below this switch that the phase waits for
#define EXPECTED meta.full
#define COUNT_DOWN
#endif

control Phase(inout headers_t hdr, inout metadata_t meta) {
    register<bit<32>>(ROWS) incarnations;
    register<bit<32>>(ROWS) tsis;
    register<bit<32>>(ROWS) bitmaps;
    register<bit<8>>(ROWS) missing;  // children, and the parent, that this phase still waits for
    register<bit<KIND_BITS>>(ROWS) kinds;
#ifdef OFFERS  // of a program that has phases of another kind (quorum/offers.p4)
    Offers() offers;
#endif

    apply {
        bit<32> incarnation;
        bit<32> tsi;
        bit<32> seen;
        bit<8> left;
        bit<KIND_BITS> kind;
        bit<KIND_BITS> own = KIND;
        incarnations.read(incarnation, meta.row);
        tsis.read(tsi, meta.row);
        bitmaps.read(seen, meta.row);
        missing.read(left, meta.row);
        kinds.read(kind, meta.row);

        bool used = incarnation == meta.incarnation && seen != 0;
        bool fresh = !used;
        if (meta.strict == 1 && used && hdr.switchml.tsi != tsi) {
            if (left == 0 && (int<32>)(hdr.switchml.tsi - tsi) > 0) {
                fresh = true;
            } else @unlikely {
                meta.drop = Drop.STALE;
            }
        }
        if (meta.drop == Drop.NONE && !fresh && kind != own && hdr.switchml.msg_type != SWITCHML_PENDING) @unlikely {
            meta.drop = Drop.WRONG_SIZE;
        }

        if (meta.drop == Drop.NONE && meta.worker == 0) @unlikely {  // from above
            if (fresh || left > 1) {
                meta.drop = Drop.STALE;
            } else if (left == 0) {
                meta.drop = Drop.REPEATED;
            } else if (hdr.switchml.msg_type != SWITCHML_PENDING) {
                missing.write(meta.row, 0);
                meta.first = 1;
                meta.complete = 1;
                meta.to = To.CHILDREN;
            } else {
                meta.repeated = 1;
                meta.to = To.CHILDREN;
            }
        } else if (meta.drop == Drop.NONE) {
            if (fresh) {
                seen = 0;
                left = meta.last + 1 + (bit<8>)meta.parent;
                meta.first = 1;
            }
#ifdef OFFERS
            if (hdr.offer.isValid()) @unlikely {
                offers.apply(hdr, meta, seen, left);
                incarnations.write(meta.row, meta.incarnation);
                tsis.write(meta.row, hdr.switchml.tsi);
                bitmaps.write(meta.row, seen);
                missing.write(meta.row, left);
                kinds.write(meta.row, own);
            } else
#endif
            if (seen & meta.worker != 0) @unlikely {
                meta.repeated = 1;
                if (left == 1 && meta.parent == 1 && meta.worker & EXPECTED & -EXPECTED != 0) {
                    meta.complete = 1;
                    meta.to = To.PARENT;
                } else if (left == 0) {
                    meta.complete = 1;
                    meta.to = To.SENDER;
                } else if (meta.strict == 1) {
                    meta.missing = EXPECTED & ~seen;
                    meta.to = To.SENDER;
                } else {
                    meta.drop = Drop.REPEATED;
                }
            } else {
                seen = seen | meta.worker;
                left = left - 1;
                COUNT_DOWN
                incarnations.write(meta.row, meta.incarnation);
                tsis.write(meta.row, hdr.switchml.tsi);
                bitmaps.write(meta.row, seen);
                missing.write(meta.row, left);
                kinds.write(meta.row, own);
                if (left == 0) {
                    meta.complete = 1;
                    meta.to = To.CHILDREN;
                } else if (left == 1 && meta.parent == 1) {
                    meta.complete = 1;
                    meta.to = To.PARENT;
                }
            }
            if (meta.strict == 0) @unlikely {
                bit<32> other;
                bitmaps.read(other, meta.row ^ 1);
                bitmaps.write(meta.row ^ 1, other & ~meta.worker);
            }
        }
    }
}

#endif
