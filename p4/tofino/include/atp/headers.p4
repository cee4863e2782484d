/* Packets of atp.p4 inside the switch: those of ../../../include/atp/headers.p4, 32 values at a time. */
#ifndef INA_TOFINO_ATP_HEADERS_P4
#define INA_TOFINO_ATP_HEADERS_P4

#include "../../../include/atp/headers.p4"
#include "../../../include/atp/metadata.p4"

const bit<32> ROWS  = SLOTS;
const bit<32> CELLS = ROWS * (VALUES / 32);

#include "../passes.p4"

// The aggregator's place: bits of its index, which need no operation before a register is reached.
#if SLOTS == 1
#define ROW ((place_t)0)
#elif SLOTS == 2
#define ROW ((place_t)hdr.atp.index[0:0])
#elif SLOTS == 4
#define ROW ((place_t)hdr.atp.index[1:0])
#elif SLOTS == 8
#define ROW ((place_t)hdr.atp.index[2:0])
#elif SLOTS == 16
#define ROW ((place_t)hdr.atp.index[3:0])
#elif SLOTS == 32
#define ROW ((place_t)hdr.atp.index[4:0])
#elif SLOTS == 64
#define ROW ((place_t)hdr.atp.index[5:0])
#elif SLOTS == 128
#define ROW ((place_t)hdr.atp.index[6:0])
#elif SLOTS == 256
#define ROW ((place_t)hdr.atp.index[7:0])
#elif SLOTS == 512
#define ROW ((place_t)hdr.atp.index[8:0])
#elif SLOTS == 1024
#define ROW ((place_t)hdr.atp.index[9:0])
#elif SLOTS == 2048
#define ROW ((place_t)hdr.atp.index[10:0])
#elif SLOTS == 4096
#define ROW ((place_t)hdr.atp.index[11:0])
#elif SLOTS == 8192
#define ROW ((place_t)hdr.atp.index[12:0])
#elif SLOTS == 16384
#define ROW ((place_t)hdr.atp.index[13:0])
#endif

// Binary logarithm of the cells of 80 bytes that a packet has, about.
#if VALUES == 32
const bit<8> CELLS_OF_PACKET = 1;
#elif VALUES == 64
const bit<8> CELLS_OF_PACKET = 2;
#elif VALUES == 128
const bit<8> CELLS_OF_PACKET = 3;
#elif VALUES == 256
const bit<8> CELLS_OF_PACKET = 4;
#elif VALUES == 1024
const bit<8> CELLS_OF_PACKET = 6;
#else
const bit<8> CELLS_OF_PACKET = 7;
#endif

// What egress looks up leaves the first stage's tables to ingress.
#define EGRESS_STAGE @stage(1)

/* Of atp_t the number, in the words that registers have. */
header number_t {
    bit<32> front;
    bit<32> high;  // life, job, sequence[39:32]
    bit<32> low;   // sequence[31:0]
}

/* What a packet carries between passes, and to the egress; never on a wire. */
header bridge_t {
    Pass    pass;
    Op      op;
    bit<8>  chunk;       // of the next 32 values
    bit<1>  replicated;
    bit<1>  load;        // the sum goes up in it
    bit<1>  absorbed;    // with `load`: refused, what it was to take up is not whole
    bit<1>  claimed;     // it took the aggregator: the record of the last number is to be written
    bit<1>  evicted;     // the aggregator is free when it leaves
    bit<1>  first;
    bit<1>  downwards;
    bit<1>  outdated;    // of another version: the sender is told
    bit<7>  unused;
    bit<9>  port;        // by which it came
    bit<16> group;
    cell_place_t cell;   // of the next 32 values
    bit<32> surplus;     // workers that `seen` has because of it, though it was passed on
    bit<32> ecn_depth;
    bit<32> ticket;      // place among the additions to its aggregator
    bit<32> incarnation; // of the job
}

struct packet_t {
    bridge_t   bridge;
    flags_t    flags;
    ethernet_t ethernet;
    ipv4_t     ipv4;
    udp_t      udp;
    atp_t      atp;
    check_t    check;
    pending_t  pending;
    lanes_t    lanes;
}

/* Metadata between the stages of a pass; see ../../../include/atp/metadata.p4. */
struct state_t {
    bit<32>  source;       // IPv4 address that the frame says it is from; 0: none
    bool     bad_checksum;
    bool     bad_headers;
    Drop     drop;
    Fate     fate;
    // of the job and the source
    bit<32>  full;
    bit<1>   downwards;
    bit<1>   sums;         // the packet may be added here
    bit<1>   wants;        // and may begin a sum
    bit<32>  others;       // all workers but the packet's
    Op       join;         // what it does if it is added
    bit<8>   kind;
    // of its number, in the words that registers have
    bit<32>  high;         // life, job, sequence[39:32]
    bit<32>  low;          // sequence[31:0]
    bit<32>  differs;      // in the high word from the number that was here last
    bit<8>   same_low;
    bit<8>   ahead;
    // of its time
    bit<32>  now;
    bit<32>  horizon;      // what was claimed before is not believed
    // of the aggregator
    bit<1>   store;
    bit<1>   add;
    bit<8>   flags;        // that the packet brings: collision, ECN
}

struct egress_state_t {
    bit<1> unused;
}

#endif
