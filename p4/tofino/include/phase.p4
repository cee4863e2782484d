/* Phase: which round of its row does this packet belong to, and who has been seen in it? The rules are those of
 * ../../include/phase.p4; here is how a pipeline that reaches each register once in a pass keeps them.
 *
 *   incarnations   one word: swapped; another one than the job's: nothing here is of this job, and a phase begins
 *   finished       one word: tsi of the newest phase that has ended here; what is older is stale
 *   phases         two words: tsi of the phase, and the kind of its packets with the mark ENDED
 *   missing        two words, one for each set of a slot: workers that are not in; a worker takes its bit away
 *   results        one word: the result from above is here; of published clients, how many are missing
 *
 * v1model's row is taken by a newer packet if it is complete. Whether it is, `missing` knows, which comes after `phases`: a
 * packet cannot go back. So a phase is marked as ended by the packet that takes its result out, in its last pass: a worker
 * that sends something newer has that result, so the mark is there before (docs/tna-programs.md).
 *
 * A stateful ALU gives one word. Where two are needed, the register is there twice, with the same in both.
 */
#ifndef INA_TOFINO_PHASE_P4
#define INA_TOFINO_PHASE_P4

#include "headers.p4"

const bit<32> ENDED = 0x100;  // beyond all kinds

struct phase_t {
    bit<32> tsi;
    bit<32> kind;
}

struct missing_t {
    bit<32> set0;
    bit<32> set1;
}

control Phase(inout packet_t hdr, inout state_t meta) {
    bit<32> kind = 0;
    bit<32> others = 0;     // all workers but the sender
    bit<32> published = 0;  // a published client's packet of one set takes its bit back in the other
    bit<8>  expected = 0;

    Register<bit<32>, bit<32>>(ROWS, 0) incarnations;
    RegisterAction<bit<32>, bit<32>, bit<32>>(incarnations) enter = {
        void apply(inout bit<32> incarnation, out bit<32> before) {
            before = incarnation;
            incarnation = meta.incarnation;
        }
    };
    RegisterAction<bit<32>, bit<32>, bit<32>>(incarnations) look_at_incarnation = {
        void apply(inout bit<32> incarnation, out bit<32> before) {
            before = incarnation;
        }
    };

    Register<bit<32>, bit<32>>(ROWS, 0) finished;
    RegisterAction<bit<32>, bit<32>, bit<32>>(finished) forget_finished = {
        void apply(inout bit<32> tsi, out bit<32> before) {
            tsi = hdr.switchml.tsi - 1;
            before = tsi;
        }
    };
    RegisterAction<bit<32>, bit<32>, bit<32>>(finished) look_at_finished = {
        void apply(inout bit<32> tsi, out bit<32> before) {
            before = tsi;
        }
    };
    RegisterAction<bit<32>, bit<32>, bit<32>>(finished) finish = {
        void apply(inout bit<32> tsi, out bit<32> before) {
            before = 0;
            if ((int<32>)(hdr.switchml.tsi - tsi) > 0) {
                tsi = hdr.switchml.tsi;
            }
        }
    };

// The same pair of words twice: one gives the tsi, the other the kind.
#define PHASES(name, word) \
    Register<phase_t, bit<32>>(ROWS, {0, 0}) name; \
    RegisterAction<phase_t, bit<32>, bit<32>>(name) begin_##name = { \
        void apply(inout phase_t phase, out bit<32> before) { \
            before = phase.word; \
            phase.tsi = hdr.switchml.tsi; \
            phase.kind = kind; \
        } \
    }; \
    RegisterAction<phase_t, bit<32>, bit<32>>(name) join_##name = { \
        void apply(inout phase_t phase, out bit<32> before) { \
            before = phase.word; \
            if (phase.tsi != hdr.switchml.tsi && phase.kind >= ENDED) { \
                phase.tsi = hdr.switchml.tsi; \
                phase.kind = kind; \
            } \
        } \
    }; \
    RegisterAction<phase_t, bit<32>, bit<32>>(name) look_at_##name = { \
        void apply(inout phase_t phase, out bit<32> before) { \
            before = phase.word; \
        } \
    }; \
    RegisterAction<phase_t, bit<32>, bit<32>>(name) end_##name = { \
        void apply(inout phase_t phase, out bit<32> before) { \
            before = 0; \
            if (phase.tsi == hdr.switchml.tsi) { \
                phase.kind = phase.kind | ENDED; \
            } \
        } \
    };
    PHASES(tsis, tsi)
    PHASES(kinds, kind)

    Register<missing_t, bit<32>>(SLOTS, {0, 0}) missing;
#define MISSING(own, other) \
    RegisterAction<missing_t, bit<32>, bit<32>>(missing) begin_##own = { \
        void apply(inout missing_t workers, out bit<32> before) { \
            before = workers.own; \
            workers.own = others; \
            workers.other = workers.other | published; \
        } \
    }; \
    RegisterAction<missing_t, bit<32>, bit<32>>(missing) join_##own = { \
        void apply(inout missing_t workers, out bit<32> before) { \
            before = workers.own; \
            workers.own = workers.own & others; \
            workers.other = workers.other | published; \
        } \
    };
    MISSING(set0, set1)
    MISSING(set1, set0)

    Register<bit<8>, bit<32>>(ROWS, 0) results;
    RegisterAction<bit<8>, bit<32>, bit<8>>(results) begin_result = {
        void apply(inout bit<8> result, out bit<8> now) {
            result = expected;
            now = result;
        }
    };
    RegisterAction<bit<8>, bit<32>, bit<8>>(results) look_at_result = {
        void apply(inout bit<8> result, out bit<8> now) {
            now = result;
        }
    };
    RegisterAction<bit<8>, bit<32>, bit<8>>(results) take_result = {
        void apply(inout bit<8> result, out bit<8> before) {
            before = result;
            result = 1;
        }
    };
    RegisterAction<bit<8>, bit<32>, bit<8>>(results) count = {
        void apply(inout bit<8> result, out bit<8> now) {
            result = result - 1;
            now = result;
        }
    };

    apply {
        if (meta.pass != Pass.ARRIVE) {
            finish.execute(meta.row);
            end_tsis.execute(meta.row);
            end_kinds.execute(meta.row);
        } else {
            bool from_above = meta.worker == 0;
            bool pending = hdr.switchml.msg_type == SWITCHML_PENDING;
            bit<32> lead = meta.worker & meta.full & -meta.full;
            kind = (bit<32>)(hdr.switchml.msg_type ++ 1w0 ++ hdr.switchml.size);
            others = meta.full & ~meta.worker;
            published = 0;
            if (from_above) {
                others = 0xffffffff;
            } else if (meta.strict == 0) {
                published = meta.worker;
            }

            // of this job?
            bit<32> incarnation;
            if (from_above) {
                incarnation = look_at_incarnation.execute(meta.row);
            } else {
                incarnation = enter.execute(meta.row);
            }
            bool begins = incarnation != meta.incarnation;

            // of which phase?
            bit<32> newest;
            if (begins && !from_above) {
                newest = forget_finished.execute(meta.row);
            } else {
                newest = look_at_finished.execute(meta.row);
            }
            bit<32> tsi;
            bit<32> kind_before;
            bool late = (int<32>)(hdr.switchml.tsi - newest) < 0;
            if (begins && !from_above) {
                tsi = begin_tsis.execute(meta.row);
                kind_before = begin_kinds.execute(meta.row);
            } else if (from_above || late || meta.strict == 0) {
                tsi = look_at_tsis.execute(meta.row);
                kind_before = look_at_kinds.execute(meta.row);
            } else {
                tsi = join_tsis.execute(meta.row);
                kind_before = join_kinds.execute(meta.row);
            }
            bool same = tsi == hdr.switchml.tsi;
            if (begins && from_above) {
                meta.drop = Drop.STALE;
            } else if (!begins && meta.strict == 1) {
                if (same) {
                    if (kind_before & 0xff != kind && !pending) {
                        meta.drop = Drop.WRONG_SIZE;
                    }
                } else if (from_above || late || kind_before < ENDED) {
                    meta.drop = Drop.STALE;
                } else {
                    begins = true;
                }
            }

            // who is in?
            if (meta.drop == Drop.NONE) {
                bit<32> before;
                if (hdr.switchml.set == 0) {
                    if (begins) {
                        before = begin_set0.execute(meta.slot);
                    } else {
                        before = join_set0.execute(meta.slot);
                    }
                } else {
                    if (begins) {
                        before = begin_set1.execute(meta.slot);
                    } else {
                        before = join_set1.execute(meta.slot);
                    }
                }
                if (meta.strict == 0 && before == meta.full) {
                    begins = true;  // all published clients have gone on to the other set
                }
                bit<8> result;
                bool in_already = !begins && before & meta.worker == 0;
                if (begins) {
                    expected = meta.strict == 1 ? 0 : meta.last;
                    result = begin_result.execute(meta.row);
                    before = meta.full;
                    meta.first = 1;
                } else if (from_above && before == 0 && !pending) {
                    result = take_result.execute(meta.row);
                } else if (meta.strict == 0 && !in_already) {
                    result = count.execute(meta.row);
                } else {
                    result = look_at_result.execute(meta.row);
                }
                bool all_in = before & others == 0;
                bool over = before == 0 && (meta.parent == 0 || result == 1);
                if (meta.strict == 0) {
                    all_in = result == 0;
                    over = all_in;
                }

                // and what follows?
                if (from_above) {
                    if (before != 0) {
                        meta.drop = Drop.STALE;
                    } else if (over) {
                        meta.drop = Drop.REPEATED;
                    } else {
                        meta.to = To.CHILDREN;
                        if (!pending) {
                            meta.op = Op.STORE;
                            meta.first = 1;
                            meta.complete = 1;
                        }
                    }
                } else if (in_already) {
                    if (meta.parent == 1 && before == 0 && !over && lead != 0) {
                        meta.op = Op.LOOK;
                        meta.complete = 1;
                        meta.to = To.PARENT;
                    } else if (over) {
                        meta.op = Op.LOOK;
                        meta.complete = 1;
                        meta.to = To.SENDER;
                    } else if (meta.strict == 1) {
                        meta.missing = before;
                        meta.to = To.SENDER;
                    } else {
                        meta.drop = Drop.REPEATED;
                    }
                } else {
                    if (begins) {
                        meta.op = Op.STORE;
                    } else if (hdr.switchml.msg_type == SWITCHML_MAXIMUM) {
                        meta.op = Op.MAXIMUM;
                    } else {
                        meta.op = Op.ADD;
                    }
                    if (all_in) {
                        meta.complete = 1;
                        meta.to = meta.parent == 1 ? To.PARENT : To.CHILDREN;
                    }
                }
            }
        }
    }
}

#endif
