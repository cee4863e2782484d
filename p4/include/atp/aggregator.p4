/* Aggregator: what happens to a packet at the aggregator that its index names?
 *
 * All jobs share the pool; nothing is reserved (ATP NSDI'21 §3.3). What an aggregator holds is always the sum of just those
 * workers' values that its bitmap names, of one number of one job, and so is what any packet carries: sums of disjoint sets
 * of workers may be added anywhere, in any order, and what overlaps is never added. Whatever is lost, doubled, evicted or
 * forgotten on the way, no sum can be wrong (docs/design/protocol-atp.md has the proof).
 *
 * An aggregator whose bitmap is empty holds nothing, but remembers its last number: late packets of that number, or of an
 * older one of the job, do not claim an aggregator that nobody would free. After `lifetime` nothing is believed any more:
 * what a dead job or a late duplicate left behind makes room. Sums that are thrown away so come again: workers resend.
 */
#ifndef INA_ATP_AGGREGATOR_P4
#define INA_ATP_AGGREGATOR_P4

#include "headers.p4"
#include "metadata.p4"

control Aggregator(inout headers_t hdr, inout metadata_t meta, in standard_metadata_t standard) {
    register<bit<64>>(SLOTS) owners;   // the job's incarnation, and of the sequence the low 32 bits
    register<bit<32>>(SLOTS) bitmaps;  // workers in the sum; 0: none
    register<bit<48>>(SLOTS) stamps;   // when it was claimed, us
    register<bit<KIND_BITS>>(SLOTS) kinds;  // of the packets in the sum

    apply {
        meta.row = (bit<32>)hdr.atp.index & (SLOTS - 1);
        bit<64> owner;
        bit<32> held;
        bit<48> stamp;
        bit<KIND_BITS> kind;
        owners.read(owner, meta.row);
        bitmaps.read(held, meta.row);
        stamps.read(stamp, meta.row);
        kinds.read(kind, meta.row);

        bit<64> own = meta.incarnation ++ hdr.atp.sequence[31:0];
        if (meta.downwards == 1) {  // the result of this number is there: free
            if (owner == own && hdr.atp.msg_type != Type.PENDING) {
                bitmaps.write(meta.row, 0);
            }
        } else {
            bit<48> now = standard.ingress_global_timestamp;
            bit<32> bitmap = hdr.atp.bitmap;
            bit<KIND_BITS> own_kind = KIND;
            bit<32> expected = EXPECTED;  // workers below this switch that the sum is of
            bool alive = now - stamp <= (bit<48>)meta.lifetime;
            bit<32> newer = hdr.atp.sequence[31:0] - owner[31:0];
            meta.fate = Fate.PASSED;
            if (hdr.atp.msg_type != Type.FLOATS && hdr.atp.msg_type != Type.OFFER && meta.aggregate == 1) {
                if (alive && owner == own) {
                    if (held != 0 && kind != own_kind) {
                        meta.drop = Drop.WRONG_SIZE;
                    } else if (held != 0 && held & bitmap == 0) {
                        bitmap = held | bitmap;
                        meta.add = 1;
                        meta.fate = Fate.MERGED;
                        if (hdr.atp.resend == 1) {
                            meta.load = 1;
                            meta.fate = Fate.EVICTED;
                        } else if (bitmap == expected) {
                            meta.load = 1;
                            meta.fate = Fate.COMPLETED;
                        }
                    } else if (held != 0 && bitmap & ~held == 0) {
                        if (hdr.atp.resend == 1) {
                            bitmap = held;
                            meta.load = 1;
                            meta.fate = Fate.EVICTED;
                        } else {
                            meta.drop = Drop.REPEATED;
                        }
                    }
                } else if (alive && held != 0) {
                    hdr.atp.collision = 1;
                    meta.fate = Fate.COLLIDED;
                } else if (hdr.atp.resend == 0 && bitmap != expected
                           && !(alive && owner[63:32] == own[63:32] && newer[31:31] == 1)) {
                    meta.store = 1;
                    meta.fate = Fate.CLAIMED;
                    if (held != 0) {
                        meta.fate = Fate.TAKEN;
                    }
                    owners.write(meta.row, own);
                    stamps.write(meta.row, now);
                    kinds.write(meta.row, own_kind);
                }
                if (meta.store == 1 || meta.add == 1 || meta.load == 1) {
                    if (meta.fate == Fate.EVICTED) {
                        bitmaps.write(meta.row, 0);
                    } else {
                        bitmaps.write(meta.row, bitmap);
                    }
                    hdr.atp.bitmap = bitmap;
                }
            }
        }
    }
}

#endif
