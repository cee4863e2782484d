/* INA_KERNEL: for functions of loops over values or copies of frames, whose speed depends on the width of vector registers.
 * Compiled once for each level of x86-64; the loader selects the processor's (an ifunc). So the compiled
 * part is built for every processor of its platform, without -march, and loses nothing on a newer one.
 *
 * Functions that it calls in its file must be inlined (INA_KERNEL_PART): otherwise they are compiled once, for the
 * oldest. All give the same bits: no a*b+c becomes one operation (host/binding.py: -ffp-contract=off), and sums of floats, which
 * another order would change, are over workers, never over the values of a block (tests/house/test_kernels.py).
 *
 * Empty where there is nothing to choose: other processors; an -march that has AVX2 (INA_MARCH); a libc without ifuncs; clang,
 * which gives its clones a name that other files do not call (clang 14); sanitizers, which are not ready when the loader asks.
 */
#ifndef INA_KERNEL_H
#define INA_KERNEL_H

#include <stdint.h>

#define INA_KERNEL_PART static inline __attribute__((always_inline))

#ifndef INA_KERNEL
#if defined __x86_64__ && !defined __AVX2__ && defined __GLIBC__ && defined __GNUC__ && !defined __clang__ \
    && !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
#if __GNUC__ >= 12
#define INA_KERNEL __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define INA_KERNEL __attribute__((target_clones("avx2", "default")))
#endif
#else
#define INA_KERNEL
#endif
#endif

#endif
