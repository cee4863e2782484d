/* Aggregation: the sum (or the maxima) that an aggregator holds, with its largest exponent and its flags. */
#ifndef INA_ATP_AGGREGATION_P4
#define INA_ATP_AGGREGATION_P4

#include "headers.p4"
#include "metadata.p4"

/* One register per payload value, and one for each check word; sums wrap modulo 2^LANE_BITS, so their order never matters. */
control Sums(inout headers_t hdr, in metadata_t meta) {
    register<bit<8>>(SLOTS) exponents;
    register<bit<8>>(SLOTS) flags;  // collision, ECN
    register<bit<LANE_BITS>>(SLOTS) overflows;
    register<bit<32>>(SLOTS) check0;
    register<bit<32>>(SLOTS) check1;
#define VALUE_REGISTER(i) register<bit<LANE_BITS>>(SLOTS) value##i;
    FOR_EACH_VALUE(VALUE_REGISTER)

    action store() {
        overflows.write(meta.row, (bit<LANE_BITS>)hdr.atp.overflow << LANE_SIGN);
        check0.write(meta.row, hdr.check.check0);
        check1.write(meta.row, hdr.check.check1);
#define STORE(i) value##i.write(meta.row, hdr.values.v##i);
        FOR_EACH_VALUE(STORE)
    }

    action add() {
        bit<LANE_BITS> overflow;
        overflows.read(overflow, meta.row);
        overflow = overflow | (bit<LANE_BITS>)hdr.atp.overflow << LANE_SIGN;
        bit<32> word;
        check0.read(word, meta.row);
        check0.write(meta.row, word + hdr.check.check0);
        check1.read(word, meta.row);
        check1.write(meta.row, word + hdr.check.check1);
#define ADD(i) { bit<LANE_BITS> old; value##i.read(old, meta.row); \
                 bit<LANE_BITS> sum = old + hdr.values.v##i; \
                 overflow = overflow | ((old ^ sum) & (hdr.values.v##i ^ sum)); \
                 value##i.write(meta.row, sum); }
        FOR_EACH_VALUE(ADD)
        overflows.write(meta.row, overflow);
    }

    action maximum() {
#define MAXIMUM(i) { bit<LANE_BITS> old; value##i.read(old, meta.row); \
                     value##i.write(meta.row, (int<LANE_BITS>)hdr.values.v##i > (int<LANE_BITS>)old ? hdr.values.v##i : old); }
        FOR_EACH_VALUE(MAXIMUM)
    }

    action load() {
        bit<LANE_BITS> overflow;
        overflows.read(overflow, meta.row);
        hdr.atp.overflow = overflow[LANE_SIGN:LANE_SIGN];  // two operands of one sign, a sum of the other
        check0.read(hdr.check.check0, meta.row);
        check1.read(hdr.check.check1, meta.row);
#define LOAD(i) value##i.read(hdr.values.v##i, meta.row);
        FOR_EACH_VALUE(LOAD)
    }

    apply {
        if (meta.store == 1 || meta.add == 1 || meta.load == 1) {
            bit<8> largest;
            bit<8> seen;
            bit<8> flag = (bit<8>)(hdr.atp.collision ++ hdr.atp.ecn);
            exponents.read(largest, meta.row);
            flags.read(seen, meta.row);
            if (meta.store == 1) {
                largest = (bit<8>)hdr.atp.exponent;
                seen = flag;
            } else {
                seen = seen | flag;
                if (meta.add == 1 && hdr.atp.exponent > (int<8>)largest) {
                    largest = (bit<8>)hdr.atp.exponent;
                }
            }
            exponents.write(meta.row, largest);
            flags.write(meta.row, seen);
            if (meta.load == 1) {
                hdr.atp.exponent = (int<8>)largest;
                hdr.atp.collision = seen[1:1];
                hdr.atp.ecn = seen[0:0];
            }
            if (hdr.values.isValid()) {
                if (meta.store == 1) {
                    store();
                } else if (meta.add == 1 && hdr.atp.msg_type == Type.MAXIMA) {
                    maximum();
                } else if (meta.add == 1) {
                    add();
                }
                if (meta.load == 1) {
                    load();
                }
            }
        }
    }
}

#endif
