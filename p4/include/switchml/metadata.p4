/* What the stages tell each other about a packet. */
#ifndef INA_METADATA_P4
#define INA_METADATA_P4

#include "../size.p4"

const bit<32> ROWS = 2 * (SLOTS);  // a row is one set of one slot

/* Why an aggregation packet was dropped: the index into the counter `drops`. */
enum bit<8> Drop {
    NONE            = 0,
    MALFORMED       = 1,  // too short, wrong length in IPv4 or UDP, unknown type
    WRONG_SIZE      = 2,  // not the payload size of this program, or not the size and type of the other packets of its phase
    UNKNOWN_JOB     = 3,
    WRONG_SOURCE    = 4,  // no child of that job has this address, port and ingress port; nor, for pending frames, its parent
    OLD_LIFE        = 5,  // of an earlier job with the same number
    WRONG_SLOT      = 6,  // outside the job's range
    STALE           = 7,  // of a phase that is over, or not yet due
    REPEATED        = 8,  // the row already has it: the answer from above; and of published clients, if it is not complete
    NO_PARENT       = 9,  // table `job` says that there is a switch above, table `parent` not where
    LOST            = 10, // the row lacks a packet that has been counted; only where packets go round
    CORRUPT         = 11, // a checksum does not fit: IPv4's, or `headers` of the check header
    VERSION         = 12  // of another version; a child is told (refused)
}
const bit<32> DROPS = 13;

/* Where what is sent because of a packet goes. */
enum bit<8> To {
    NOBODY   = 0,
    SENDER   = 1,
    CHILDREN = 2,
    PARENT   = 3
}

struct metadata_t {
    Drop    drop;
    bit<32> source;       // IPv4 address that a frame other than IPv4 says it is from; 0: none
    // of the job and the sender, from the tables; a child is a worker or a switch below
    bit<32> full;         // bitmap of all workers below this switch
    bit<32> worker;       // the sender's bit; of a switch below: those of all workers below it; of the parent: none
    bit<8>  last;         // children - 1
    bit<32> incarnation;  // unlike that of all other jobs, whatever their number: rows have it
    bit<16> group;        // multicast group of the job: its children here
    bit<1>  strict;       // 0: a published SwitchML client, whose tsi and e1 say nothing
    bit<1>  parent;       // this switch is not the root of the job's tree
    // of the row
    bit<32> row;
    bit<32> missing;      // workers below this switch that this phase has not seen yet
    bit<1>  first;        // what the row has is replaced: first packet of the phase, or the result from above
    bit<1>  repeated;     // nothing is added: the sender was seen in this phase before
    bit<1>  complete;     // the row's values go out
    To      to;
    // for egress
    bit<1>  result;       // multicast to the children: each replica is addressed to its child
    bit<1>  flood;        // broadcast frame: not back to where it came from
}

#endif
