/* exercise: loss
 *
 * Adds up the vectors of two workers, whatever is lost, late or repeated.
 */
#include "course.p4"

// Slots of this job. The registers have a row for each number that the fields slot and version can have together.
const bit<7> SLOTS = 4;
const bit<8> WORKERS = 2;
const bit<8> ALL = 3;  // the bitmap of all workers

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
    register<bit<8>>(256) seen;     // bitmap of the workers that have contributed to each row
    register<bit<16>>(256) blocks;  // the block that is added up in each row
    Lane() lane0;
    Lane() lane1;
    Lane() lane2;
    Lane() lane3;

    apply {
        mark_to_drop(standard);
        if (standard.parser_error != error.NoError || !hdr.sum.isValid() || hdr.sum.kind != CONTRIBUTION) {
            return;
        }
        if (hdr.sum.slot >= SLOTS || hdr.sum.worker >= WORKERS) {
            return;
        }
        bit<32> row = (bit<32>)(hdr.sum.slot ++ hdr.sum.version);
        bit<8> mine = 8w1 << hdr.sum.worker;
        bit<8> bitmap;
        bit<16> block;
        bit<2> operation;
        seen.read(bitmap, row);
        blocks.read(block, row);
        if (bitmap == 0 || (bitmap == ALL && hdr.sum.block > block)) {
            operation = STORE;
            bitmap = 0;
            blocks.write(row, hdr.sum.block);
        } else if (hdr.sum.block != block) {
            return;
        } else if (bitmap & mine == 0) {
            operation = ADD;
        } else if (bitmap == ALL) {
            operation = READ;
        } else {
            return;
        }
        bitmap = bitmap | mine;
        seen.write(row, bitmap);
        if (operation == READ) {
            hdr.sum.kind = RESULT;
            standard.egress_spec = standard.ingress_port;
        } else if (bitmap == ALL) {
            hdr.sum.kind = RESULT;
            standard.mcast_grp = 1;
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
