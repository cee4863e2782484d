/* What programs that try random rounds share: numbers that a seed repeats, and a check that ends the program. */
#ifndef INA_TEST_ROUNDS_H
#define INA_TEST_ROUNDS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t rng;

static uint32_t pick(uint32_t below)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng >> 33) % below;
}

static void check(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "broken: %s\n", what);
    exit(1);
}

#endif
