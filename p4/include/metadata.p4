/* What the stages tell each other about a packet. */
#ifndef INA_METADATA_P4
#define INA_METADATA_P4

#include "size.p4"

const bit<32> ROWS = 2 * SLOTS;  // a row is one set of one slot

/* Why an aggregation packet was dropped: the index into the counter `drops`. */
enum bit<8> Drop {
    NONE            = 0,
    MALFORMED       = 1,  // too short, bad IPv4 header, wrong length in IPv4 or UDP, unknown type
    WRONG_SIZE      = 2,  // not the payload size of this program, or not that of the other packets of its phase
    UNKNOWN_JOB     = 3,
    WRONG_SOURCE    = 4,  // no worker of that job has this address, port and ingress port
    OLD_INCARNATION = 5,  // of an earlier job with the same number
    WRONG_SLOT      = 6,  // outside the job's range
    STALE           = 7,  // of a phase that is over, or not yet due
    REPEATED        = 8   // published clients only: the slot already has it and is not complete
}
const bit<32> DROPS = 9;

struct metadata_t {
    Drop    drop;
    // of the job and the worker, from the tables
    bit<32> full;         // bitmap of all workers of the job
    bit<32> worker;       // this worker's bit
    bit<8>  last;         // workers - 1
    bit<32> incarnation;
    bit<16> group;        // multicast group of the job
    bit<1>  strict;       // 0: a published SwitchML client, whose tsi and e1 say nothing
    // of the row
    bit<32> row;
    bit<32> bitmap;       // workers seen in this phase, this one included
    bit<1>  first;        // first packet of the phase
    bit<1>  repeated;     // the worker was seen in this phase before
    bit<1>  complete;     // all workers seen
    // for egress
    bit<1>  result;       // multicast result: each replica is addressed to its worker
    bit<1>  flood;        // broadcast frame: not back to where it came from
}

#endif
