/* Aggregation, but for the values (lanes.p4): the largest exponent of a sum and its flags. */
#ifndef INA_TOFINO_ATP_AGGREGATION_P4
#define INA_TOFINO_ATP_AGGREGATION_P4

#include "atp_headers.p4"

control Marks(inout packet_t hdr, in state_t meta) {
    bit<8> own = 0;  // flags that the packet brings: collision, ECN

    Register<int<8>, bit<32>>(SLOTS, 0) exponents;
    RegisterAction<int<8>, bit<32>, int<8>>(exponents) begin_exponent = {
        void apply(inout int<8> largest, out int<8> now) {
            largest = hdr.atp.exponent;
            now = largest;
        }
    };
    RegisterAction<int<8>, bit<32>, int<8>>(exponents) join_exponent = {
        void apply(inout int<8> largest, out int<8> now) {
            if (hdr.atp.exponent > largest) {
                largest = hdr.atp.exponent;
            }
            now = largest;
        }
    };
    RegisterAction<int<8>, bit<32>, int<8>>(exponents) look_at_exponent = {
        void apply(inout int<8> largest, out int<8> now) {
            now = largest;
        }
    };

    Register<bit<8>, bit<32>>(SLOTS, 0) flags;
    RegisterAction<bit<8>, bit<32>, bit<8>>(flags) begin_flags = {
        void apply(inout bit<8> of_sum, out bit<8> now) {
            of_sum = own;
            now = of_sum;
        }
    };
    RegisterAction<bit<8>, bit<32>, bit<8>>(flags) join_flags = {
        void apply(inout bit<8> of_sum, out bit<8> now) {
            of_sum = of_sum | own;
            now = of_sum;
        }
    };

    Register<bit<8>, bit<32>>(SLOTS, 0) overflows;  // whether a packet in the sum came with the overflow flag set
    RegisterAction<bit<8>, bit<32>, bit<8>>(overflows) begin_overflow = {
        void apply(inout bit<8> overflow, out bit<8> now) {
            overflow = (bit<8>)hdr.atp.overflow;
            now = overflow;
        }
    };
    RegisterAction<bit<8>, bit<32>, bit<8>>(overflows) join_overflow = {
        void apply(inout bit<8> overflow, out bit<8> now) {
            overflow = overflow | (bit<8>)hdr.atp.overflow;
            now = overflow;
        }
    };
    RegisterAction<bit<8>, bit<32>, bit<8>>(overflows) look_at_overflow = {
        void apply(inout bit<8> overflow, out bit<8> now) {
            now = overflow;
        }
    };

    apply {
        int<8> largest;
        bit<8> seen;
        bit<8> overflow;
        own = (bit<8>)(hdr.atp.collision ++ hdr.atp.ecn);
        if (meta.store == 1) {
            largest = begin_exponent.execute(meta.row);
            seen = begin_flags.execute(meta.row);
        } else if (meta.add == 1) {
            largest = join_exponent.execute(meta.row);
            seen = join_flags.execute(meta.row);
        } else {
            largest = look_at_exponent.execute(meta.row);
            seen = join_flags.execute(meta.row);
        }
        if (meta.load == 1) {
            hdr.atp.exponent = largest;
            hdr.atp.collision = seen[1:1];
            hdr.atp.ecn = seen[0:0];
        }
        if (hdr.lanes.isValid()) {
            if (meta.store == 1) {
                overflow = begin_overflow.execute(meta.row);
            } else if (meta.add == 1 && hdr.atp.msg_type != Type.MAXIMA) {
                overflow = join_overflow.execute(meta.row);
            } else {
                overflow = look_at_overflow.execute(meta.row);
            }
            if (meta.load == 1) {
                hdr.atp.overflow = overflow[0:0];
            }
        }
    }
}

#endif
