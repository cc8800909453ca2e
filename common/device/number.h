// Numbers in memory and in registers: tensors are fp32, fp16 or bf16, arithmetic is fp32.
//
// Loads and stores move several neighbouring elements at once, so that the lanes of a warp together
// touch whole 32-byte sectors. Addresses must be aligned to what one access moves: rows are, since
// every head_dim is a multiple of 32.
#ifndef NUMBER_H
#define NUMBER_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

__device__ static inline float to_float(float x) {
    return x;
}
__device__ static inline float to_float(__half x) {
    return __half2float(x);
}
__device__ static inline float to_float(__nv_bfloat16 x) {
    return __bfloat162float(x);
}

__device__ static inline void store(float *to, float x) {
    *to = x;
}
__device__ static inline void store(__half *to, float x) {
    *to = __float2half_rn(x);
}
__device__ static inline void store(__nv_bfloat16 *to, float x) {
    *to = __float2bfloat16_rn(x);
}

// Four neighbours as fp32.
__device__ static inline float4 load4(const float *from) {
    return *(const float4 *)from;
}

__device__ static inline float4 load4(const __half *from) {
    const uint2 bits = *(const uint2 *)from;
    const float2 low = __half22float2(*(const __half2 *)&bits.x);
    const float2 high = __half22float2(*(const __half2 *)&bits.y);
    return make_float4(low.x, low.y, high.x, high.y);
}

// A bf16 is the upper half of the fp32 with the same value.
__device__ static inline float4 load4(const __nv_bfloat16 *from) {
    const uint2 bits = *(const uint2 *)from;
    return make_float4(__uint_as_float(bits.x << 16), __uint_as_float(bits.x & 0xffff0000u),
                       __uint_as_float(bits.y << 16), __uint_as_float(bits.y & 0xffff0000u));
}

// Two neighbours, rounded to nearest even.
__device__ static inline void store2(float *to, float x, float y) {
    *(float2 *)to = make_float2(x, y);
}
__device__ static inline void store2(__half *to, float x, float y) {
    *(__half2 *)to = __floats2half2_rn(x, y);
}
__device__ static inline void store2(__nv_bfloat16 *to, float x, float y) {
    *(__nv_bfloat162 *)to = __floats2bfloat162_rn(x, y);
}

// From a product q·k to a score: the scale, then the cap. (The mask comes last: a capped -inf would
// be a number again.)
__device__ static inline float score_of(float product, float scale, float softcap) {
    const float score = product * scale;
    return softcap > 0 ? softcap * tanhf(score / softcap) : score;
}

// What to subtract in the exponent: a row that has seen no key yet has the maximum -inf, and
// -inf - -inf would be NaN; with 0 in its place its terms are exp(-inf) = 0, as they must be.
__device__ static inline float finite_max(float row_max) {
    return row_max == -CUDART_INF_F ? 0 : row_max;
}

// The logarithm of Σ exp(score), -inf for a row without keys. Asked as "== 0": a NaN stays one.
__device__ static inline float log_sum_exp(float row_max, float row_sum) {
    return row_sum == 0 ? -CUDART_INF_F : row_max + logf(row_sum);
}

// What log_sum_exp lost: lse + rest is the logarithm to more bits than one float has. In fp64, once a
// row: logf's own error, up to an ulp, would be a relative one of all the row's weights.
__device__ static inline float log_sum_exp_rest(float row_max, float row_sum) {
    if (row_sum == 0) return 0;
    return (float)(row_max + log((double)row_sum) - log_sum_exp(row_max, row_sum));
}

#endif
