/* Aggregation: the row's sums or maxima, its largest exponent and its overflow flag; a result from above takes their place. */
#ifndef INA_AGGREGATION_P4
#define INA_AGGREGATION_P4

#include "headers.p4"
#include "metadata.p4"

/* Largest exponent of the phase. Published clients carry two, ours one and the job's life, which stays as it is. */
control Exponents(inout headers_t hdr, in metadata_t meta) {
    register<bit<8>>(ROWS) exponents0;
    register<bit<8>>(ROWS) exponents1;

    apply {
        bit<8> largest0;
        bit<8> largest1;
        exponents0.read(largest0, meta.row);
        exponents1.read(largest1, meta.row);
        if (meta.repeated == 0) {
            if (meta.first == 1 || hdr.exponents.e0 > (int<8>)largest0) {
                largest0 = (bit<8>)hdr.exponents.e0;
            }
            if (meta.first == 1 || hdr.exponents.e1 > (int<8>)largest1) {
                largest1 = (bit<8>)hdr.exponents.e1;
            }
            exponents0.write(meta.row, largest0);
            exponents1.write(meta.row, largest1);
        }
        if (meta.complete == 1) {
            hdr.exponents.e0 = (int<8>)largest0;
            hdr.exponents.e1 = (int<8>)largest1;
        }
    }
}

/* One register per payload value, and one for each check word; sums wrap modulo 2^LANE_BITS, so their order never matters. */
control Values(inout headers_t hdr, in metadata_t meta) {
    register<bit<LANE_BITS>>(ROWS) overflows;
    register<bit<32>>(ROWS) check0;
    register<bit<32>>(ROWS) check1;
#define VALUE_REGISTER(i) register<bit<LANE_BITS>>(ROWS) value##i;
    FOR_EACH_VALUE(VALUE_REGISTER)

    action store() {
#define STORE(i) value##i.write(meta.row, hdr.values.v##i);
        FOR_EACH_VALUE(STORE)
        overflows.write(meta.row, (bit<LANE_BITS>)hdr.switchml.overflow << LANE_SIGN);
    }

    action store_words() {
        check0.write(meta.row, hdr.check.check0);
        check1.write(meta.row, hdr.check.check1);
    }

    action add() {
        bit<LANE_BITS> overflow;
        overflows.read(overflow, meta.row);
        overflow = overflow | (bit<LANE_BITS>)hdr.switchml.overflow << LANE_SIGN;  // of a switch below
#define ADD(i) { bit<LANE_BITS> old; value##i.read(old, meta.row); \
                 bit<LANE_BITS> sum = old + hdr.values.v##i; \
                 overflow = overflow | ((old ^ sum) & (hdr.values.v##i ^ sum)); \
                 value##i.write(meta.row, sum); }
        FOR_EACH_VALUE(ADD)
        overflows.write(meta.row, overflow);
    }

    action add_words() {
        bit<32> word;
        check0.read(word, meta.row);
        check0.write(meta.row, word + hdr.check.check0);
        check1.read(word, meta.row);
        check1.write(meta.row, word + hdr.check.check1);
    }

    action maximum() {
#define MAXIMUM(i) { bit<LANE_BITS> old; value##i.read(old, meta.row); \
                     value##i.write(meta.row, (int<LANE_BITS>)old > (int<LANE_BITS>)hdr.values.v##i ? old : hdr.values.v##i); }
        FOR_EACH_VALUE(MAXIMUM)
    }

    action load() {
        bit<LANE_BITS> overflow;
        overflows.read(overflow, meta.row);
        hdr.switchml.overflow = overflow[LANE_SIGN:LANE_SIGN];  // two operands of one sign, a sum of the other
#define LOAD(i) value##i.read(hdr.values.v##i, meta.row);
        FOR_EACH_VALUE(LOAD)
    }

    action load_words() {
        check0.read(hdr.check.check0, meta.row);
        check1.read(hdr.check.check1, meta.row);
    }

    apply {
        if (hdr.values.isValid()) {
            if (meta.first == 1) {
                store();
                if (hdr.check.isValid()) {  // published clients have none
                    store_words();
                }
            } else if (meta.repeated == 0) {
                if (hdr.switchml.msg_type == SWITCHML_MAXIMUM) @unlikely {
                    maximum();
                } else {
                    add();
                    if (hdr.check.isValid()) {
                        add_words();
                    }
                }
            }
            if (meta.complete == 1) {
                load();
                if (hdr.check.isValid()) {
                    load_words();
                }
            }
        } else {
            hdr.switchml.overflow = 0;
        }
    }
}

#endif
