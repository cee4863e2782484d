/* Offers: which workers contribute to the sums that follow. The rules are those of ../../../include/quorum/offers.p4; here is how a
 * pipeline that reaches each register once in a pass keeps them.
 *
 *   missing     (switchml/phase.p4) workers that have not asked: a packet takes its sender's bit away when it arrives
 *   rounds      (switchml/rounds.p4) counts what changes the two below, for each row
 *   given       one word: contributors
 *   without     one word: workers that have passed; all bits, which no job that is open can have: it is decided
 *
 *   ARRIVE   admitted? -> passed on? -> which phase of the slot? -> round, given and without, as they are, are taken along
 *   OFFER    what would they be with this offer? decided? -> is the round still that? then that is done, and where they change the
 *            next round begins; if not, another offer came between, and this one arrives once more
 *   FINISH   of a packet that is answered; decided: the phase has ended
 *
 * Whether an offer changes a word depends on bits of both, so no stateful ALU can tell. But packets reach registers in one order, the
 * same at each: an OFFER pass whose round fits sees and changes everything as if nobody had come since it arrived. A decision is such
 * a change, and makes all workers known, none of which is ever added then: so contributors never change once decided. Who comes
 * between the decision and FINISH is told the same. A packet that is lost between passes has changed nothing, or is answered when
 * it is sent once more (docs/design/tna-programs.md).
 */
#ifndef INA_TOFINO_OFFERS_P4
#define INA_TOFINO_OFFERS_P4

#include "headers.p4"

const bit<32> ALL_KNOWN = 0xffffffff;

enum bit<8> Way {
    KEPT      = 0,  // by this switch; and what is no offer
    WRONG     = 1,
    CHILDREN  = 2,
    PARENT    = 3
}

/* Before a row is looked at: what may not be is dropped, and what this switch does not decide is passed on. */
control Relay(inout packet_t hdr, inout state_t meta, inout Way way) {
    bit<32> below = 0;
    bit<32> several = 0;  // 0: one worker's, or nobody's
    bit<32> foreign = 0;  // 0: the child's

    action compare_() {
        several = below & hdr.offer.ranks;
        foreign = ~meta.worker & hdr.offer.ranks;
    }
    table compare {
        actions = { compare_; }
        const default_action = compare_();
        size = 1;
    }
    action keep() {
        meta.worker = hdr.offer.ranks;
        hdr.bridge.coded = 1;
    }
    action take(Way which) {
        way = which;
        hdr.bridge.coded = 1;
    }
    table where {
        key = {
            meta.strict: ternary;
            meta.above: ternary;
            hdr.offer.state: ternary;
            hdr.offer.ranks: ternary;
            several: ternary;
            foreign: ternary;
            meta.parent: ternary;
        }
        actions = { keep; take; }
        const entries = {
            (1, 1, OFFER_OPEN,         _, _, _, _): take(Way.CHILDREN);
            (1, 1, OFFER_DECIDED,      _, _, _, _): take(Way.CHILDREN);
            (_, 1, _,                  _, _, _, _): take(Way.WRONG);
            (_, _, _,                  0, _, _, _): take(Way.WRONG);
            (1, _, OFFER_ASK &&& 0xfe, _, 0, 0, 0): keep();  // or give
            (1, _, OFFER_PASS,         _, 0, 0, 0): keep();
            (1, _, OFFER_ASK &&& 0xfe, _, 0, 0, 1): take(Way.PARENT);
            (1, _, OFFER_PASS,         _, 0, 0, 1): take(Way.PARENT);
        }
        const default_action = take(Way.WRONG);
        size = 8;
    }
    apply {
        below = hdr.offer.ranks - 1;
        compare.apply();
        where.apply();
    }
}

/* How many workers these are. */
control Ones(in bit<8> workers, inout bit<8> number) {
    action set(bit<8> ones) {
        number = ones;
    }
    table look_up {
        key = { workers: exact; }
        actions = { set; }
#define ONE(byte, i) (bit<8>)byte[i:i]
#define ONES(byte) ONE(byte, 0) + ONE(byte, 1) + ONE(byte, 2) + ONE(byte, 3) + ONE(byte, 4) + ONE(byte, 5) + ONE(byte, 6) + ONE(byte, 7)
#define NUMBER(i) 0x##i: set(ONES(8w0x##i));
        const entries = {
            FOR_16(NUMBER, 0) FOR_16(NUMBER, 1) FOR_16(NUMBER, 2) FOR_16(NUMBER, 3)
            FOR_16(NUMBER, 4) FOR_16(NUMBER, 5) FOR_16(NUMBER, 6) FOR_16(NUMBER, 7)
            FOR_16(NUMBER, 8) FOR_16(NUMBER, 9) FOR_16(NUMBER, a) FOR_16(NUMBER, b)
            FOR_16(NUMBER, c) FOR_16(NUMBER, d) FOR_16(NUMBER, e) FOR_16(NUMBER, f)
        }
        const default_action = set(0);
        size = 256;
    }
    apply {
        look_up.apply();
    }
}

/* Computes both words as an OFFER pass would leave them, and whether that would be enough. */
control Change(inout packet_t hdr, inout state_t meta) {
    bit<32> rival = 0;    // 0: none contributes
    bit<32> settled = 0;  // workers for whom nobody waits
    bit<8>  ones0 = 0;
    bit<8>  ones1 = 0;
    bit<8>  ones2 = 0;
    bit<8>  ones3 = 0;
    bit<8>  low = 0;
    bit<8>  high = 0;
    bit<8>  count = 0;
    Ones() byte0;
    Ones() byte1;
    Ones() byte2;
    Ones() byte3;

    action find_() {
        meta.known = settled & hdr.offer.ranks;
    }
    table find {  // in an action of its own, which the compiler does not merge with that before
        actions = { find_; }
        const default_action = find_();
        size = 1;
    }

    action give() {
        meta.given = hdr.carried.given | hdr.offer.ranks;
        meta.changes = 1;
    }
    action pass() {
        meta.without = hdr.carried.without | hdr.offer.ranks;
        meta.changes = 1;
    }
    action over() {
        meta.decided = 1;
    }
    table change {
        key = { hdr.carried.without: ternary; meta.known: ternary; rival: ternary; hdr.offer.state: ternary; }
        actions = { give; pass; over; NoAction; }
        const entries = {
            (ALL_KNOWN, _, _, _):          over();
            (_,         0, 0, OFFER_GIVE): give();
            (_,         0, _, OFFER_GIVE): pass();
            (_,         0, _, OFFER_PASS): pass();
        }
        const default_action = NoAction();
        size = 4;
    }

    action find_left_() {
        meta.left = ~settled & hdr.carried.full;
    }
    table find_left {
        actions = { find_left_; }
        const default_action = find_left_();
        size = 1;
    }
    action add_() {
        count = low + high;
    }
    table add {
        actions = { add_; }
        const default_action = add_();
        size = 1;
    }
    action compare_() {
        meta.lacking = hdr.offer.least |-| count;
    }
    table compare {
        actions = { compare_; }
        const default_action = compare_();
        size = 1;
    }

    apply {
        meta.given = hdr.carried.given;
        meta.without = hdr.carried.without;
        rival = hdr.carried.given & hdr.offer.rivals;
        settled = hdr.carried.given | hdr.carried.without;
        find.apply();
        change.apply();
        settled = meta.given | meta.without;
        find_left.apply();
        byte0.apply(meta.given[7:0], ones0);
        byte1.apply(meta.given[15:8], ones1);
        byte2.apply(meta.given[23:16], ones2);
        byte3.apply(meta.given[31:24], ones3);
        low = ones0 + ones1;
        high = ones2 + ones3;
        add.apply();
        compare.apply();
    }
}

/* An offer that this switch keeps, in its row's phase, which begins with it or not: `missing` are the workers that have not asked;
 * `own` is 0 if the sender had. */
control Offers(inout packet_t hdr, inout state_t meta, in bit<1> begins, in bit<32> missing, in bit<32> own) {
    action take_along(bit<8> again) {
        hdr.bridge.first = begins;
        hdr.carried.setValid();
        hdr.carried.full = meta.full;
        hdr.carried.again = again;
    }
    table remember {
        key = { own: ternary; begins: ternary; }
        actions = { take_along; }
        const entries = {
            (_, 1): take_along(0);  // whatever an older phase has left
            (0, _): take_along(1);
        }
        const default_action = take_along(0);
        size = 2;
    }

    action answer(Verdict which) {
        meta.verdict = which;
    }
    action decide() {
        meta.verdict = Verdict.DECIDES;
        meta.changes = 1;
        meta.without = ALL_KNOWN;
    }
    table verdict {
        key = {
            meta.decided: ternary;
            missing: ternary;
            meta.lacking: ternary;
            meta.left: ternary;
            hdr.carried.again: ternary;
            meta.known: ternary;
            hdr.offer.state: ternary;
        }
        actions = { answer; decide; NoAction; }
        const entries = {
            (1, _, _, _, _, _, _):         answer(Verdict.DECIDED);
            (_, 0, 0, _, _, _, _):         decide();
            (_, 0, _, 0, _, _, _):         decide();
            (_, _, _, _, 0, _, _):         NoAction();
            (_, 0, _, _, _, _, OFFER_ASK): answer(Verdict.OPEN);
            (_, _, _, _, _, _, OFFER_ASK): answer(Verdict.NOT_ASKED);
            (_, _, _, _, _, 0, _):         NoAction();
            (_, 0, _, _, _, _, _):         answer(Verdict.OPEN);
        }
        const default_action = answer(Verdict.NOT_ASKED);
        size = 8;
    }

    apply {
        if (hdr.bridge.pass == Pass.ARRIVE) {
            remember.apply();
        } else {
            meta.missing = missing;
            verdict.apply();
        }
    }
}

/* Workers of each row: in ARRIVE they are taken along, in OFFER they are changed if the round was still the packet's. */
control Set(in bridge_t bridge, inout bit<32> workers, in bit<32> changed, in bit<8> changes) {
    Register<bit<32>, place_t>(ROWS, 0) sets;
    RegisterAction<bit<32>, place_t, bit<32>>(sets) begin_ = {
        void apply(inout bit<32> set, out bit<32> now) {
            set = 0;
            now = set;
        }
    };
    RegisterAction<bit<32>, place_t, bit<32>>(sets) look_ = {
        void apply(inout bit<32> set, out bit<32> now) {
            now = set;
        }
    };
    RegisterAction<bit<32>, place_t, bit<32>>(sets) change_ = {
        void apply(inout bit<32> set) {
            set = changed;
        }
    };

    action begin() {
        workers = begin_.execute(bridge.row);
    }
    action look() {
        workers = look_.execute(bridge.row);
    }
    action change() {
        change_.execute(bridge.row);
    }
    table operate {
        key = { changes: ternary; bridge.first: ternary; bridge.round: ternary; }
        actions = { begin; look; change; NoAction; }
        const entries = {
            (1, _, 1): change();
            (1, _, _): NoAction();
            (_, 1, _): begin();
            (_, _, _): look();
        }
        const default_action = NoAction();
        size = 4;
    }
    apply {
        operate.apply();
    }
}

#endif
