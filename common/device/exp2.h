// The softmax in base 2: e^(scale x - m) = 2^(factor x - m log2(e)) with factor = scale log2(e), so
// that a score costs one multiply-add and one ex2, the only exponential that a GPU has.
#ifndef EXP2_H
#define EXP2_H

#include <math_constants.h>

#include "harness/attention.h"

// 2^x to 2 units in the last place; results below 2^-126 become 0 (PTX ISA 9.7.3.21, ex2). Without
// .ftz the compiler would have to scale small arguments: three more instructions a score.
__device__ static inline float exp2_approximate(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// 1 / x to 1 unit in the last place (PTX ISA 9.7.3.14, rcp).
__device__ static inline float reciprocal_approximate(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// tanh x = 1 - 2 / (1 + e^2x): 1 and -1 at e^2x = inf and 0. Near 0 the difference would leave 6e-8 of
// x's error, and a large cap multiplies that: there x - x³/3 + 2x⁵/15 - 17x⁷/315. (The one instruction
// for it, tanh.approx, errs by 2^-11: near a cap of 15 that is 0.007 of a score.)
__device__ static inline float tanh_approximate(float x) {
    const float e = exp2_approximate(x * (2 * CUDART_L2E_F)), y = x * x;
    const float far = fmaf(-2, reciprocal_approximate(1 + e), 1);
    const float near = fmaf(fmaf(fmaf(-17.f / 315, y, 2.f / 15), y, -1.f / 3), x * y, x);
    return fabsf(x) < 0.25f ? near : far;
}

// How products q·k become exponents of 2: factor * adjusted(product), with factor > 0, so that the
// largest product is the largest exponent.
typedef struct {
    float factor;
    float adjust;       // product → adjust * product, or with a cap tanh(adjust * product)
    bool capped, plain; // plain: adjusted(product) = product
} Exponent;

// A cap's scale stands inside the tanh; without a cap all of the scale but its sign is the factor.
__device__ static inline Exponent exponent_of(float scale, float softcap) {
    Exponent exponent;
    exponent.capped = softcap > 0;
    exponent.adjust = exponent.capped ? scale / softcap : scale > 0 ? 1 : scale < 0 ? -1 : 0;
    exponent.factor = (exponent.capped ? softcap : scale == 0 ? 1 : fabsf(scale)) * CUDART_L2E_F;
    exponent.plain = !exponent.capped && scale > 0;
    return exponent;
}

__device__ static inline float adjusted(float product, const Exponent &exponent) {
    const float x = exponent.adjust * product;
    return exponent.capped ? tanh_approximate(x) : x;
}

// The logarithm of Σ e^score from the base-2 maximum and sum; -inf for a row without keys. Fused: a
// large maximum is rounded once.
__device__ static inline float log_sum_exp_base_2(float row_max, float row_sum) {
    return row_sum == 0 ? -CUDART_INF_F : fmaf(row_max, CUDART_LN2_F, logf(row_sum));
}

// As log_sum_exp_base_2, of a row whose softmax has a sink (attention.h). Where that is the row's
// maximum, sink log2(e) ln 2 would be the sink rounded twice: there it is the sink itself, to the bit
// in a row that sees no key.
__device__ static inline float log_sum_exp_of_sink(float row_max, float row_sum, float sink) {
    return row_max == sink * CUDART_L2E_F ? sink + logf(row_sum)
                                          : log_sum_exp_base_2(row_max, row_sum);
}

// What the rounding of log_sum_exp_base_2 took off (as log_sum_exp_rest in number.h).
__device__ static inline float log_sum_exp_rest_base_2(float row_max, float row_sum) {
    if (row_sum == 0) return 0;
    const float product = row_max * CUDART_LN2_F; // and what its rounding took off:
    const float rest = fmaf(row_max, CUDART_LN2_F, -product);
    return product - log_sum_exp_base_2(row_max, row_sum) + logf(row_sum) + rest;
}

// An lse and its rest in units of log 2, as two numbers again.
typedef struct {
    float high, low;
} TwoFloats;

__device__ static inline TwoFloats to_base_2(float lse, float rest) {
    const float log2_e_rest = 1.92596299e-8f; // log2(e) - CUDART_L2E_F
    TwoFloats x;
    x.high = lse * CUDART_L2E_F;
    x.low = fmaf(lse, CUDART_L2E_F, -x.high) + fmaf(lse, log2_e_rest, rest * CUDART_L2E_F);
    return x;
}

#endif
