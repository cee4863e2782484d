/* Rounds: is everything in the sum that has been counted?
 *
 * A packet is counted when it arrives (phase.p4), and added in later passes. One that is lost between two of them has been counted
 * and is not in the sum. So a row numbers its rounds, one for each time that it begins; and each packet takes its workers off
 * those that a round lacks, in its last addition. Recirculated packets stay in order: the packet that completes a round, or asks
 * for its result, has its last addition after all others. If one is missing then, or is of another round, the packet is refused:
 * the phase goes back to before it began, and what the workers send once more begins it anew.
 */
#ifndef INA_TOFINO_ROUNDS_P4
#define INA_TOFINO_ROUNDS_P4

#include "headers.p4"

#ifndef MORE_COUNTS  // of passes of a program that includes this file
#define MORE_COUNTS
#endif

#ifdef OFFERS  // of a program that has phases of another kind (../quorum/offers.p4)
#define AND_CHANGES , in bit<8> changes
#else
#define AND_CHANGES
#endif

/* The number of the round that a packet belongs to. */
control Rounds(inout bridge_t bridge AND_CHANGES) {
    Register<bit<32>, place_t>(ROWS, 0) rounds;
    RegisterAction<bit<32>, place_t, bit<32>>(rounds) next_ = {
        void apply(inout bit<32> round, out bit<32> now) {
            round = round + 1;
            now = round;
        }
    };
    RegisterAction<bit<32>, place_t, bit<32>>(rounds) look_ = {
        void apply(inout bit<32> round, out bit<32> now) {
            now = round;
        }
    };
#ifdef OFFERS  // what an offer would do is right only in the round that it is of; if it changes anything, the next begins
    RegisterAction<bit<32>, place_t, bit<32>>(rounds) change_ = {
        void apply(inout bit<32> round, out bit<32> said) {
            said = 0;
            if (round == bridge.round) {
                round = round + 1;
                said = 1;
            }
        }
    };
    RegisterAction<bit<32>, place_t, bit<32>>(rounds) compare_ = {
        void apply(inout bit<32> round, out bit<32> said) {
            said = 0;
            if (round == bridge.round) {
                said = 1;
            }
        }
    };
    action change() {
        bridge.round = change_.execute(bridge.row);
    }
    action compare() {
        bridge.round = compare_.execute(bridge.row);
    }
#define ROUND_KEY bridge.pass: ternary; changes: ternary; bridge.first: ternary;
#define ROUND_ACTIONS next; look; change; compare; NoAction;
#define ROUND_ENTRIES (Pass.OFFER, 1, _): change(); (Pass.OFFER, _, _): compare(); (_, _, 1): next(); (_, _, _): look();
#else
#define ROUND_KEY bridge.first: ternary;
#define ROUND_ACTIONS next; look; NoAction;
#define ROUND_ENTRIES 1: next(); _: look();
#endif

    action next() {
        bridge.round = next_.execute(bridge.row);
    }
    action look() {
        bridge.round = look_.execute(bridge.row);
    }
    table round {
        key = { ROUND_KEY }
        actions = { ROUND_ACTIONS }
        const entries = { ROUND_ENTRIES }
        const default_action = NoAction();
        size = 4;
    }
    apply {
        round.apply();
    }
}

struct count_t {
    bit<32> round;
    bit<32> absent;
}

/* The last addition of a packet. `whole`: the sum lacks nobody's. */
control Counts(in bridge_t bridge, in ingress_intrinsic_metadata_from_parser_t from_parser, inout bit<8> whole) {
    Register<count_t, place_t>(ROWS, {0, 0}) counts;
    RegisterAction<count_t, place_t, bit<8>>(counts) begin_ = {
        void apply(inout count_t count) {
            count.round = bridge.round;
            count.absent = bridge.absent;
        }
    };
    RegisterAction<count_t, place_t, bit<8>>(counts) join_ = {
        void apply(inout count_t count, out bit<8> said) {
            said = 0;
            if (count.round == bridge.round && count.absent == bridge.absent) {
                said = 1;
            }
            if (count.round == bridge.round) {
                count.absent = count.absent & ~bridge.absent;
            }
        }
    };
    RegisterAction<count_t, place_t, bit<8>>(counts) look_ = {
        void apply(inout count_t count, out bit<8> said) {
            said = 0;
            if (count.round == bridge.round && count.absent == bridge.absent) {
                said = 1;
            }
        }
    };

    action begin() {
        begin_.execute(bridge.row);
        whole = 1;
    }
    action join() {
        whole = join_.execute(bridge.row);
    }
    action look() {
        whole = look_.execute(bridge.row);
    }
    table count {
        key = { from_parser.parser_err: ternary; bridge.pass: ternary; bridge.chunk: ternary; bridge.op: ternary; }
        actions = { begin; join; look; NoAction; }
        const entries = {
            (0, Pass.ADD, LAST_CHUNK, Op.STORE):   begin();
            (0, Pass.ADD, LAST_CHUNK, Op.ADD):     join();
            (0, Pass.ADD, LAST_CHUNK, Op.MAXIMUM): join();
            (0, Pass.ADD, LAST_CHUNK, Op.LOOK):    look();
            MORE_COUNTS
        }
        const default_action = NoAction();
        size = 6;
    }
    apply {
        count.apply();
    }
}

#endif
