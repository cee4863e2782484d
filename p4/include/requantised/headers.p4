/* SwitchML's headers, and sums that come down rounded: a word has two lanes of 16 bits on its way up, and two bytes on its way down.
 *
 * type  9 (up only) lanes: each word of the payload is two unsigned numbers of 16 bits, whose sums have room for all workers
 * type 10 (down only) bytes: for each of these sums its upper byte, rounded; half as long. The size is that of type 9
 * +---------------+---------------+
 * |       b1      |       b0      |  of word 0   |  of word 1 ...      b1 belongs to a word's upper lane
 * +---------------+---------------+
 * The check words are not looked at: what is rounded is no longer the sum of what was sent.
 */
#ifndef INA_REQUANTISED_HEADERS_P4
#define INA_REQUANTISED_HEADERS_P4

#include "../size.p4"

#if LANE_BITS != 32
#error "the program requantised has values of 32 bits: two lanes in each"
#endif

#define PROTOCOL "requantised"

#define BYTES_LENGTH (VALUES_BYTES / 2)

#define BYTES_FIELD(i) bit<16> v##i;
header bytes_t {
    FOR_EACH_VALUE(BYTES_FIELD)
}

#define NOR_MORE_TYPES && (hdr.switchml.msg_type != SWITCHML_LANES || hdr.switchml.size == SIZE_NONE)

#define MORE_PAYLOADS bytes_t bytes;
#define WITH_VALUES values_or_bytes
#define MORE_STATES \
    state values_or_bytes { \
        transition select(hdr.switchml.msg_type) { \
            SWITCHML_BYTES: bytes; \
            default: values; \
        } \
    } \
    state bytes { \
        packet.extract(hdr.bytes); \
        transition accept; \
    }
#define MORE_HEADERS packet.emit(hdr.bytes);

#include "../switchml/headers.p4"

#endif
