// Products of small matrices as tensor cores form them. The unit is a panel: 16 rows of A times 8
// columns of B. All matrices lie with the rows of A innermost, so that one vector holds a column of
// a panel:
//
//     a[k][16]    b[k][stride], 8 columns of it    c[8][16], column by column
//
// Two ways of arithmetic (--numerics): *fast* sums in fp32 with one rounding per product; *hardware*
// is the published model of the tensor cores, bit by bit.
#ifndef SOFTGPU_TENSOR_H
#define SOFTGPU_TENSOR_H

#include "softgpu/execute/formats.h"

enum { PANEL_ROWS = 16, PANEL_COLUMNS = 8 };

// c += a b with fused multiply-adds, k from 0 up.
void tensor_multiply_fast(float *c, const float *a, const float *b, int stride, int depth);

// How a tensor core sums. A step takes `step` products and the accumulator, cuts all of them toward
// zero to `fraction_bits` bits below the largest exponent among them, and adds what is left exactly.
// The sum is then cut to fp32 (to `result_bits` bits of fraction), or rounded to nearest even to
// fp16.
typedef struct {
    int fraction_bits; // 23 Volta, 24 Ampere, 25 Hopper and Blackwell, 13 where fp8 units are used
    int result_bits;   // 23, or 13 with those fp8 units
    int step;
    bool half;
} TensorModel;

// c += a b by the model. The numbers of a and b are exactly those of the formats. `depth` is a
// multiple of model->step, at most 64.
void tensor_multiply_model(float *c, const float *a, const float *b, int stride, int depth,
                           const Format *a_format, const Format *b_format,
                           const TensorModel *model);

// c += a b for integers, modulo 2^32 or limited to 32 bits at the end.
void tensor_multiply_integers(int32_t *c, const int32_t *a, const int32_t *b, int stride, int depth,
                              bool saturate);

// c += popcount(a op b) over words of 32 bits; op is `and` or xor.
void tensor_multiply_bits(int32_t *c, const int32_t *a, const int32_t *b, int stride, int depth,
                          bool and);

// c += a b with fused multiply-adds in fp64, k from 0 up.
void tensor_multiply_doubles(double *c, const double *a, const double *b, int stride, int depth);

#endif
