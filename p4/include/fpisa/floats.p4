/* Floats: the row's sums of floats, in the order in which they come (Yuan et al., NSDI'22): with other orders other places are cut
 * off. All children get the same bits. A result from above takes the sums' place.
 *
 * In a fixed order (-DFIXED_ORDER=n) the row keeps what each child has sent, and adds it up when it is complete, in the order of the
 * children's lowest workers: a job's sums have the same bits in every run, for n times the memory.
 *
 * FPISA: both the sum so far and the number that comes are cut to the larger of their exponents.
 *
 * FPISA-A (-DFPISA_A) has what a Tofino can do, which adds to a mantissa that it reads, but does not shift it: a number with a larger
 * exponent is shifted into the head-room instead, and by more than 7 places takes the place of what is there. A shift cuts towards
 * minus infinity, and beyond 31 places to zero. A sum that has come to an end of the head-room stays there, and is marked as an
 * overflow.
 */
#ifndef INA_FLOATS_P4
#define INA_FLOATS_P4

#include "headers.p4"
#include "../switchml/metadata.p4"
#include "numbers.p4"

const exponent_t HEAD_ROOM = 7;
const int<32> MOST  = 0x7fffffff;  // mantissas
const int<32> LEAST = -0x80000000;

#ifdef FIXED_ORDER
#ifdef FPISA_A
#error "FIXED_ORDER is FPISA's, not FPISA-A's"
#endif
#if FIXED_ORDER == 2
#define FOR_EACH_PLACE(M) M(0) M(1)
#elif FIXED_ORDER == 4
#define FOR_EACH_PLACE(M) M(0) M(1) M(2) M(3)
#elif FIXED_ORDER == 8
#define FOR_EACH_PLACE(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7)
#elif FIXED_ORDER == 16
#define FOR_EACH_PLACE(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11) M(12) M(13) M(14) M(15)
#else
#error "FIXED_ORDER must be 2, 4, 8 or 16"
#endif
#endif

/* The sum of one value: `begins`, `adds` it, `leaves`. */
control Number(inout bit<32> value, inout bit<1> overflow, in bit<32> row, in bool begins, in bool adds, in bool leaves) {
    register<exponent_t>(ROWS) exponents;
    register<bit<32>>(ROWS) mantissas;

    apply {
        exponent_t exponent = 1;
        bit<32> mantissa = 0;
        if (!begins) {
            exponents.read(exponent, row);
            mantissas.read(mantissa, row);
        }
        if (adds) {
            exponent_t own = EXPONENT_OF(value);
            bit<32> more = MANTISSA_OF(value);
#ifdef FPISA_A
            exponent_t limit = exponent + HEAD_ROOM;
            exponent_t places = limit - own;
            int<32> stored = (int<32>)mantissa;
            int<32> aligned = places > 31 ? 32s0 : (int<32>)(more << (bit<8>)HEAD_ROOM) >> (bit<8>)places;
            bool replaces = begins || own > limit;
            int<32> sum = stored == MOST || stored == LEAST ? stored : stored |+| aligned;
            mantissa = replaces ? more : (bit<32>)sum;
            exponent = replaces ? own : exponent;
#else
            exponent_t largest = own > exponent ? own : exponent;
            mantissa = CUT(mantissa, largest - exponent) + CUT(more, largest - own);
            exponent = largest;
#endif
            exponents.write(row, exponent);
            mantissas.write(row, mantissa);
        }
        if (leaves) {
#ifdef FPISA_A
            overflow = overflow | ((int<32>)mantissa == MOST || (int<32>)mantissa == LEAST ? 1w1 : 1w0);
#endif
            value = float_of(exponent, mantissa);
        }
    }
}

control Floats(inout headers_t hdr, in metadata_t meta) {
    register<bit<1>>(ROWS) overflows;
#define NUMBER(i) Number() number##i;
    FOR_EACH_VALUE(NUMBER)
#define APPLY_NUMBER(i) number##i.apply(hdr.values.v##i, overflow, meta.row, begins, adds, leaves);

#ifdef FIXED_ORDER
    register<bit<32>>(ROWS) children;  // whose numbers the row keeps: of each its lowest worker
#define PLACES(i) register<bit<32>>(ROWS * (FIXED_ORDER)) places##i;
    FOR_EACH_VALUE(PLACES)

    action keep(bit<32> place) {
#define KEEP(i) places##i.write(meta.row * (FIXED_ORDER) + place, hdr.values.v##i);
        FOR_EACH_VALUE(KEEP)
    }
    action recall(bit<32> place) {
#define RECALL(i) places##i.read(hdr.values.v##i, meta.row * (FIXED_ORDER) + place);
        FOR_EACH_VALUE(RECALL)
    }

    apply {
        bit<1> overflow = 0;
        bit<32> kept = 0;
        bit<32> lowest = meta.worker & -meta.worker;
        if (hdr.values.isValid() && meta.repeated == 0) {
            if (meta.first == 0) {
                children.read(kept, meta.row);
            }
            bit<16> place = place_of(lowest);
            children.write(meta.row, kept | 32w1 << (bit<8>)place);
            keep((bit<32>)place);
        }
        if (hdr.values.isValid() && meta.complete == 1) {
            children.read(kept, meta.row);
            bool begins = true;
            bool adds = true;
            bool leaves = false;
#define ADD_PLACE(k) if (kept[k:k] == 1) { recall(k); FOR_EACH_VALUE(APPLY_NUMBER) begins = false; }
            FOR_EACH_PLACE(ADD_PLACE)
            adds = false;
            leaves = true;
            FOR_EACH_VALUE(APPLY_NUMBER)
        }
        hdr.switchml.overflow = overflow;
    }
#else
    apply {
        bit<1> overflow = 0;
        bool begins = meta.first == 1;
        bool adds = meta.repeated == 0;
        bool leaves = meta.complete == 1;
        if (!begins) {
            overflows.read(overflow, meta.row);
        }
        if (adds) {
            overflow = overflow | hdr.switchml.overflow;  // of a switch below
        }
        overflows.write(meta.row, overflow);
        if (hdr.values.isValid()) {
            FOR_EACH_VALUE(APPLY_NUMBER)
            hdr.switchml.overflow = overflow;
        } else {
            hdr.switchml.overflow = 0;
        }
    }
#endif
}

#endif
