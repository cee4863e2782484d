/* SwitchML's headers, and one more type of packet.
 *
 * type  7 (up and down) floats: each word of the payload is an IEEE 754 binary32 number, of a worker, of a switch below, or of the
 *         result. The check words are not looked at: sums of floats are not linear in their bits (docs/design/fpisa.md).
 */
#ifndef INA_FPISA_HEADERS_P4
#define INA_FPISA_HEADERS_P4

#define PROTOCOL "fpisa"

#define NOR_MORE_TYPES && hdr.switchml.msg_type != SWITCHML_FLOATS
#ifdef FIXED_ORDER
#define AND_LIMITS , workers=FIXED_ORDER
#endif

#include "../switchml/headers.p4"

#endif
