/* Output as bytes, for callers that cannot be called back from C. */
#include <string.h>

#include "switch.h"

_Static_assert(sizeof(struct ina_collected) == 24, "ina_collected");

void ina_collect(void *collector, uint16_t port, const struct ina_packet *pkt, uint64_t now)
{
    struct ina_collector *c = collector;
    struct ina_collected head = {now, pkt->len, pkt->wire_len, port, pkt->tag};
    uint64_t need = sizeof head + (((uint64_t)pkt->len + 7) & ~7ull);
    if (need > c->size - c->used) {
        c->lost++;
        return;
    }
    memcpy(c->data + c->used, &head, sizeof head);
    memcpy(c->data + c->used + sizeof head, pkt->data, pkt->len);
    c->used += need;
}
