/* Is everything in the sum that has been counted? A packet is counted when it arrives, and added in later passes.
 *
 * So an arriving packet draws a ticket of its aggregator: the next number; whatever begins a sum, one far beyond. Recirculated
 * packets stay in order, so additions end in the order of tickets, and each has behind it the one that was drawn before it. Where
 * one was lost the chain is broken for as long as the sum lives: nothing takes it up.
 */
#ifndef INA_TOFINO_ATP_ROUNDS_P4
#define INA_TOFINO_ATP_ROUNDS_P4

#include "headers.p4"

control Tickets(inout packet_t hdr, in state_t meta) {
    Register<bit<32>, place_t>(SLOTS, 0) tickets;
    RegisterAction<bit<32>, place_t, bit<32>>(tickets) begin_ = {
        void apply(inout bit<32> ticket, out bit<32> now) {
            ticket = ticket + 256;
            now = ticket;
        }
    };
    RegisterAction<bit<32>, place_t, bit<32>>(tickets) join_ = {
        void apply(inout bit<32> ticket, out bit<32> now) {
            ticket = ticket + 1;
            now = ticket;
        }
    };
    RegisterAction<bit<32>, place_t, bit<32>>(tickets) look_ = {
        void apply(inout bit<32> ticket, out bit<32> now) {
            now = ticket;
        }
    };

    action begin() {
        hdr.bridge.ticket = begin_.execute(ROW);
    }
    action join() {
        hdr.bridge.ticket = join_.execute(ROW);
    }
    action look() {
        hdr.bridge.ticket = look_.execute(ROW);
    }
    @stage(11)
    table ticket {
        key = { meta.store: ternary; meta.add: ternary; hdr.bridge.load: ternary; }
        actions = { begin; join; look; NoAction; }
        const entries = {
            (1, _, _): begin();
            (_, 1, _): join();
            (_, _, 1): look();
        }
        const default_action = NoAction();
        size = 3;
    }
    apply {
        ticket.apply();
    }
}

/* The last addition of a packet. `whole`: all that drew a ticket before it have made theirs. */
control Chain(in packet_t hdr, in ingress_intrinsic_metadata_from_parser_t from_parser, inout bit<8> whole) {
    Register<bit<32>, place_t>(SLOTS, 0) chain;
    RegisterAction<bit<32>, place_t, bit<8>>(chain) begin_ = {
        void apply(inout bit<32> last) {
            last = hdr.bridge.ticket;
        }
    };
    RegisterAction<bit<32>, place_t, bit<8>>(chain) join_ = {
        void apply(inout bit<32> last, out bit<8> said) {
            said = 0;
            if (hdr.bridge.ticket - last == 1) {
                last = hdr.bridge.ticket;
                said = 1;
            }
        }
    };
    RegisterAction<bit<32>, place_t, bit<8>>(chain) look_ = {
        void apply(inout bit<32> last, out bit<8> said) {
            said = 0;
            if (hdr.bridge.ticket == last) {
                said = 1;
            }
        }
    };

    action begin() {
        begin_.execute(ROW);
    }
    action join() {
        whole = join_.execute(ROW);
    }
    action look() {
        whole = look_.execute(ROW);
    }
    @stage(0)  // beside none of the lanes, which take all stages after it
    table link {
        key = { from_parser.parser_err: ternary; hdr.bridge.pass: ternary; hdr.bridge.chunk: ternary; hdr.bridge.op: ternary; }
        actions = { begin; join; look; NoAction; }
        const entries = {
            (0, Pass.ADD, LAST_CHUNK, Op.STORE):   begin();
            (0, Pass.ADD, LAST_CHUNK, Op.ADD):     join();
            (0, Pass.ADD, LAST_CHUNK, Op.MAXIMUM): join();
            (0, Pass.ADD, LAST_CHUNK, Op.LOOK):    look();
        }
        const default_action = NoAction();
        size = 4;
    }
    apply {
        link.apply();
    }
}

#endif
