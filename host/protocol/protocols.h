/* All protocols, by name. INA_PROTOCOLS is the only place of the host's code that names one: ports, endpoint,
 * emulator and Python work with any struct ina_protocol. A protocol's name is also that of its switch program, p4/<name>.p4
 * (docs/guide/new-protocol.md).
 */
#ifndef INA_PROTOCOLS_H
#define INA_PROTOCOLS_H

#include "protocol.h"

#ifndef INA_CDEF
#define INA_PROTOCOLS(ONE) \
    ONE(switchml)         \
    ONE(atp)              \
    ONE(ps)         /* a parameter server and no help from switches */ \
    ONE(thc)        /* switchml.c, with indices */ \
    ONE(omnireduce) /* switchml.c, passing over zeros */ \
    ONE(fpisa)      /* switchml.c, with floats */ \
    ONE(receivers)  /* switchml.c, with sums from and to some workers only */ \
    ONE(requantised) /* switchml.c, with lanes whose sums come back rounded */ \
    ONE(quorum)     /* switchml.c, with sums of those workers that can contribute */ \
    ONE(atp_routes) /* atp.c, with sums from and to some workers only */
#define INA_PROTOCOL(name) extern const struct ina_protocol ina_##name;
INA_PROTOCOLS(INA_PROTOCOL)
#undef INA_PROTOCOL
#endif

const struct ina_protocol *ina_protocol_named(const char *name); /* NULL: there is none */
const struct ina_protocol *ina_protocol_at(uint32_t index);      /* all of them in order, then NULL */
/* Loads a protocol, `symbol` of a shared object that was compiled with these headers; NULL: `error` has the reason. */
const struct ina_protocol *ina_protocol_load(const char *path, const char *symbol, char *error, size_t size);

#endif
