/* Packets of switchml.p4 inside the switch: those of ../../../include/switchml/headers.p4, LANES values at a time. */
#ifndef INA_TOFINO_HEADERS_P4
#define INA_TOFINO_HEADERS_P4

#include "../../../include/switchml/headers.p4"
#include "../../../include/switchml/metadata.p4"

#include "../passes.p4"

const bit<32> CELLS = ROWS * (VALUES / LANES);

/* Passes of a result: children that get no values are told so in one of their own (receivers.p4). */
enum bit<8> Apart {
    NOBODY = 0,
    SOME   = 1,
    TOLD   = 2
}

/* What a packet carries between passes, and to the egress; never on a wire. */
header bridge_t {
    Pass    pass;
    Op      op;
    To      to;
    bit<8>  chunk;       // of the next 32 values
    Apart   apart;
    bit<1>  replicated;
    bit<1>  complete;    // it carries the sums
    bit<1>  first;       // what the row has is replaced
    bit<1>  refused;     // what it was to take along is not whole
    bit<1>  outdated;    // of another version: the sender is told
    bit<1>  coded;       // it has something else in the place of values, by the program that includes this file
    bit<1>  empty;       // what it would take along stands for itself (omnireduce.p4), or nobody gets it (receivers.p4)
    bit<9>  port;        // by which it came
    bit<16> group;
    cell_place_t cell;   // of the next 32 values
    place_t row;
    bit<32> round;       // of the row: how often it has begun
    bit<32> absent;      // of a packet that begins a sum: workers that it lacks then; of one that is added: its own
    bit<32> missing;
}

#ifndef MORE_LANES  // of a program that includes this file (../thc/headers.p4)
#define MORE_LANES
#endif
#ifndef MORE_METADATA
#define MORE_METADATA
#endif
#ifndef EXPECTED  // workers below this switch that the phase waits for; and those of the sender
#define EXPECTED meta.full
#define OWN_WORKERS meta.worker
#endif

struct packet_t {
    bridge_t    bridge;
    flags_t     flags;
    ethernet_t  ethernet;
    ipv4_t      ipv4;
    udp_t       udp;
    switchml_t  switchml;
    exponents_t exponents;
    check_t     check;
    pending_t   pending;
    lanes_t     lanes;
    MORE_LANES
}

#define KIND(type, size) ((bit<32>)type << 4 | (bit<32>)size)  // of a packet, as the row knows it
const bit<32> ENDED = 0x100;  // beyond all kinds

// A packet's age, as its row says it: one bit of four, by both comparisons (is the row of another life? is the packet late?).
#define ALIEN 0 &&& 5
#define TIMELY 1 &&& 1

/* Metadata between the stages of a pass; see metadata_t. */
struct state_t {
    bit<32> source;       // IPv4 address that the frame says it is from; 0: none
    bool    bad_checksum;
    bool    bad_headers;
    bit<1>  other;        // version: nothing behind it is known
    bit<1>  has_values;   // or something else in their place
    Drop    drop;
    // of the job and the sender
    bit<32> full;
    bit<32> worker;
    bit<8>  last;
    bit<32> incarnation;
    bit<1>  strict;
    bit<1>  parent;
    bit<1>  above;        // the sender is the parent
    // of the row
    place_t slot;
    bit<32> kind;
    Op      join;         // what a packet that is added does
    MORE_METADATA
}

struct egress_state_t {
    bit<1> unused;
}

#endif
