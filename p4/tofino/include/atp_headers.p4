/* What the packets of atp.p4 look like inside the switch: those of ../../include/atp_headers.p4, 32 values at a time. */
#ifndef INA_TOFINO_ATP_HEADERS_P4
#define INA_TOFINO_ATP_HEADERS_P4

#include "../../include/atp_headers.p4"
#include "../../include/atp_metadata.p4"

const bit<32> ROWS  = SLOTS;
const bit<32> CELLS = ROWS * (VALUES / 32);

#include "passes.p4"

/* Only in a pending frame: the workers that the server has. The switch only wants to know that it is there. */
header pending_t {
    bit<32> bitmap;
}

/* What a packet carries between passes, and to the egress; never on a wire. */
header bridge_t {
    Pass    pass;
    Op      op;
    bit<8>  chunk;       // of the next 32 values
    bit<1>  replicated;
    bit<1>  load;        // the sum goes up in it
    bit<1>  absorbed;
    bit<1>  claimed;     // it took the aggregator: the record of the last number is to be written
    bit<1>  evicted;     // the aggregator is free when it leaves
    bit<1>  first;
    bit<1>  unused;
    bit<9>  port;        // by which it came
    bit<32> cell;        // of the next 32 values
    bit<32> row;
    bit<32> surplus;     // workers that `seen` has because of it, though it was passed on
    bit<32> overflow0;   // of the values up to now, a quarter of the lanes each
    bit<32> overflow1;
    bit<32> overflow2;
    bit<32> overflow3;
    bit<13> unused2;
    bit<19> ecn_depth;
}

struct packet_t {
    bridge_t   bridge;
    ethernet_t ethernet;
    ipv4_t     ipv4;
    udp_t      udp;
    atp_t      atp;
    pending_t  pending;
    lanes_t    lanes;
}

/* What the stages of a pass tell each other; see ../../include/atp_metadata.p4. */
struct state_t {
    Pass     pass;
    PortId_t port;
    bool     bad_checksum;
    Drop     drop;
    Fate     fate;
    // of the job and the source
    bit<32>  full;
    bit<32>  workers;
    bit<32>  incarnation;
    bit<16>  group;
    bit<1>   aggregate;
    bit<1>   downwards;
    bit<19>  ecn_depth;
    bit<32>  lifetime;
    // of the number: the header's, in the words that registers have
    bit<32>  high;         // incarnation, job, sequence[39:32]
    bit<32>  low;          // sequence[31:0]
    // of the aggregator
    bit<32>  row;
    bit<1>   store;
    bit<1>   add;
    bit<1>   load;
    bit<1>   absorbed;
    bit<1>   claimed;
    bit<1>   evicted;
    bit<32>  surplus;
    // of the values
    Op       op;
    bit<1>   first;
    bit<8>   chunk;
    bit<32>  cell;
    bit<32>  overflow0;
    bit<32>  overflow1;
    bit<32>  overflow2;
    bit<32>  overflow3;
}

struct egress_state_t {
    bit<1> unused;
}

#endif
