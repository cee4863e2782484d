/* From whom and for whom a packet is: the header behind the check header, in SwitchML (headers.p4) and in ATP (../atp_routes/headers.p4).
 * +---------------------------------------------------------------+
 * |                             ranks                             |
 * +---------------------------------------------------------------+
 * |                            members                            |
 * +---------------------------------------------------------------+
 * ranks    the workers that get the values, worker i in bit i
 * members  the workers that the phase waits for, and that hear of its end: those who have values, and those who get them
 * Both are the same in all packets of a phase, and `headers` of the check header covers them.
 */
#ifndef INA_RECEIVERS_SETS_P4
#define INA_RECEIVERS_SETS_P4

const bit<16> RECEIVERS_LENGTH = 8;  // bytes

header receivers_t {
    bit<32> ranks;
    bit<32> members;
}

#endif
