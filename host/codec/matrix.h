/* Matrices of low rank, by columns, each contiguous; the same bits on every processor. */
#ifndef INA_MATRIX_H
#define INA_MATRIX_H

#include <stdint.h>

/* Makes columns of length 1 at right angles to each other of `rank` ones of `rows` finite values (modified Gram-Schmidt). A column that
 * the ones before span, up to float32's rounding, becomes zero. */
void ina_orthogonalise(uint64_t rows, uint32_t rank, float *p);
/* x[row][column] = factor * sum over k of p[k][row] q[k][column], of the first `count` values of x, row by row. */
void ina_outer(uint64_t count, uint64_t rows, uint64_t columns, uint32_t rank, const float *p, const float *q, float factor, float *x);

#endif
