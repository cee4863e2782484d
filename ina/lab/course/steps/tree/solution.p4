/* exercise: tree
 *
 * Adds up the vectors of jobs whose workers are at several switches: as a leaf, or as the root.
 */
#include "course.p4"

const bit<8> JOBS = 4;
const bit<7> SLOTS = 4;  // of each job
const bit<48> SWITCH = 0x020000000100;  // this switch's address
#define ROWS 32 /* of all jobs, slots and versions */

// What a lane does with a value.
const bit<2> STORE = 0;  // begin a sum
const bit<2> ADD = 1;    // add to it
const bit<2> READ = 2;   // put the sum in the value's place

// One of the four values of each row: its sum so far.
control Lane(inout bit<32> value, in bit<32> row, in bit<2> operation) {
    register<bit<32>>(ROWS) sums;

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
    register<bit<8>>(ROWS) seen;     // bitmap of the workers that have contributed to each row
    register<bit<16>>(ROWS) blocks;  // the block that is added up in each row
    register<bit<1>>(ROWS) done;     // 1: the row has the result, and no partial sum
    Lane() lane0;
    Lane() lane1;
    Lane() lane2;
    Lane() lane3;
    bit<8> workers;   // bitmap of all workers of the job, from table jobs
    bit<16> results;  // multicast group of the job
    bit<1> leaf;      // 1: this switch is a leaf for the job
    bit<9> up;        // the port to the root, of a leaf

    action set_root(bit<8> all, bit<16> group) {
        workers = all;
        results = group;
        leaf = 0;
    }
    action set_leaf(bit<8> all, bit<16> group, bit<9> parent) {
        workers = all;
        results = group;
        leaf = 1;
        up = parent;
    }
    table jobs {
        key = {
            hdr.sum.job: exact;
        }
        actions = {
            set_root;
            set_leaf;
            NoAction;
        }
        default_action = NoAction();
        size = 16;
    }

    apply {
        mark_to_drop(standard);
        if (standard.parser_error != error.NoError || !hdr.sum.isValid()) {
            return;
        }
        if (hdr.sum.job >= JOBS || hdr.sum.slot >= SLOTS || !jobs.apply().hit) {
            return;
        }
        bit<32> row = (bit<32>)(hdr.sum.job[1:0] ++ hdr.sum.slot[1:0] ++ hdr.sum.version);
        bit<8> bitmap;
        bit<16> block;
        bit<1> finished;
        bit<2> operation;
        seen.read(bitmap, row);
        blocks.read(block, row);
        done.read(finished, row);
        if (hdr.sum.kind == CONTRIBUTION) {
            bit<8> mine = 8w1 << hdr.sum.worker;
            if (mine & workers == 0) {
                return;
            }
            if (bitmap == 0 || (bitmap == workers && hdr.sum.block > block)) {
                operation = STORE;
                bitmap = 0;
                finished = 0;
                blocks.write(row, hdr.sum.block);
            } else if (hdr.sum.block != block) {
                return;
            } else if (bitmap & mine == 0) {
                operation = ADD;
            } else if (bitmap == workers) {
                operation = READ;
            } else {
                return;
            }
            bitmap = bitmap | mine;
            if (finished == 1) {
                hdr.sum.kind = RESULT;
                standard.egress_spec = standard.ingress_port;
            } else if (bitmap == workers) {
                if (leaf == 1) {
                    standard.egress_spec = up;
                } else {
                    finished = 1;
                    hdr.sum.kind = RESULT;
                    standard.mcast_grp = results;
                }
            }
        } else if (hdr.sum.kind == RESULT) {
            if (leaf == 0 || standard.ingress_port != up || hdr.sum.block != block || bitmap != workers || finished == 1) {
                return;
            }
            operation = STORE;
            finished = 1;
            standard.mcast_grp = results;
        } else {
            return;
        }
        seen.write(row, bitmap);
        done.write(row, finished);
        lane0.apply(hdr.values.v0, row, operation);
        lane1.apply(hdr.values.v1, row, operation);
        lane2.apply(hdr.values.v2, row, operation);
        lane3.apply(hdr.values.v3, row, operation);
    }
}

control Leave(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action set_address(bit<48> address, bit<8> worker) {
        hdr.ethernet.src = SWITCH;
        hdr.ethernet.dst = address;
        hdr.sum.worker = worker;
    }
    action drop() {
        mark_to_drop(standard);
    }
    table addresses {
        key = {
            standard.egress_port: exact;
        }
        actions = {
            set_address;
            drop;
        }
        default_action = drop();
        size = 16;
    }

    apply {
        addresses.apply();
    }
}

V1Switch(Parse(), Verify(), Add(), Leave(), Update(), Deparse()) main;
