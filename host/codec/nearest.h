#ifndef INA_NEAREST_H
#define INA_NEAREST_H

#include <math.h>
#include <stdint.h>

#include "kernel.h"

/* The nearest integer, ties to even, within int32: one instruction, where the compiler has it. */
INA_KERNEL_PART int32_t nearest(float y)
{
#if defined __NO_MATH_ERRNO__ && !defined __clang__ /* else a call, which nothing vectorises */
    return __builtin_irintf(y);
#else
    return (int32_t)rintf(y);
#endif
}

#endif
