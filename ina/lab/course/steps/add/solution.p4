/* exercise: add
 *
 * Adds up the vectors of two workers.
 */
#include "course.p4"

// Slots of this job. The registers have a cell for each number that the field can have: the others belong to other jobs.
const bit<7> SLOTS = 4;
const bit<8> WORKERS = 2;

// One of the four values of each slot: its sum so far.
control Lane(inout bit<32> value, in bit<32> slot, in bool first) {
    register<bit<32>>(128) sums;

    apply {
        bit<32> sum;
        sums.read(sum, slot);
        if (!first) {
            value = value + sum;
        }
        sums.write(slot, value);
    }
}

control Add(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<8>>(128) arrived;  // contributions to each slot so far
    Lane() lane0;
    Lane() lane1;
    Lane() lane2;
    Lane() lane3;

    apply {
        mark_to_drop(standard);
        if (standard.parser_error != error.NoError || !hdr.sum.isValid() || hdr.sum.kind != CONTRIBUTION) {
            return;
        }
        if (hdr.sum.slot >= SLOTS) {
            return;
        }
        bit<32> slot = (bit<32>)hdr.sum.slot;
        bit<8> count;
        arrived.read(count, slot);
        bool first = count == 0;
        lane0.apply(hdr.values.v0, slot, first);
        lane1.apply(hdr.values.v1, slot, first);
        lane2.apply(hdr.values.v2, slot, first);
        lane3.apply(hdr.values.v3, slot, first);
        count = count + 1;
        if (count == WORKERS) {
            count = 0;
            hdr.sum.kind = RESULT;
            standard.mcast_grp = 1;
        }
        arrived.write(slot, count);
    }
}

control Leave(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {}
}

V1Switch(Parse(), Verify(), Add(), Leave(), Update(), Deparse()) main;
