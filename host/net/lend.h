/* Inside host/: frames lent in order out of a circular buffer, where slots with bad frames are skipped. rx_done
 * counts lent frames; the slots that it frees include the skipped ones between them. */
#ifndef INA_LEND_H
#define INA_LEND_H

#include <stdint.h>

struct ina_lend {
    uint8_t *skip;          /* one byte per slot: 1 while it is passed over */
    uint32_t mask;          /* slots - 1 */
    uint32_t next, done;    /* slots done .. next-1 are out; both run freely */
    uint32_t skipped;       /* of these, passed over */
};

static inline void ina_lend_skip(struct ina_lend *lend)
{
    lend->skip[lend->next++ & lend->mask] = 1;
    lend->skipped++;
}

/* Takes back the n oldest lent frames, and every slot passed over in front of the next one. */
static inline void ina_lend_return(struct ina_lend *lend, uint32_t n)
{
    uint32_t out = lend->next - lend->done;
    if (!lend->skipped) {
        lend->done += n < out ? n : out;
        return;
    }
    while (lend->done != lend->next) {
        uint8_t *skip = &lend->skip[lend->done & lend->mask];
        if (*skip) {
            *skip = 0;
            lend->skipped--;
        } else if (n) {
            n--;
        } else {
            break;
        }
        lend->done++;
    }
}

#endif
