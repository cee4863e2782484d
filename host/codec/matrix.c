/* Matrices of low rank: see matrix.h. */
#include "matrix.h"

#include <math.h>

#include "blocks.h"

INA_KERNEL static double product(size_t count, const float *a, const float *b)
{
    return sum_of(count, a, b, 1);
}

INA_KERNEL static void subtract(size_t count, double times, const float *restrict a, float *restrict x)
{
    for (size_t i = 0; i < count; i++)
        x[i] = (float)(x[i] - times * a[i]);
}

INA_KERNEL static void scale(size_t count, double factor, float *x)
{
    for (size_t i = 0; i < count; i++)
        x[i] = (float)(x[i] * factor);
}

void ina_orthogonalise(uint64_t rows, uint32_t rank, float *p)
{
    for (uint32_t k = 0; k < rank; k++) {
        float *column = p + k * rows;
        const double before = sqrt(product(rows, column, column));
        for (int twice = 0; twice < 2; twice++) /* what rounding left the first time */
            for (uint32_t j = 0; j < k; j++)
                subtract(rows, product(rows, column, p + j * rows), p + j * rows, column);
        const double after = sqrt(product(rows, column, column));
        if (after > before * 1e-6)
            scale(rows, 1 / after, column);
        else
            memset(column, 0, rows * sizeof *column);
    }
}

INA_KERNEL static void begin(size_t count, float times, const float *restrict q, float *restrict x)
{
    for (size_t i = 0; i < count; i++)
        x[i] = times * q[i];
}

INA_KERNEL static void add(size_t count, float times, const float *restrict q, float *restrict x)
{
    for (size_t i = 0; i < count; i++)
        x[i] += times * q[i];
}

void ina_outer(uint64_t count, uint64_t rows, uint64_t columns, uint32_t rank, const float *p, const float *q, float factor, float *x)
{
    for (uint64_t row = 0; row < rows && row * columns < count; row++) {
        const uint64_t rest = count - row * columns, here = rest < columns ? rest : columns;
        begin(here, factor * p[row], q, x + row * columns);
        for (uint32_t k = 1; k < rank; k++)
            add(here, factor * p[k * rows + row], q + k * columns, x + row * columns);
    }
}
