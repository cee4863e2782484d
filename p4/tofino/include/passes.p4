/* Passes: how a packet goes round, and what it carries meanwhile.
 *
 * State belongs to a pipe (its ports are 128 * pipe .. 128 * pipe + 127), so all packets of a job meet in one: PIPE. A packet
 * that comes in by another pipe's port goes there first. Recirculated packets stay in order, so what they do to a cell they do
 * in the order in which it was decided.
 */
#ifndef INA_TOFINO_PASSES_P4
#define INA_TOFINO_PASSES_P4

#include "../../include/size.p4"

#if LANE_BITS != 32
#error "a Tofino adds values of 32 bits"
#endif

typedef bit<16> place_t;       // in a register
typedef bit<32> cell_place_t;  // in one with a cell for each part of a packet's values: of all slots they are more than 2^16

#ifndef PIPE
#define PIPE 0
#endif

const PortId_t RECIRCULATION      = PIPE << 7 | 68;
const PortId_t RECIRCULATION_PORT = 0x044;  // 68 to 71 of any pipe: what comes in there has a bridge before it
const PortId_t RECIRCULATION_MASK = 0x07c;

enum bit<8> Pass {
    ARRIVE = 0,  // from a port; with a bridge: of another pipe. What is to be done with it is decided
    ADD    = 1,  // its first values are taken off and added
    LOAD   = 2,  // sums are put before the values that it has
    FINISH = 3,  // the state is told that it leaves, and it is addressed
    LEAVE  = 4,  // to the egress
    FLOOD  = 5,  // to the egress: a broadcast
    // of floats (fpisa.p4), in the place of ADD and LOAD
    COMPARE   = 6,
    SUM       = 7,
    EXPONENTS = 8,
    MANTISSAS = 9,
    OFFER     = 10,  // of quorum.p4
    TELL      = 11   // of receivers.p4
}

#ifndef LANES
#define LANES 32
#endif
#if LANES == 32
#define FOR_EACH_LANE(M) FOR_16(M, 0) FOR_16(M, 1)
#else
#define FOR_EACH_LANE(M) FOR_16(M, 0)
#endif

const bit<8> CHUNKS = VALUES / LANES;       // in a packet
const bit<8> LAST_CHUNK = CHUNKS - 1;

/* What a pass does with the lanes that it has. */
enum bit<8> Op {
    NOTHING = 0,  // they are left out: the packet goes on without values
    STORE   = 1,  // they begin a sum, or take its place
    ADD     = 2,
    MAXIMUM = 3,
    LOOK    = 4,  // nothing is added; whether the sum has overflowed comes out
    LOAD    = 5   // the sums come out
}

#define LANE_FIELD(i) int<32> v##i;
header lanes_t {
    FOR_EACH_LANE(LANE_FIELD)
}

/* Beside the bridge: not 0 where a value's sum has overflowed. */
#define FLAG_FIELD(i) bit<8> f##i;
header flags_t {
    FOR_EACH_LANE(FLAG_FIELD)
}

#endif
