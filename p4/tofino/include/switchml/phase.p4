/* Phase: which round of its row does this packet belong to, and who has been seen in it? The rules are those of
 * ../../../include/switchml/phase.p4; here is how a pipeline that reaches each register once in a pass keeps them.
 *
 *   lives          two words: the incarnation, which is swapped: if it is another one than the job's, nothing here is of this
 *                  job, and a phase begins; and the tsi of the newest phase that has ended here: what is older is late
 *   phases (twice) two words: tsi of the phase, and the kind of its packets with the mark ENDED
 *   missing        two words, one for each set of a slot: workers that are not in; a worker takes its bit away
 *   results        one word: the result from above is here; of published clients, how many are missing
 *
 * v1model's row is taken by a newer packet if it is complete. Whether it is, `missing` knows, which comes after `phases`: a
 * packet cannot go back. So a phase is marked as ended by the packet that takes its result out, in its last pass: a worker
 * that sends something newer has that result, so the mark is there before (docs/design/tna-programs.md).
 *
 * What a stateful ALU compares it also says; so that each table only has bits to look at, and the next is a stage later. A
 * stateful ALU gives one word: where two are needed, the register is there twice, with the same in both.
 */
#ifndef INA_TOFINO_PHASE_P4
#define INA_TOFINO_PHASE_P4

#include "headers.p4"

#ifndef MORE_KINDS  // of packets, of a program that includes this file
#define MORE_KINDS
#endif

struct life_t {
    bit<32> finished;
    bit<32> incarnation;
}

struct phase_t {
    bit<32> tsi;
    bit<32> kind;
}

struct missing_t {
    bit<32> set0;
    bit<32> set1;
}

control Phase(inout packet_t hdr, inout state_t meta) {
    bit<32> others = 0;     // all workers that the phase waits for, but the sender
    bit<32> published = 0;  // a published client's packet of one set takes its bit back in the other
    bit<8>  expected = 0;
    bit<32> below = 0;      // in the places of bits below the sender's lowest, and of its others
    bit<32> lower = 0;      // 0: the sender is the child with the lowest bit
    bit<8>  age = 0;
    bit<8>  same = 0;       // it is of the row's phase
    bit<32> was = 0;        // kind of that phase
    bit<1>  begins = 0;
    bit<32> before = 0;     // workers that were missing
    bit<32> after = 0;
    bit<32> own = 0;        // 0: the sender was not
    bit<32> none = 0;       // 0: all were
    bit<8>  result = 0;

#ifdef OFFERS  // of a program that has phases of another kind (../quorum/offers.p4)
    Offers() offers;
#define IS_COUNTED hdr.bridge.pass == Pass.ARRIVE || hdr.bridge.pass == Pass.OFFER
#else
#define IS_COUNTED hdr.bridge.pass == Pass.ARRIVE
#endif
#ifdef RECEIVERS  // of a program whose phases are of some workers (../receivers/members.p4)
    Sets() sets;
#endif

    action compare_() {
        lower = below & others;
    }
    table compare {  // in an action of its own, which the compiler does not merge with that before
        actions = { compare_; }
        const default_action = compare_();
        size = 1;
    }

    Register<life_t, place_t>(ROWS, {0, 0}) lives;
#define AGE this.predicate(life.incarnation != meta.incarnation, (int<32>)(hdr.switchml.tsi - life.finished) < 0)
    RegisterAction<life_t, place_t, bit<8>>(lives) enter_ = {
        void apply(inout life_t life, out bit<8> said) {
            said = AGE;
            if (life.incarnation != meta.incarnation) {
                life.finished = hdr.switchml.tsi - 1;
            }
            life.incarnation = meta.incarnation;
        }
    };
    RegisterAction<life_t, place_t, bit<8>>(lives) look_at_life_ = {
        void apply(inout life_t life, out bit<8> said) {
            said = AGE;
        }
    };
    RegisterAction<life_t, place_t, bit<8>>(lives) finish_ = {
        void apply(inout life_t life) {
            if ((int<32>)(hdr.switchml.tsi - life.finished) > 0) {
                life.finished = hdr.switchml.tsi;
            }
        }
    };
    action enter() {
        age = enter_.execute(hdr.bridge.row);
    }
    action look_at_life() {
        age = look_at_life_.execute(hdr.bridge.row);
    }
    action finish() {
        finish_.execute(hdr.bridge.row);
    }
    table ages {
        key = { hdr.bridge.pass: ternary; meta.above: ternary; hdr.bridge.complete: ternary; hdr.bridge.to: ternary; }
        actions = { enter; look_at_life; finish; NoAction; }
        const entries = {
            (Pass.ARRIVE, 0, _, _):         enter();
            (Pass.ARRIVE, _, _, _):         look_at_life();
            (_,           _, _, To.PARENT): NoAction();
            (_,           _, 1, _):         finish();
        }
        const default_action = NoAction();
        size = 4;
    }

// The same pair of words twice: one says whether the packet is of the phase, the other of what kind that is.
#define PHASES(name, type, say_same, say) \
    Register<phase_t, place_t>(ROWS, {0, 0}) name; \
    RegisterAction<phase_t, place_t, type>(name) begin_##name = { \
        void apply(inout phase_t phase, out type said) { \
            say \
            phase.tsi = hdr.switchml.tsi; \
            phase.kind = meta.kind; \
        } \
    }; \
    RegisterAction<phase_t, place_t, type>(name) join_##name = { \
        void apply(inout phase_t phase, out type said) { \
            say \
            if (phase.tsi == hdr.switchml.tsi) { \
                say_same \
            } else if (phase.kind >= ENDED) { \
                phase.tsi = hdr.switchml.tsi; \
                phase.kind = meta.kind; \
            } \
        } \
    }; \
    RegisterAction<phase_t, place_t, type>(name) look_at_##name = { \
        void apply(inout phase_t phase, out type said) { \
            say \
            if (phase.tsi == hdr.switchml.tsi) { \
                say_same \
            } \
        } \
    }; \
    RegisterAction<phase_t, place_t, type>(name) end_##name = { \
        void apply(inout phase_t phase) { \
            if (phase.tsi == hdr.switchml.tsi) { \
                phase.kind = phase.kind | ENDED; \
                phase.tsi = phase.tsi - meta.kind; \
            } \
        } \
    };
    PHASES(tsis, bit<8>, said = 1;, said = 0;)
    PHASES(kinds, bit<32>, , said = phase.kind;)

    Register<missing_t, place_t>(SLOTS, {0, 0}) missing;
#define MISSING(own, other) \
    RegisterAction<missing_t, place_t, bit<32>>(missing) begin_##own##_ = { \
        void apply(inout missing_t workers, out bit<32> were) { \
            were = workers.own; \
            workers.own = others; \
            workers.other = workers.other | published; \
        } \
    }; \
    RegisterAction<missing_t, place_t, bit<32>>(missing) join_##own##_ = { \
        void apply(inout missing_t workers, out bit<32> were) { \
            were = workers.own; \
            workers.own = workers.own & others; \
            workers.other = workers.other | published; \
        } \
    }; \
    action begin_##own() { \
        before = begin_##own##_.execute(meta.slot); \
        begins = 1; \
    } \
    action join_##own() { \
        before = join_##own##_.execute(meta.slot); \
    }
    MISSING(set0, set1)
    MISSING(set1, set0)

    Register<bit<8>, place_t>(ROWS, 0) results;
    RegisterAction<bit<8>, place_t, bit<8>>(results) begin_result_ = {
        void apply(inout bit<8> there, out bit<8> now) {
            there = expected;
            now = there;
        }
    };
    RegisterAction<bit<8>, place_t, bit<8>>(results) look_at_result_ = {
        void apply(inout bit<8> there, out bit<8> now) {
            now = there;
        }
    };
    RegisterAction<bit<8>, place_t, bit<8>>(results) take_result_ = {
        void apply(inout bit<8> there, out bit<8> was) {
            was = there;
            there = 1;
        }
    };
    RegisterAction<bit<8>, place_t, bit<8>>(results) count_ = {
        void apply(inout bit<8> there, out bit<8> now) {
            there = there - 1;
            now = there;
        }
    };

    action drop(Drop reason) {
        meta.drop = reason;
    }

// Two tables, because an action reaches one register.
#define PHASE_TABLE(name, said) \
    action begin_to_##name() { \
        said = begin_##name.execute(hdr.bridge.row); \
    } \
    action join_to_##name() { \
        said = join_##name.execute(hdr.bridge.row); \
    } \
    action look_to_##name() { \
        said = look_at_##name.execute(hdr.bridge.row); \
    } \
    action end_to_##name() { \
        end_##name.execute(hdr.bridge.row); \
    } \
    table phase_##name { \
        key = { \
            hdr.bridge.pass: ternary; \
            age: ternary; \
            meta.above: ternary; \
            meta.strict: ternary; \
            hdr.bridge.complete: ternary; \
            hdr.bridge.to: ternary; \
            hdr.bridge.refused: ternary; \
        } \
        actions = { begin_to_##name; join_to_##name; look_to_##name; end_to_##name; NoAction; } \
        const entries = { \
            (Pass.ARRIVE, ALIEN,  0, _, _, _,         _): begin_to_##name(); \
            (Pass.ARRIVE, TIMELY, 0, 1, _, _,         _): join_to_##name(); \
            (Pass.ARRIVE, _,      _, _, _, _,         _): look_to_##name(); \
            (_,           _,      _, _, _, _,         1): end_to_##name(); \
            (_,           _,      _, _, _, To.PARENT, _): NoAction(); \
            (_,           _,      _, _, 1, _,         _): end_to_##name(); \
        } \
        const default_action = NoAction(); \
        size = 7; \
    }
    PHASE_TABLE(tsis, same)
    PHASE_TABLE(kinds, was)

    table who {
        key = {
            age: ternary;
            meta.above: ternary;
            meta.strict: ternary;
            same: ternary;
            was: ternary;
            hdr.switchml.msg_type: ternary;
            hdr.switchml.size: ternary;
            hdr.switchml.set: ternary;
        }
        actions = { begin_set0; begin_set1; join_set0; join_set1; drop; }
#define OF_KIND(type, size) KIND(type, size) &&& 0xff, type, size
        const entries = {
            (ALIEN, 0, _, _, _, _, _, 0): begin_set0();
            (ALIEN, 0, _, _, _, _, _, 1): begin_set1();
            (ALIEN, _, _, _, _, _, _, _): drop(Drop.STALE);
            (_, _, 0, _, _, _, _, 0): join_set0();
            (_, _, 0, _, _, _, _, 1): join_set1();
            (TIMELY, 0, _, 0, ENDED &&& ENDED, _, _, 0): begin_set0();  // a phase has ended, and the next begins
            (TIMELY, 0, _, 0, ENDED &&& ENDED, _, _, 1): begin_set1();
            (_, _, _, 0, _, _, _, _): drop(Drop.STALE);
            (_, _, _, 1, OF_KIND(SWITCHML_DATA, SIZE_CODE), 0): join_set0();
            (_, _, _, 1, OF_KIND(SWITCHML_DATA, SIZE_CODE), 1): join_set1();
            (_, _, _, 1, OF_KIND(SWITCHML_DATA, SIZE_NONE), 0): join_set0();
            (_, _, _, 1, OF_KIND(SWITCHML_DATA, SIZE_NONE), 1): join_set1();
            (_, _, _, 1, OF_KIND(SWITCHML_MAXIMUM, SIZE_CODE), 0): join_set0();
            (_, _, _, 1, OF_KIND(SWITCHML_MAXIMUM, SIZE_CODE), 1): join_set1();
            (_, _, _, 1, OF_KIND(SWITCHML_MAXIMUM, SIZE_NONE), 0): join_set0();
            (_, _, _, 1, OF_KIND(SWITCHML_MAXIMUM, SIZE_NONE), 1): join_set1();
            MORE_KINDS
            (_, _, _, 1, _, SWITCHML_PENDING, _, 0): join_set0();
            (_, _, _, 1, _, SWITCHML_PENDING, _, 1): join_set1();
        }
        const default_action = drop(Drop.WRONG_SIZE);
        size = 26;
    }

    action begin_result() {
        result = begin_result_.execute(hdr.bridge.row);
        begins = 1;
    }
    action look_at_result() {
        result = look_at_result_.execute(hdr.bridge.row);
    }
    action take_result() {
        result = take_result_.execute(hdr.bridge.row);
    }
    action count() {
        result = count_.execute(hdr.bridge.row);
    }
    table answered {
        key = {
            begins: ternary;
            meta.above: ternary;
            meta.strict: ternary;
            hdr.pending.isValid(): ternary;
            before: ternary;
            own: ternary;
            none: ternary;
        }
        actions = { begin_result; look_at_result; take_result; count; NoAction; }
        const entries = {
            (1, _, _, _,     _, _, _): begin_result();
            (_, _, 0, _,     _, _, 0): begin_result();  // all published clients have gone on to the other set
            (_, _, 0, _,     _, 0, _): look_at_result();
            (_, _, 0, _,     _, _, _): count();
            (_, 1, _, false, 0, _, _): take_result();
            (_, _, _, _,     _, _, _): look_at_result();
        }
        const default_action = NoAction();  // one that reaches a register cannot be
        size = 6;
    }

    action begin_sum(To to, bit<1> complete) {
        hdr.bridge.op = Op.STORE;
        hdr.bridge.first = 1;
        hdr.bridge.to = to;
        hdr.bridge.complete = complete;
        hdr.bridge.absent = others;
    }
    action join_sum(To to, bit<1> complete) {
        hdr.bridge.op = meta.join;
        hdr.bridge.to = to;
        hdr.bridge.complete = complete;
        hdr.bridge.absent = OWN_WORKERS;
    }
    action replace_sum() {  // by the result from above
        hdr.bridge.op = Op.STORE;
        hdr.bridge.first = 1;
        hdr.bridge.to = To.CHILDREN;
        hdr.bridge.complete = 1;
    }
    action give(To to) {
        hdr.bridge.op = Op.LOOK;
        hdr.bridge.to = to;
        hdr.bridge.complete = 1;
    }
    action say_pending() {
        hdr.bridge.missing = before;
        hdr.bridge.to = To.SENDER;
    }
    action pass_on() {
        hdr.bridge.to = To.CHILDREN;
    }
    table follows {
        key = {
            begins: ternary;
            meta.above: ternary;
            meta.strict: ternary;
            meta.parent: ternary;
            hdr.pending.isValid(): ternary;
            result: ternary;
            before: ternary;
            own: ternary;
            after: ternary;
            others: ternary;
            lower: ternary;
        }
        actions = { begin_sum; join_sum; replace_sum; give; say_pending; pass_on; drop; }
        const entries = {
            // from above
            (_, 1, _, _, _,    1, 0, _, _, _, _): drop(Drop.REPEATED);
            (_, 1, _, _, true, _, 0, _, _, _, _): pass_on();
            (_, 1, _, _, _,    _, 0, _, _, _, _): replace_sum();
            (_, 1, _, _, _,    _, _, _, _, _, _): drop(Drop.STALE);
            // the first of a phase
            (1, _, _, 0, _,    _, _, _, _, 0, _): begin_sum(To.CHILDREN, 1);
            (1, _, _, 1, _,    _, _, _, _, 0, _): begin_sum(To.PARENT, 1);
            (1, _, _, _, _,    _, _, _, _, _, _): begin_sum(To.NOBODY, 0);
            // of published clients, which count
            (_, _, 0, _, _,    0, _, 0, _, _, _): give(To.SENDER);
            (_, _, 0, _, _,    _, _, 0, _, _, _): drop(Drop.REPEATED);
            (_, _, 0, _, _,    0, _, _, _, _, _): join_sum(To.CHILDREN, 1);
            (_, _, 0, _, _,    _, _, _, _, _, _): join_sum(To.NOBODY, 0);
            // once more
            (_, _, _, 0, _,    _, 0, 0, _, _, _): give(To.SENDER);
            (_, _, _, _, _,    1, 0, 0, _, _, _): give(To.SENDER);
            (_, _, _, _, _,    _, 0, 0, _, _, 0): give(To.PARENT);
            (_, _, _, _, _,    _, 0, 0, _, _, _): say_pending();
            (_, _, _, _, _,    _, _, 0, _, _, _): say_pending();
            // one more
            (_, _, _, 0, _,    _, _, _, 0, _, _): join_sum(To.CHILDREN, 1);
            (_, _, _, 1, _,    _, _, _, 0, _, _): join_sum(To.PARENT, 1);
        }
        const default_action = join_sum(To.NOBODY, 0);
        size = 20;
    }

    apply {
        if (hdr.bridge.pass == Pass.ARRIVE) {
            others = ~meta.worker & EXPECTED;
            below = OWN_WORKERS - 1;
            if (meta.strict == 0) {
                published = meta.worker;
                expected = meta.last;
            }
            compare.apply();
#ifdef RECEIVERS
            if (meta.all_below == 1) {
                expected = 1;  // no other result will come
            }
#endif
#ifdef OFFERS
        } else if (hdr.bridge.pass == Pass.OFFER) {  // it only looks at who is missing
            others = 0xffffffff;
            age = 1;  // timely
            meta.slot = hdr.bridge.row >> 1;
#endif
        } else if (hdr.bridge.refused == 1) {
            meta.kind = 1;  // back by one: what is sent once more begins the phase anew
        } else {
            meta.kind = 0;
        }
        ages.apply();
        phase_tsis.apply();
        phase_kinds.apply();
        if (IS_COUNTED) {
#ifdef RECEIVERS
            if (hdr.receivers.isValid()) {
                sets.apply(hdr, meta, age, same, was);
            }
#endif
            who.apply();
            if (meta.drop == Drop.NONE) {
                after = before & others;
                own = before & meta.worker;
                none = before ^ meta.full;
#ifdef OFFERS
                if (hdr.offer.isValid()) {
                    offers.apply(hdr, meta, begins, before, own);
                } else
#endif
                {
                    answered.apply();
                    follows.apply();
                }
            }
        }
    }
}

#endif
