/* Aggregator: what happens to a packet at the aggregator that its index names? The rules are those of
 * ../../include/atp_aggregator.p4; here is how a pipeline that reaches each register once in a pass keeps them.
 *
 *   last_high, last_low   the number that took the aggregator last, told by its own second pass
 *   claims (twice)        when it was claimed, and whether it is held; one gives the time, the other the mark
 *   owners                whose sum it holds
 *   kinds                 type of the packets in the sum; 0: they have no values
 *   seen                  workers of that number that were here; what overlaps in part takes its new bits back
 *   bitmaps               workers in the sum
 *
 * v1model looks at owner, bitmap and time at once before it writes any. Here `claims` decides alone who takes an aggregator,
 * with what `last` says of late packets; then the owner is known before the bitmap, and what is seen before what is in the sum.
 * What comes between two passes of a packet finds an aggregator that is held, and at worst goes to the server as it is
 * (docs/tna-programs.md).
 */
#ifndef INA_TOFINO_ATP_AGGREGATOR_P4
#define INA_TOFINO_ATP_AGGREGATOR_P4

#include "atp_headers.p4"

struct claim_t {
    bit<32> stamp;  // 2^16 ns, about 65 us
    bit<32> held;
}

struct owner_t {
    bit<32> high;
    bit<32> low;
}

control Aggregator(inout packet_t hdr, inout state_t meta, in ingress_intrinsic_metadata_from_parser_t from_parser) {
    bit<32> now = 0;
    bit<32> horizon = 0;  // what was claimed before is not believed
    bit<8>  kind = 0;

    Register<bit<32>, bit<32>>(SLOTS, 0) last_high;
    RegisterAction<bit<32>, bit<32>, bit<32>>(last_high) look_at_last_high = {
        void apply(inout bit<32> high, out bit<32> before) {
            before = high;
        }
    };
    RegisterAction<bit<32>, bit<32>, bit<32>>(last_high) remember_high = {
        void apply(inout bit<32> high, out bit<32> before) {
            before = high;
            high = meta.high;
        }
    };
    Register<bit<32>, bit<32>>(SLOTS, 0) last_low;
    RegisterAction<bit<32>, bit<32>, bit<32>>(last_low) look_at_last_low = {
        void apply(inout bit<32> low, out bit<32> before) {
            before = low;
        }
    };
    RegisterAction<bit<32>, bit<32>, bit<32>>(last_low) remember_low = {
        void apply(inout bit<32> low, out bit<32> before) {
            before = low;
            low = meta.low;
        }
    };

// The same pair of words twice: one gives the time, the other the mark.
#define CLAIMS(name, word) \
    Register<claim_t, bit<32>>(SLOTS, {0, 0}) name; \
    RegisterAction<claim_t, bit<32>, bit<32>>(name) look_at_##name = { \
        void apply(inout claim_t claim, out bit<32> before) { \
            before = claim.word; \
        } \
    }; \
    RegisterAction<claim_t, bit<32>, bit<32>>(name) take_old_##name = { \
        void apply(inout claim_t claim, out bit<32> before) { \
            before = claim.word; \
            if ((int<32>)(horizon - claim.stamp) > 0) { \
                claim.stamp = now; \
                claim.held = 1; \
            } \
        } \
    }; \
    RegisterAction<claim_t, bit<32>, bit<32>>(name) take_##name = { \
        void apply(inout claim_t claim, out bit<32> before) { \
            before = claim.word; \
            if ((int<32>)(horizon - claim.stamp) > 0 || claim.held == 0) { \
                claim.stamp = now; \
                claim.held = 1; \
            } \
        } \
    }; \
    RegisterAction<claim_t, bit<32>, bit<32>>(name) free_##name = { \
        void apply(inout claim_t claim, out bit<32> before) { \
            before = 0; \
            claim.held = 0; \
        } \
    };
    CLAIMS(stamps, stamp)
    CLAIMS(holds, held)

    Register<owner_t, bit<32>>(SLOTS, {0, 0}) owners;
    RegisterAction<owner_t, bit<32>, bit<8>>(owners) own = {
        void apply(inout owner_t owner, out bit<8> same) {
            owner.high = meta.high;
            owner.low = meta.low;
            same = 1;
        }
    };
    RegisterAction<owner_t, bit<32>, bit<8>>(owners) compare = {
        void apply(inout owner_t owner, out bit<8> same) {
            same = 0;
            if (owner.high == meta.high && owner.low == meta.low) {
                same = 1;
            }
        }
    };

    Register<bit<8>, bit<32>>(SLOTS, 0) kinds;
    RegisterAction<bit<8>, bit<32>, bit<8>>(kinds) set_kind = {
        void apply(inout bit<8> of_sum, out bit<8> before) {
            before = of_sum;
            of_sum = kind;
        }
    };
    RegisterAction<bit<8>, bit<32>, bit<8>>(kinds) look_at_kind = {
        void apply(inout bit<8> of_sum, out bit<8> before) {
            before = of_sum;
        }
    };

    Register<bit<32>, bit<32>>(SLOTS, 0) seen;
    RegisterAction<bit<32>, bit<32>, bit<32>>(seen) begin_seen = {
        void apply(inout bit<32> workers, out bit<32> before) {
            before = workers;
            workers = hdr.atp.bitmap;
        }
    };
    RegisterAction<bit<32>, bit<32>, bit<32>>(seen) join_seen = {
        void apply(inout bit<32> workers, out bit<32> before) {
            before = workers;
            workers = workers | hdr.atp.bitmap;
        }
    };
    RegisterAction<bit<32>, bit<32>, bit<32>>(seen) take_back = {
        void apply(inout bit<32> workers, out bit<32> before) {
            before = workers;
            workers = workers & ~meta.surplus;
        }
    };

    Register<bit<32>, bit<32>>(SLOTS, 0) bitmaps;
    RegisterAction<bit<32>, bit<32>, bit<32>>(bitmaps) begin_sum = {
        void apply(inout bit<32> workers, out bit<32> before) {
            before = workers;
            workers = hdr.atp.bitmap;
        }
    };
    RegisterAction<bit<32>, bit<32>, bit<32>>(bitmaps) join_sum = {  // of none: they have left
        void apply(inout bit<32> workers, out bit<32> before) {
            before = workers;
            if (workers != 0) {
                workers = workers | hdr.atp.bitmap;
            }
        }
    };
    RegisterAction<bit<32>, bit<32>, bit<32>>(bitmaps) evict = {
        void apply(inout bit<32> workers, out bit<32> before) {
            before = workers;
            workers = 0;
        }
    };
    RegisterAction<bit<32>, bit<32>, bit<32>>(bitmaps) look_at_sum = {
        void apply(inout bit<32> workers, out bit<32> before) {
            before = workers;
        }
    };

    apply {
        meta.high = hdr.atp.incarnation ++ hdr.atp.job ++ hdr.atp.sequence[39:32];
        meta.low = hdr.atp.sequence[31:0];
        if (meta.pass == Pass.ARRIVE) {
            meta.row = (bit<32>)hdr.atp.index & (SLOTS - 1);
        }
        bool sums = hdr.atp.msg_type != Type.FLOATS && meta.aggregate == 1;
        if (meta.downwards == 1 || meta.pass != Pass.ARRIVE || sums) {
            now = (bit<32>)(from_parser.global_tstamp >> 16);
            horizon = now - (meta.lifetime >> 6);
            if (hdr.lanes.isValid()) {
                kind = (bit<8>)(bit<4>)hdr.atp.msg_type;
            }

            // the number before
            bit<32> high;
            bit<32> low;
            if (meta.pass != Pass.ARRIVE && meta.claimed == 1) {
                high = remember_high.execute(meta.row);
                low = remember_low.execute(meta.row);
            } else {
                high = look_at_last_high.execute(meta.row);
                low = look_at_last_low.execute(meta.row);
            }
            bool last = high == meta.high && low == meta.low;
            bit<8> borrow = 0;
            if (meta.low < low) {
                borrow = 1;
            }
            bit<8> ahead = meta.high[7:0] - high[7:0] - borrow;  // of a sequence's 40 bits the highest
            bool late = high[31:8] == meta.high[31:8] && (last || ahead[7:7] == 1);

            // is the aggregator taken?
            bit<32> stamp;
            bit<32> held;
            bool wants = meta.pass == Pass.ARRIVE && meta.downwards == 0 && hdr.atp.resend == 0
                         && hdr.atp.bitmap != meta.full;
            if (last && (meta.evicted == 1 || (meta.downwards == 1 && hdr.atp.msg_type != Type.PENDING))) {
                stamp = free_stamps.execute(meta.row);
                held = free_holds.execute(meta.row);
            } else if (wants && late) {
                stamp = take_old_stamps.execute(meta.row);
                held = take_old_holds.execute(meta.row);
            } else if (wants) {
                stamp = take_stamps.execute(meta.row);
                held = take_holds.execute(meta.row);
            } else {
                stamp = look_at_stamps.execute(meta.row);
                held = look_at_holds.execute(meta.row);
            }

            if (meta.pass == Pass.ARRIVE && meta.downwards == 0) {
                bool alive = (int<32>)(horizon - stamp) <= 0;
                bool claims = wants && (!alive || (held == 0 && !late));
                bit<8> same;
                bit<8> kind_before;
                bit<32> before;
                if (claims) {
                    same = own.execute(meta.row);
                    kind_before = set_kind.execute(meta.row);
                    before = begin_seen.execute(meta.row);
                    before = begin_sum.execute(meta.row);
                    meta.store = 1;
                    meta.claimed = 1;
                    meta.fate = Fate.CLAIMED;
                    if (held != 0) {
                        meta.fate = Fate.TAKEN;
                    }
                } else {
                    same = compare.execute(meta.row);
                    kind_before = look_at_kind.execute(meta.row);
                    if (alive && held != 0 && same == 0) {
                        hdr.atp.collision = 1;
                        meta.fate = Fate.COLLIDED;
                    } else if (alive && held != 0) {
                        bit<32> was_in = 0;
                        if (kind_before == kind) {
                            was_in = join_seen.execute(meta.row);
                        }
                        bool apart = was_in & hdr.atp.bitmap == 0;
                        bool within = hdr.atp.bitmap & ~was_in == 0;
                        if (kind_before != kind) {
                            before = look_at_sum.execute(meta.row);
                            if (before != 0) {
                                meta.drop = Drop.WRONG_SIZE;
                            }
                        } else if ((apart || within) && hdr.atp.resend == 1) {
                            before = evict.execute(meta.row);
                            if (before != 0) {
                                meta.add = (bit<1>)apart;
                                meta.load = 1;
                                meta.evicted = 1;
                                meta.fate = Fate.EVICTED;
                                hdr.atp.bitmap = before | hdr.atp.bitmap;
                            }
                        } else if (apart) {
                            before = join_sum.execute(meta.row);
                            if (before != 0) {
                                meta.add = 1;
                                meta.fate = Fate.MERGED;
                                hdr.atp.bitmap = before | hdr.atp.bitmap;
                                if (hdr.atp.bitmap == meta.full) {
                                    meta.load = 1;
                                    meta.fate = Fate.COMPLETED;
                                }
                            }
                        } else if (within) {
                            before = look_at_sum.execute(meta.row);
                            if (before != 0) {
                                meta.drop = Drop.REPEATED;
                            }
                        } else {
                            meta.surplus = hdr.atp.bitmap & ~was_in;
                        }
                    }
                }
            } else if (meta.surplus != 0) {
                bit<8> same = compare.execute(meta.row);
                if (same == 1) {
                    take_back.execute(meta.row);
                }
            }
        }
    }
}

#endif
