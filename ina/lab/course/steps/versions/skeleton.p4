/* exercise: versions
 *
 * Add up the vectors of two workers, in two versions of each slot. `ina exercise show versions` has the task;
 * `ina exercise check versions.p4` runs the tests.
 */
#include "course.p4"

// Slots of this job. The registers have a row for each number that the fields slot and version can have together.
const bit<7> SLOTS = 4;
const bit<8> WORKERS = 2;

// What a lane does with a value.
const bit<2> STORE = 0;  // begin a sum
const bit<2> ADD = 1;    // add to it
const bit<2> READ = 2;   // put the sum in the value's place

// One of the four values of each row: its sum so far.
control Lane(inout bit<32> value, in bit<32> row, in bit<2> operation) {
    register<bit<32>>(256) sums;

    apply {
        bit<32> sum;
        sums.read(sum, row);
        if (operation == ADD) {
            value = value + sum;
        } else if (operation == READ) {
            value = sum;
        }
        sums.write(row, value);
    }
}

control Add(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<8>>(256) arrived;  // contributions to each row; WORKERS: its sum is complete
    Lane() lane0;
    Lane() lane1;
    Lane() lane2;
    Lane() lane3;

    apply {
        mark_to_drop(standard);
        if (standard.parser_error != error.NoError || !hdr.sum.isValid() || hdr.sum.slot >= SLOTS) {
            return;
        }
        // TODO: the row is the slot's and the version's number, side by side.
        // Hint: `a ++ b` puts the bits of b behind those of a.
        bit<32> row = (bit<32>)hdr.sum.slot;
        bit<8> count;
        bit<2> operation;
        arrived.read(count, row);
        if (hdr.sum.kind == CONTRIBUTION) {
            // This is step 4, where a slot is empty when its sum is complete.
            // TODO: keep the sum. When does the next one begin?
            operation = ADD;
            if (count == 0) {
                operation = STORE;
            }
            count = count + 1;
            if (count == WORKERS) {
                count = 0;
                hdr.sum.kind = RESULT;
                standard.mcast_grp = 1;
            }
            arrived.write(row, count);
        } else {
            // TODO: answer a question whose row has a complete sum.
            return;
        }
        lane0.apply(hdr.values.v0, row, operation);
        lane1.apply(hdr.values.v1, row, operation);
        lane2.apply(hdr.values.v2, row, operation);
        lane3.apply(hdr.values.v3, row, operation);
    }
}

control Leave(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {}
}

V1Switch(Parse(), Verify(), Add(), Leave(), Update(), Deparse()) main;
