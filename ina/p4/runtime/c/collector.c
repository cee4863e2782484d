/* Output as bytes, for callers that cannot be called back from C. */
#include <stdlib.h>
#include <string.h>

#include "switch.h"

_Static_assert(sizeof(struct ina_collected) == 24, "ina_collected");

enum { FIRST_SIZE = 64 * 1024 }; /* bytes */

void ina_collect(void *collector, uint16_t port, const struct ina_packet *pkt, uint64_t now)
{
    struct ina_collector *c = collector;
    struct ina_collected head = {now, pkt->len, pkt->wire_len, port, pkt->tag};
    uint64_t need = sizeof head + (((uint64_t)pkt->len + 7) & ~7ull);
    if (need > c->size - c->used) {
        uint64_t size = c->size ? 2 * c->size : FIRST_SIZE;
        while (need > size - c->used)
            size *= 2;
        uint8_t *data = realloc(c->data, size);
        if (!data) {
            c->lost++;
            return;
        }
        c->data = data;
        c->size = size;
    }
    memcpy(c->data + c->used, &head, sizeof head);
    memcpy(c->data + c->used + sizeof head, pkt->data, pkt->len);
    c->used += need;
}

void ina_collector_free(struct ina_collector *c)
{
    free(c->data);
    *c = (struct ina_collector){0};
}
