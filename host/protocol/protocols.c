#include "protocols.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define ADDRESS(name) &ina_##name,
static const struct ina_protocol *const protocols[] = {INA_PROTOCOLS(ADDRESS)};
enum { COUNT = sizeof protocols / sizeof protocols[0] };

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

const struct ina_protocol *ina_protocol_load(const char *path, const char *symbol, char *error, size_t size)
{
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* never unloaded: endpoints run its code */
    const struct ina_protocol *protocol = object ? dlsym(object, symbol) : NULL;
    if (!protocol)
        snprintf(error, size, "%s", dlerror());
    return protocol;
}
