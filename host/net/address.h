/* Address: one end of a UDP flow, as in frames. */
#ifndef INA_ADDRESS_H
#define INA_ADDRESS_H

#include <stdint.h>

struct ina_address {
    uint8_t mac[6];
    uint16_t port; /* UDP, host byte order */
    uint32_t ip;   /* host byte order */
};

#endif
