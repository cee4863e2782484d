/* SwitchML's headers, and a payload of its own that goes up only: VALUES words of 4 bits a byte, so half as long as the result.
 *
 * type  5 (up only) indices: each byte of the result is the sum of the workers' levels, of which packets have the index. The size is
 *         the result's, which is of type 1.
 * +---+---+---+---+---+---+---+---+
 * |i3 |i2 |i1 |i0 |  of value 0   |  of value 1 ...      i3 belongs to a value's highest byte
 * +---+---+---+---+---+---+---+---+
 */
#ifndef INA_THC_HEADERS_P4
#define INA_THC_HEADERS_P4

#include "../size.p4"

#define PROTOCOL "thc"

#define INDICES_LENGTH (VALUES_BYTES / 2)

#define INDEX_FIELD(i) bit<16> v##i;
header indices_t {
    FOR_EACH_VALUE(INDEX_FIELD)
}

#define MORE_PAYLOADS indices_t indices;
#define WITH_VALUES values_or_indices
#define MORE_STATES \
    state values_or_indices { \
        transition select(hdr.switchml.msg_type) { \
            SWITCHML_INDICES: indices; \
            default: values; \
        } \
    } \
    state indices { \
        packet.extract(hdr.indices); \
        transition accept; \
    }

#include "../switchml/headers.p4"

#endif
