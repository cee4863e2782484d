/* Completing a frame that was edited, so that the edits come past the checksum of its headers. */
#ifndef INA_FUZZ_SEALING_H
#define INA_FUZZ_SEALING_H

#include "check.h"

/* `from`: behind UDP's header. `more`: bytes behind the check header that its checksum covers, too. */
static inline void seal_again(struct ina_check_header *check, const void *from, size_t more)
{
    check->headers = 0;
    check->headers = ina_internet_checksum(from, (size_t)((const uint8_t *)(check + 1) - (const uint8_t *)from) + more);
}

#endif
