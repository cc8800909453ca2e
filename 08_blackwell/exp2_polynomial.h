// 2^x without the MUFU, for a pair of x at a time: arithmetic that the FMA and integer units do.
//
//   2^x = 2^n 2^f     n = floor(x), f = x - n in [0, 1)                     (Cody and Waite)
//
//   n    x + 1.5 2^23, rounded down: numbers of that size have no bits behind the point, so n stands
//        in the sum's low bits
//   2^f  1 + c1 f + c2 f² + …, by Horner's rule. The coefficients are the minimax ones, which
//        common/plot/exp2_fit.py finds: of all, the largest relative error is the least
//   2^n  added to the exponent field of that, as an integer
//
// 2^0 is exactly 1, and so are all powers of whole numbers; x <= -127 gives 0, as ex2.approx.ftz
// does. x <= 127.
#ifndef EXP2_POLYNOMIAL_H
#define EXP2_POLYNOMIAL_H

#include "device/packed.h"

// The degree that the kernels take. FlashAttention-4 takes 3, and P can't tell the difference: it is
// rounded to 8 bits (bf16) or 11 (fp16), 3.9e-3 or 4.9e-4 off, where degree 3 is 8.6e-5 off and
// degree 4 2.9e-6. But lse is not rounded: with few keys 8.6e-5 would show in it.
static const int EXP2_DEGREE = 4;

// c1 … of a degree 3, 4 or 5.
__device__ static constexpr float exp2_coefficient(int degree, int k) {
    constexpr float c[3][5] = {
        {0.6951167583f, 0.2276449949f, 0.07706703991f},
        {0.6930448413f, 0.2412801981f, 0.05224247277f, 0.01342668384f},
        {0.6931512952f, 0.2401644439f, 0.05579991266f, 0.009017030708f, 0.00186713005f},
    };
    return c[degree - 3][k - 1];
}

// The integer sum that the last step is.
__device__ static inline float add_to_exponent(float power, float n) {
    return __uint_as_float((__float_as_uint(n) << 23) + __float_as_uint(power));
}

// *x, *y: x → 2^x.
template <int DEGREE> __device__ static inline void exp2_polynomial(float *x, float *y) {
    const Pair shift = both(12582912); // 1.5 2^23
    const Pair clamped = pair_of(fmaxf(*x, -127), fmaxf(*y, -127));
    const Pair n = pair_add_down(clamped, shift);
    const Pair f = pair_subtract(clamped, pair_subtract(n, shift));
    Pair power = both(exp2_coefficient(DEGREE, DEGREE));
#pragma unroll
    for (int k = DEGREE - 1; k > 0; k--)
        power = pair_fma(power, f, both(exp2_coefficient(DEGREE, k)));
    power = pair_fma(power, f, both(1));
    float n0, n1, power0, power1;
    pair_take(&n0, &n1, n);
    pair_take(&power0, &power1, power);
    *x = add_to_exponent(power0, n0);
    *y = add_to_exponent(power1, n1);
}

#endif
