/* Offers of a worker whose state is that of slots.h: what the protocols that have them (switchml.c, atp.c) do alike, wherever it is decided. */
#ifndef INA_OFFERS_H
#define INA_OFFERS_H

#include "slots.h"

/* As amend of struct ina_protocol: an offer that is in flight is marked as ready to be sent again. */
int ina_offers_amend(void *state, const struct ina_tensor *tensors, int handle, uint64_t now);

enum ina_offers_outcome {
    INA_OFFERS_WRONG = 0,   /* impossible; counted */
    INA_OFFERS_OPEN = 1,    /* *missing: whom this worker waits for */
    INA_OFFERS_DECIDED = 2  /* its packet is answered; the packets of the tensor after it can go */
};
/* Takes the answer to offer `handle`: enum ina_offer_state, and the workers that it names. */
enum ina_offers_outcome ina_offers_answer(void *state, const struct ina_tensor *tensors, uint32_t handle, uint32_t answer, uint32_t ranks,
                                          uint32_t *missing);

#endif
