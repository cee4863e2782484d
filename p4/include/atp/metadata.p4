/* What the stages tell each other about a packet. */
#ifndef INA_ATP_METADATA_P4
#define INA_ATP_METADATA_P4

#include "../size.p4"

/* Why an aggregation packet was dropped: the index into the counter `drops`. */
enum bit<8> Drop {
    NONE            = 0,
    MALFORMED       = 1,  // too short, wrong length in IPv4 or UDP, unknown type
    WRONG_SIZE      = 2,  // not the payload size of this program, or not the kind of the others of its number
    UNKNOWN_JOB     = 3,
    WRONG_SOURCE    = 4,  // nobody of that job has this address, port and ingress port, or may send this type
    WRONG_WORKERS   = 5,  // it speaks for workers that are not behind its source
    OLD_LIFE        = 6,  // of an earlier job with the same number
    REPEATED        = 7,  // the aggregator has it already
    LOST            = 8,  // the aggregator lacks a packet that has been counted; only where packets go round
    CORRUPT         = 9,  // a checksum does not fit: IPv4's, or `headers` of the check header
    VERSION         = 10  // of another version; a child is told (refused)
}
const bit<32> DROPS = 11;

/* What became of a data or floats packet: the index, for each job, into the counter `fates`. */
enum bit<8> Fate {
    CLAIMED   = 0,  // the first in its aggregator; absorbed
    MERGED    = 1,  // added; absorbed
    COMPLETED = 2,  // the last one: the sum went up with it
    COLLIDED  = 3,  // went up as it came: the aggregator was taken
    PASSED    = 4,  // went up as it came, for another reason
    EVICTED   = 5,  // resent: what the aggregator held went up with it
    TAKEN     = 6   // as CLAIMED, from something that was too old to live
}
const bit<32> FATES = 8;

struct metadata_t {
    Drop    drop;
    bit<32> source;       // IPv4 address that a frame other than IPv4 says it is from; 0: none
    Fate    fate;
    // of the job and the source, from the tables
    bit<32> full;         // all workers below this switch
    bit<32> workers;      // those behind the source of this packet
    bit<32> incarnation;  // unlike that of all other jobs, whatever their number: aggregators have it
    bit<16> group;        // multicast group of the job
    bit<1>  aggregate;    // 0: everything is passed on
    bit<1>  downwards;    // it comes from above
    bit<1>  refuse;       // back to where it came from: its version is not this switch's
    bit<19> ecn_depth;    // packets queued from which ECN is set; 0: never
    bit<32> lifetime;     // us for which what an aggregator says is believed
    // of the aggregator
    bit<32> row;
    bit<1>  store;        // the packet's values begin a sum
    bit<1>  add;          // they are added
    bit<1>  load;         // the sum goes up in the packet
    // for egress
    bit<1>  replicated;   // multicast: each replica is addressed to its child
    bit<1>  flood;        // broadcast frame: not back to where it came from
}

#endif
