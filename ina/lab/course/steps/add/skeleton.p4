/* exercise: add
 *
 * Add up the vectors of two workers. `ina exercise show add` has the task; `ina exercise check add.p4` runs the tests.
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
        // TODO: store the value if it is the first one of its block, else add it. `value` is inout: the caller finds the sum there.
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
        // TODO: leave out slots that there are not.

        bit<32> slot = (bit<32>)hdr.sum.slot;
        bit<8> count;
        // TODO: is this the first contribution to the slot? Then apply the four lanes, lane0 to hdr.values.v0 and so on.

        // TODO: count it. If it is the last one, empty the slot, and send the result.
        // Hint: standard.mcast_grp = 1 sends it to group 1, in spite of the drop at the top.
    }
}

control Leave(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {}
}

V1Switch(Parse(), Verify(), Add(), Leave(), Update(), Deparse()) main;
