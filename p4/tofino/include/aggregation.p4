/* Aggregation, but for the values (lanes.p4): the row's largest exponents, and the overflow flags that packets bring. */
#ifndef INA_TOFINO_AGGREGATION_P4
#define INA_TOFINO_AGGREGATION_P4

#include "headers.p4"

/* Largest exponent of the phase. Published clients carry two, ours one and the incarnation, which stays as it is. */
control Largest(inout int<8> exponent, in state_t meta) {
    Register<int<8>, bit<32>>(ROWS, 0) exponents;
    RegisterAction<int<8>, bit<32>, int<8>>(exponents) begin = {
        void apply(inout int<8> largest, out int<8> now) {
            largest = exponent;
            now = largest;
        }
    };
    RegisterAction<int<8>, bit<32>, int<8>>(exponents) join = {
        void apply(inout int<8> largest, out int<8> now) {
            if (exponent > largest) {
                largest = exponent;
            }
            now = largest;
        }
    };
    RegisterAction<int<8>, bit<32>, int<8>>(exponents) look = {
        void apply(inout int<8> largest, out int<8> now) {
            now = largest;
        }
    };

    apply {
        int<8> now;
        if (meta.first == 1) {
            now = begin.execute(meta.row);
        } else if (meta.op == Op.ADD || meta.op == Op.MAXIMUM) {
            now = join.execute(meta.row);
        } else {
            now = look.execute(meta.row);
        }
        if (meta.complete == 1) {
            exponent = now;
        }
    }
}

/* Whether a packet of this phase came with the overflow flag set. */
control Flags(inout packet_t hdr, in state_t meta) {
    Register<bit<8>, bit<32>>(ROWS, 0) overflows;
    RegisterAction<bit<8>, bit<32>, bit<8>>(overflows) begin = {
        void apply(inout bit<8> overflow, out bit<8> now) {
            overflow = (bit<8>)hdr.switchml.overflow;
            now = overflow;
        }
    };
    RegisterAction<bit<8>, bit<32>, bit<8>>(overflows) join = {
        void apply(inout bit<8> overflow, out bit<8> now) {
            overflow = overflow | (bit<8>)hdr.switchml.overflow;
            now = overflow;
        }
    };
    RegisterAction<bit<8>, bit<32>, bit<8>>(overflows) look = {
        void apply(inout bit<8> overflow, out bit<8> now) {
            now = overflow;
        }
    };

    apply {
        if (hdr.lanes.isValid()) {
            bit<8> now;
            if (meta.first == 1) {
                now = begin.execute(meta.row);
            } else if (meta.op == Op.ADD) {
                now = join.execute(meta.row);
            } else {
                now = look.execute(meta.row);
            }
            if (meta.complete == 1) {
                hdr.switchml.overflow = now[0:0];
            }
        } else {
            hdr.switchml.overflow = 0;
        }
    }
}

#endif
