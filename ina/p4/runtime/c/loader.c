/* Opens the shared object of a compiled program and checks that it is one. */
#include <dlfcn.h>
#include <stdio.h>

#include "switch.h"

const struct ina_program *ina_program_open(const char *path, void **handle, char *error, size_t error_size)
{
    *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!*handle) {
        snprintf(error, error_size, "%s", dlerror());
        return NULL;
    }
    const struct ina_program *program = dlsym(*handle, "ina_program");
    if (program && program->abi == INA_PROGRAM_ABI)
        return program;
    if (program)
        snprintf(error, error_size, "%s was compiled for program ABI %u, this is %u: compile it again", path, program->abi,
                 (unsigned)INA_PROGRAM_ABI);
    else
        snprintf(error, error_size, "%s exports no ina_program: it is not a compiled switch program", path);
    dlclose(*handle);
    *handle = NULL;
    return NULL;
}

void ina_program_close(void *handle)
{
    if (handle)
        dlclose(handle);
}
