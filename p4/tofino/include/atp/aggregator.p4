/* Aggregator: what happens to a packet at the aggregator that its index names? The rules are those of
 * ../../../include/atp/aggregator.p4; here is how a pipeline that reaches each register once in a pass keeps them.
 *
 *   last_high, last_low (twice)   the number that took the aggregator last, told by its own last pass but one
 *   claims (twice)                when it was claimed, and whether it is held
 *   owners                        whose sum it holds: the job's incarnation, and of the sequence the low word
 *   kinds                         type of the packets in the sum; 0: they have no values
 *   seen                          workers of that number that were here; what overlaps in part takes its new bits back
 *   absent                        workers that are not in the sum, or GONE: it has left
 *
 * v1model looks at owner, bitmap and time at once before it writes any. Here `claims` decides alone who takes an aggregator,
 * with what `last` says of late packets; then the owner is known before the bitmap, and what is seen before what is in the sum.
 * What comes between two passes of a packet finds an aggregator that is held, and at worst goes to the server as it is
 * (docs/design/tna-programs.md).
 */
#ifndef INA_TOFINO_ATP_AGGREGATOR_P4
#define INA_TOFINO_ATP_AGGREGATOR_P4

#include "headers.p4"

const bit<32> GONE = 0xffffffff;  // a sum has a worker: not all are absent

struct claim_t {
    bit<32> stamp;  // 2^16 ns, about 65 us
    bit<32> held;
}

struct owner_t {
    bit<32> incarnation;
    bit<32> low;
}

struct absent_t {  // signed: -1 is a constant that a stateful ALU has, 0xffffffff is not
    int<32> workers;
    int<32> now;
}

/* The number that took the aggregator last, and how this one stands to it. */
control Last(in packet_t hdr, inout state_t meta) {
    bit<32> high = 0;
    bit<8>  borrow = 0;

    Register<bit<32>, place_t>(SLOTS, 0) last_high;
    RegisterAction<bit<32>, place_t, bit<32>>(last_high) look_at_high = {
        void apply(inout bit<32> word, out bit<32> before) {
            before = word;
        }
    };
    RegisterAction<bit<32>, place_t, bit<32>>(last_high) remember_high = {
        void apply(inout bit<32> word) {
            word = meta.high;
        }
    };
// The same word twice: one says whether it is this number's, the other whether it is beyond.
#define LAST_LOW(name, condition) \
    Register<bit<32>, place_t>(SLOTS, 0) name; \
    RegisterAction<bit<32>, place_t, bit<8>>(name) look_at_##name = { \
        void apply(inout bit<32> word, out bit<8> said) { \
            said = 0; \
            if (condition) { \
                said = 1; \
            } \
        } \
    }; \
    RegisterAction<bit<32>, place_t, bit<8>>(name) remember_##name = { \
        void apply(inout bit<32> word) { \
            word = meta.low; \
        } \
    };
    LAST_LOW(last_low, word == meta.low)
    LAST_LOW(last_low_beyond, word > meta.low)

// Two of them in one action cannot be: each register has a table of its own.
#define LAST_TABLE(name, look_at, remember, said) \
    action look_at_##name##_() { \
        said = look_at.execute(ROW); \
    } \
    action remember_##name##_() { \
        remember.execute(ROW); \
    } \
    @stage(0) \
    table name##_ { \
        key = { hdr.bridge.pass: ternary; hdr.bridge.claimed: ternary; } \
        actions = { look_at_##name##_; remember_##name##_; NoAction; } \
        const entries = { \
            (Pass.FINISH, 1): remember_##name##_(); \
            (_,           _): look_at_##name##_(); \
        } \
        const default_action = NoAction(); \
        size = 2; \
    }
    LAST_TABLE(last_high, look_at_high, remember_high, high)
    LAST_TABLE(last_low, look_at_last_low, remember_last_low, meta.same_low)
    LAST_TABLE(last_low_beyond, look_at_last_low_beyond, remember_last_low_beyond, borrow)

    action borrow_() {
        meta.ahead = meta.ahead - borrow;
    }
    table borrowed {  // in an action of its own, which the compiler does not merge with that before
        actions = { borrow_; }
        const default_action = borrow_();
        size = 1;
    }

    apply {
        last_high_.apply();
        last_low_.apply();
        last_low_beyond_.apply();
        meta.differs = meta.high ^ high;
        meta.ahead = meta.high[7:0] - high[7:0];  // of a sequence's 40 bits the highest
        borrowed.apply();
    }
}

control Aggregator(inout packet_t hdr, inout state_t meta) {
    bit<8>  dead = 0;
    bit<32> held = 0;
    bit<8>  same = 0;     // the sum is of this number
    bit<8>  was = 0;      // its kind
    bit<1>  claims = 0;
    bit<1>  joins = 0;
    bit<32> was_in = 0;
    bit<32> again = 0;    // workers of the packet that were seen before
    bit<32> fresh = 0;    // those that were not
    bit<32> absent = 0;

// The same pair of words twice: one says whether it is too old, the other the mark.
#define CLAIMS(name, type, say) \
    Register<claim_t, place_t>(SLOTS, {0, 0}) name; \
    RegisterAction<claim_t, place_t, type>(name) look_at_##name = { \
        void apply(inout claim_t claim, out type said) { \
            say \
        } \
    }; \
    RegisterAction<claim_t, place_t, type>(name) take_old_##name = { \
        void apply(inout claim_t claim, out type said) { \
            say \
            if ((int<32>)(meta.horizon - claim.stamp) > 0) { \
                claim.stamp = meta.now; \
                claim.held = 1; \
            } \
        } \
    }; \
    RegisterAction<claim_t, place_t, type>(name) take_##name = { \
        void apply(inout claim_t claim, out type said) { \
            say \
            if ((int<32>)(meta.horizon - claim.stamp) > 0 || claim.held == 0) { \
                claim.stamp = meta.now; \
                claim.held = 1; \
            } \
        } \
    }; \
    RegisterAction<claim_t, place_t, type>(name) free_##name = { \
        void apply(inout claim_t claim) { \
            claim.held = 0; \
        } \
    };
#define TOO_OLD said = 0; \
    if ((int<32>)(meta.horizon - claim.stamp) > 0) { said = 1; }
#define MARK said = claim.held;
    CLAIMS(stamps, bit<8>, TOO_OLD)
    CLAIMS(holds, bit<32>, MARK)

#define CLAIM_TABLE(name, said) \
    action look_at_##name##_() { \
        said = look_at_##name.execute(ROW); \
    } \
    action take_old_##name##_() { \
        said = take_old_##name.execute(ROW); \
    } \
    action take_##name##_() { \
        said = take_##name.execute(ROW); \
    } \
    action free_##name##_() { \
        free_##name.execute(ROW); \
    } \
    table claim_##name { \
        key = { \
            hdr.bridge.pass: ternary; \
            hdr.bridge.evicted: ternary; \
            meta.downwards: ternary; \
            hdr.atp.msg_type: ternary; \
            meta.wants: ternary; \
            meta.differs: ternary; \
            meta.same_low: ternary; \
            meta.ahead: ternary; \
        } \
        actions = { look_at_##name##_; take_old_##name##_; take_##name##_; free_##name##_; NoAction; } \
        const entries = { \
            (Pass.FINISH, 1, _, _,            _, 0,                1, _): free_##name##_(); \
            (Pass.FINISH, _, _, _,            _, _,                _, _): NoAction(); \
            (_,           _, 1, Type.PENDING, _, _,                _, _): NoAction(); \
            (_,           _, 1, _,            _, 0 &&& 0xffffff00, 1, _): free_##name##_();  /* the result is there */ \
            (_,           _, 1, _,            _, _,                _, _): NoAction(); \
            (_,           _, _, _,            1, 0,                1, _): take_old_##name##_();  /* it is late: of this number */ \
            (_,           _, _, _,            1, 0 &&& 0xffffff00, _, 0x80 &&& 0x80): take_old_##name##_();  /* an older one */ \
            (_,           _, _, _,            1, _,                _, _): take_##name##_(); \
            (_,           _, _, _,            _, _,                _, _): look_at_##name##_(); \
        } \
        const default_action = NoAction(); \
        size = 10; \
    }
    CLAIM_TABLE(stamps, dead)
    CLAIM_TABLE(holds, held)

    Register<owner_t, place_t>(SLOTS, {0, 0}) owners;
    RegisterAction<owner_t, place_t, bit<8>>(owners) own_ = {
        void apply(inout owner_t owner) {
            owner.incarnation = hdr.bridge.incarnation;
            owner.low = meta.low;
        }
    };
    RegisterAction<owner_t, place_t, bit<8>>(owners) compare_ = {
        void apply(inout owner_t owner, out bit<8> said) {
            said = 0;
            if (owner.incarnation == hdr.bridge.incarnation && owner.low == meta.low) {
                said = 1;
            }
        }
    };
    Register<bit<8>, place_t>(SLOTS, 0) kinds;
    RegisterAction<bit<8>, place_t, bit<8>>(kinds) set_kind_ = {
        void apply(inout bit<8> of_sum) {
            of_sum = meta.kind;
        }
    };
    RegisterAction<bit<8>, place_t, bit<8>>(kinds) look_at_kind_ = {
        void apply(inout bit<8> of_sum, out bit<8> said) {
            said = of_sum;
        }
    };
    action own() {
        own_.execute(ROW);
        claims = 1;
    }
    action compare() {
        same = compare_.execute(ROW);
    }
    action set_kind() {
        set_kind_.execute(ROW);
    }
    action look_at_kind() {
        was = look_at_kind_.execute(ROW);
    }
#define OWNER_TABLE(name, own, compare) \
    table name { \
        key = { \
            meta.wants: ternary; \
            dead: ternary; \
            held: ternary; \
            meta.differs: ternary; \
            meta.same_low: ternary; \
            meta.ahead: ternary; \
        } \
        actions = { own; compare; NoAction; } \
        const entries = { \
            (1, 1, _, _,                _, _):             own(); \
            (1, _, 0, 0,                1, _):             compare(); \
            (1, _, 0, 0 &&& 0xffffff00, _, 0x80 &&& 0x80): compare(); \
            (1, _, 0, _,                _, _):             own(); \
            (_, _, _, _,                _, _):             compare(); \
        } \
        const default_action = NoAction(); \
        size = 5; \
    }
    OWNER_TABLE(owner, own, compare)
    OWNER_TABLE(kind, set_kind, look_at_kind)

    Register<bit<32>, place_t>(SLOTS, 0) seen;
    RegisterAction<bit<32>, place_t, bit<32>>(seen) begin_seen_ = {
        void apply(inout bit<32> workers) {
            workers = hdr.atp.bitmap;
        }
    };
    RegisterAction<bit<32>, place_t, bit<32>>(seen) join_seen_ = {
        void apply(inout bit<32> workers, out bit<32> before) {
            before = workers;
            workers = workers | hdr.atp.bitmap;
        }
    };
    RegisterAction<bit<32>, place_t, bit<32>>(seen) take_back_ = {
        void apply(inout bit<32> workers) {
            workers = workers & ~hdr.bridge.surplus;
        }
    };
    action begin_seen() {
        begin_seen_.execute(ROW);
    }
    action join_seen() {
        was_in = join_seen_.execute(ROW);
        joins = 1;
    }
    action take_back() {
        take_back_.execute(ROW);
    }
    action collide() {
        hdr.atp.collision = 1;
        meta.fate = Fate.COLLIDED;
    }
    table who {
        key = {
            hdr.bridge.pass: ternary;
            hdr.bridge.surplus: ternary;
            meta.sums: ternary;
            claims: ternary;
            dead: ternary;
            held: ternary;
            same: ternary;
            was: ternary;
            meta.kind: ternary;
        }
        actions = { begin_seen; join_seen; take_back; collide; NoAction; }
        const entries = {
            (Pass.FINISH, 0, _, _, _, _, _, _, _): NoAction();
            (Pass.FINISH, _, _, _, _, _, 1, _, _): take_back();
            (Pass.FINISH, _, _, _, _, _, _, _, _): NoAction();
            (_,           _, 0, _, _, _, _, _, _): NoAction();
            (_,           _, _, 1, _, _, _, _, _): begin_seen();
            (_,           _, _, _, 1, _, _, _, _): NoAction();
            (_,           _, _, _, _, 0, _, _, _): NoAction();
            (_,           _, _, _, _, _, 0, _, _): collide();
            (_,           _, _, _, _, _, _, 0, 0): join_seen();
            (_,           _, _, _, _, _, _, 1, 1): join_seen();  // Type.DATA
            (_,           _, _, _, _, _, _, 6, 6): join_seen();  // Type.MAXIMA
        }
        const default_action = NoAction();
        size = 12;
    }

    Register<absent_t, place_t>(SLOTS, {0, 0}) absents;
    RegisterAction<absent_t, place_t, bit<32>>(absents) begin_sum_ = {
        void apply(inout absent_t sum) {
            sum.workers = (int<32>)meta.others;
        }
    };
    RegisterAction<absent_t, place_t, bit<32>>(absents) join_sum_ = {
        void apply(inout absent_t sum, out bit<32> said) {
            if (sum.workers != -1) {
                sum.workers = sum.workers & (int<32>)meta.others;
            }
            said = (bit<32>)sum.workers;
        }
    };
    RegisterAction<absent_t, place_t, bit<32>>(absents) evict_ = {
        void apply(inout absent_t sum, out bit<32> said) {
            if (sum.workers == -1) {
                sum.now = -1;
            } else {
                sum.now = sum.workers & (int<32>)meta.others;
            }
            sum.workers = -1;
            said = (bit<32>)sum.now;
        }
    };
    RegisterAction<absent_t, place_t, bit<32>>(absents) look_at_sum_ = {
        void apply(inout absent_t sum, out bit<32> said) {
            said = (bit<32>)sum.workers;
        }
    };
    action begin_sum() {
        begin_sum_.execute(ROW);
    }
    action join_sum() {
        absent = join_sum_.execute(ROW);
    }
    action evict() {
        absent = evict_.execute(ROW);
    }
    action look_at_sum() {
        absent = look_at_sum_.execute(ROW);
    }
    table sum {
        key = { claims: ternary; joins: ternary; hdr.atp.resend: ternary; again: ternary; fresh: ternary; }
        actions = { begin_sum; join_sum; evict; look_at_sum; NoAction; }
        const entries = {
            (1, _, _, _, _): begin_sum();
            (_, 1, 1, 0, _): evict();
            (_, 1, 1, _, 0): evict();
            (_, 1, _, 0, _): join_sum();
            (_, _, _, _, _): look_at_sum();
        }
        const default_action = NoAction();
        size = 5;
    }

    action store(Fate fate) {
        meta.store = 1;
        hdr.bridge.first = 1;
        hdr.bridge.op = Op.STORE;
        hdr.bridge.absorbed = 1;
        hdr.bridge.claimed = 1;
        meta.fate = fate;
    }
    action merge() {
        meta.add = 1;
        hdr.bridge.op = meta.join;
        hdr.bridge.absorbed = 1;
        meta.fate = Fate.MERGED;
    }
    action complete() {
        meta.add = 1;
        hdr.bridge.op = meta.join;
        hdr.bridge.load = 1;
        hdr.atp.bitmap = meta.full ^ absent;
        meta.fate = Fate.COMPLETED;
    }
    action take_along(bit<1> add) {
        meta.add = add;
        hdr.bridge.op = Op.LOOK;
        hdr.bridge.load = 1;
        hdr.bridge.evicted = 1;
        hdr.atp.bitmap = meta.full ^ absent;
        meta.fate = Fate.EVICTED;
    }
    action take_along_added() {
        take_along(1);
        hdr.bridge.op = meta.join;
    }
    action stray() {
        hdr.bridge.surplus = fresh;
    }
    action drop(Drop reason) {
        meta.drop = reason;
    }
    table follows {
        key = {
            meta.sums: ternary;
            claims: ternary;
            held: ternary;
            dead: ternary;
            same: ternary;
            joins: ternary;
            hdr.atp.resend: ternary;
            again: ternary;
            fresh: ternary;
            absent: ternary;
        }
        actions = { store; merge; complete; take_along; take_along_added; stray; drop; NoAction; }
        const entries = {
            (0, _, _, _, _, _, _, _, _, _):    NoAction();
            (_, 1, 0, _, _, _, _, _, _, _):    store(Fate.CLAIMED);
            (_, 1, _, _, _, _, _, _, _, _):    store(Fate.TAKEN);
            (_, _, 0, _, _, _, _, _, _, _):    NoAction();
            (_, _, _, 1, _, _, _, _, _, _):    NoAction();
            (_, _, _, _, 0, _, _, _, _, _):    NoAction();
            (_, _, _, _, _, _, _, _, _, GONE): NoAction();
            (_, _, _, _, _, 0, _, _, _, _):    drop(Drop.WRONG_SIZE);
            (_, _, _, _, _, _, 1, 0, _, _):    take_along_added();
            (_, _, _, _, _, _, 1, _, 0, _):    take_along(0);
            (_, _, _, _, _, _, _, 0, _, 0):    complete();
            (_, _, _, _, _, _, _, 0, _, _):    merge();
            (_, _, _, _, _, _, _, _, 0, _):    drop(Drop.REPEATED);
        }
        const default_action = stray();
        size = 14;
    }

    apply {
        if (meta.drop == Drop.NONE) {
            claim_stamps.apply();
            claim_holds.apply();
            owner.apply();
            kind.apply();
            who.apply();
            if (hdr.bridge.pass == Pass.ARRIVE) {
                again = was_in & hdr.atp.bitmap;
                fresh = hdr.atp.bitmap & ~was_in;
                sum.apply();
                follows.apply();
            }
        }
    }
}

#endif
