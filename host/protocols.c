#include "protocols.h"

#include <string.h>

static const struct ina_protocol *const protocols[] = {
    &ina_switchml,
    &ina_atp,
    &ina_ps,
};
enum { COUNT = sizeof protocols / sizeof *protocols };

const struct ina_protocol *ina_protocol_at(uint32_t index)
{
    return index < COUNT ? protocols[index] : NULL;
}

const struct ina_protocol *ina_protocol_named(const char *name)
{
    for (uint32_t i = 0; i < COUNT; i++)
        if (!strcmp(protocols[i]->name, name))
            return protocols[i];
    return NULL;
}
