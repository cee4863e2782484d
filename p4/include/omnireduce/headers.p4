/* SwitchML's headers, and a packet that stands for one of zeros.
 *
 * type  6 zeros: a packet of type 1 and this program's size whose values are all 0; they are not sent (size 7). Check words are those of
 *         the values. A result is one if no packet of its phase had values
 * e0    in packets of types 1 and 6: fewer, the more steps the sender's next block is ahead (host/protocol/ahead.h). The switch
 *       takes the largest, as it does with exponents
 */
#ifndef INA_OMNIREDUCE_HEADERS_P4
#define INA_OMNIREDUCE_HEADERS_P4

#define PROTOCOL "omnireduce"

#include "../switchml/headers.p4"

// A packet that stands for one of zeros (switchml/zeros.p4), and what it becomes.
#define TYPE_OF_ZEROS SWITCHML_ZEROS
#define TYPE_OF_VALUES SWITCHML_DATA

#endif
