/* Sizes chosen at compile time, and the macro that writes one line per payload value.
 *
 *   -DVALUES=n   integers per packet: 32, 64, 128, 256 (default), 1024, 2048
 *   -DLANE_BITS=n  bits of each, two's complement: 32 (default), or those of another lane (host/protocol/lane.h)
 *   -DSLOTS=n    slots that all jobs share, a power of two up to 16384 (default 512); each has two sets
 */
#ifndef INA_SIZE_P4
#define INA_SIZE_P4

#ifndef VALUES
#define VALUES 256
#endif
#ifndef LANE_BITS
#define LANE_BITS 32
#endif
#ifndef SLOTS
#define SLOTS 512
#endif

#define LANE_SIGN (LANE_BITS - 1)            // the sign's place
#define VALUES_BYTES (LANE_BITS / 8 * VALUES)
#if LANE_BITS == 32
#define AND_LANE
#else
#define AND_LANE , lane=LANE_BITS            // in the annotation of a program
#endif

#if SLOTS < 1 || SLOTS > 16384 || (SLOTS & (SLOTS - 1)) != 0
#error "SLOTS must be a power of two from 1 to 16384"
#endif

// M(prefix0) .. M(prefixf): values are named by hexadecimal digits.
#define FOR_16(M, p)  M(p##0) M(p##1) M(p##2) M(p##3) M(p##4) M(p##5) M(p##6) M(p##7) \
                      M(p##8) M(p##9) M(p##a) M(p##b) M(p##c) M(p##d) M(p##e) M(p##f)
#define FOR_64(M, a, b, c, d)  FOR_16(M, a) FOR_16(M, b) FOR_16(M, c) FOR_16(M, d)
#define FOR_256(M, p) FOR_64(M, p##0, p##1, p##2, p##3) FOR_64(M, p##4, p##5, p##6, p##7) \
                      FOR_64(M, p##8, p##9, p##a, p##b) FOR_64(M, p##c, p##d, p##e, p##f)

#if VALUES == 32
const bit<3> SIZE_CODE = 0;
#define FOR_EACH_VALUE(M) FOR_16(M, _0) FOR_16(M, _1)
#elif VALUES == 64
const bit<3> SIZE_CODE = 1;
#define FOR_EACH_VALUE(M) FOR_64(M, _0, _1, _2, _3)
#elif VALUES == 128
const bit<3> SIZE_CODE = 2;
#define FOR_EACH_VALUE(M) FOR_64(M, _0, _1, _2, _3) FOR_64(M, _4, _5, _6, _7)
#elif VALUES == 256
const bit<3> SIZE_CODE = 3;
#define FOR_EACH_VALUE(M) FOR_256(M, _)
#elif VALUES == 1024
const bit<3> SIZE_CODE = 4;
#define FOR_EACH_VALUE(M) FOR_256(M, _0) FOR_256(M, _1) FOR_256(M, _2) FOR_256(M, _3)
#elif VALUES == 2048
const bit<3> SIZE_CODE = 5;
#define FOR_EACH_VALUE(M) FOR_256(M, _0) FOR_256(M, _1) FOR_256(M, _2) FOR_256(M, _3) \
                          FOR_256(M, _4) FOR_256(M, _5) FOR_256(M, _6) FOR_256(M, _7)
#else
#error "VALUES must be 32, 64, 128, 256, 1024 or 2048"
#endif

#endif
