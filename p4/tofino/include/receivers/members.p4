/* Members: a phase is of those workers that its packets name, and all of them name the same; one whose members are all below this
 * switch ends here, as at the root of a tree.
 */
#ifndef INA_TOFINO_MEMBERS_P4
#define INA_TOFINO_MEMBERS_P4

#include "headers.p4"

const bit<32> FITS = 1;  // in the place of the kind of the row's phase, which no packet has: the packet names the same workers

/* Says of a packet's sets: is the sender a member, is this switch the highest, who gets the sum. */
control Members(in packet_t hdr, inout state_t meta) {
    action stay() {
        meta.all_below = 1;
        meta.parent = 0;
    }
    table highest {
        key = { hdr.receivers.isValid(): ternary; meta.elsewhere: ternary; }
        actions = { stay; NoAction; }
        const entries = {
            (true, 0): stay();
        }
        const default_action = NoAction();
        size = 1;
    }

    apply {
        if (hdr.receivers.isValid()) {
            meta.members = hdr.receivers.members;
        } else {
            meta.members = 0xffffffff;
        }
        meta.own = meta.worker & meta.members;
        meta.expected = meta.full & meta.members;
        meta.elsewhere = ~meta.full & meta.members;
        meta.own_gets = meta.worker & hdr.receivers.ranks;
        meta.gets = meta.full & hdr.receivers.ranks;
        meta.gets_none = ~hdr.receivers.ranks & meta.expected;
        highest.apply();
    }
}

struct sets_t {
    bit<32> ranks;
    bit<32> members;
}

/* The sets of each row's phase. `was`: its kind; FITS if the packet is of that kind, and names the same. */
control Sets(in packet_t hdr, in state_t meta, in bit<8> age, in bit<8> same, inout bit<32> was) {
    Register<sets_t, place_t>(ROWS, {0, 0}) sets;
    RegisterAction<sets_t, place_t, bit<32>>(sets) begin_ = {
        void apply(inout sets_t phase) {
            phase.ranks = hdr.receivers.ranks;
            phase.members = hdr.receivers.members;
        }
    };
    RegisterAction<sets_t, place_t, bit<32>>(sets) compare_ = {
        void apply(inout sets_t phase, out bit<32> said) {
            said = 0;
            if (phase.ranks == hdr.receivers.ranks && phase.members == hdr.receivers.members) {
                said = 1;
            }
        }
    };

    action begin() {
        begin_.execute(hdr.bridge.row);
    }
    action compare() {
        was = compare_.execute(hdr.bridge.row);
    }
    table operate {
        key = { age: ternary; meta.above: ternary; same: ternary; was: ternary; }
        actions = { begin; compare; NoAction; }
        const entries = {
            (ALIEN,  0, _, _):                                     begin();
            (TIMELY, 0, 0, ENDED &&& ENDED):                       begin();
            (_,      _, 1, KIND(SWITCHML_TO, SIZE_CODE) &&& 0xff): compare();
        }
        const default_action = NoAction();
        size = 3;
    }
    apply {
        operate.apply();
    }
}

#endif
