// The approximate functions (PTX ISA 9.7.3.13-23): ex2, lg2, sin, cos, tanh, rcp, rsqrt, sqrt, div.
//
// PTX bounds the error and leaves the bits open. We stay within one or two ulp everywhere, which is
// inside every bound; ex2, lg2, rcp and rsqrt, which attention lives on, are branchless loops.
#include "softgpu/execute/execute.h"
#include "softgpu/execute/formats.h"

// a * b + c, in one rounding where the host can do it quickly; the polynomials don't depend on it.
#ifdef __FMA__
#define MULTIPLY_ADD(a, b, c) fmaf(a, b, c)
#else
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#endif

// 2^x = 2^n * 2^f with n = round(x), |f| <= 1/2. 2^f = 1 + f q(f), q by Chebyshev interpolation
// (relative error 1.2e-8). Multiplying twice by half of the power keeps 2^n in range, and the
// second multiplication rounds subnormal results once.
static inline float exp2_of(float x) {
    float t = x < 129.0f ? x : 129.0f;
    t = t > -151.0f ? t : -151.0f;
    float n = rintf(t), f = t - n;
    float q = 1.545316295e-04f;
    q = MULTIPLY_ADD(q, f, 1.339086336e-03f);
    q = MULTIPLY_ADD(q, f, 9.618082557e-03f);
    q = MULTIPLY_ADD(q, f, 5.550357114e-02f);
    q = MULTIPLY_ADD(q, f, 2.402265076e-01f);
    q = MULTIPLY_ADD(q, f, 6.931471880e-01f);
    float p = MULTIPLY_ADD(q, f, 1.0f);
    int32_t power = (int32_t)n, first = power >> 1, second = power - first;
    p *= bits_float((uint32_t)(first + 127) << 23);
    p *= bits_float((uint32_t)(second + 127) << 23);
    return x != x ? bits_float(0x7fffffffu) : p;
}
UNARY(ex2_f32, LaneF32, LaneF32, exp2_of(a))
UNARY(ex2_ftz_f32, LaneF32, LaneF32, flush(exp2_of(a)))

// log2(x) = k + log2(m), sqrt(1/2) <= m < sqrt(2); log2(1 + t) = t q(t) (relative error 5e-9).
static inline float log2_of(float x) {
    bool subnormal = x < 0x1p-126f;
    float scaled = subnormal ? x * 0x1p24f : x;
    uint32_t u = float_bits(scaled);
    int32_t k = (int32_t)(u - 0x3f3504f3u) >> 23;
    float t = bits_float(u - ((uint32_t)k << 23)) - 1.0f;
    float q = -1.074990721e-01f;
    q = MULTIPLY_ADD(q, t, 1.847621505e-01f);
    q = MULTIPLY_ADD(q, t, -1.913888404e-01f);
    q = MULTIPLY_ADD(q, t, 2.048574238e-01f);
    q = MULTIPLY_ADD(q, t, -2.396080433e-01f);
    q = MULTIPLY_ADD(q, t, 2.885525690e-01f);
    q = MULTIPLY_ADD(q, t, -3.606965450e-01f);
    q = MULTIPLY_ADD(q, t, 4.808985203e-01f);
    q = MULTIPLY_ADD(q, t, -7.213473544e-01f);
    q = MULTIPLY_ADD(q, t, 1.442695040e+00f);
    float r = MULTIPLY_ADD(q, t, (float)(subnormal ? k - 24 : k));
    r = x > 0x1.fffffep127f ? x : r;
    r = x == 0.0f ? -bits_float(0x7f800000u) : r;
    return x >= 0.0f ? r : bits_float(0x7fffffffu);
}
UNARY(lg2_f32, LaneF32, LaneF32, log2_of(a))
UNARY(lg2_ftz_f32, LaneF32, LaneF32, log2_of(flush(a)))

UNARY(rcp_approx_f32, LaneF32, LaneF32, canonical(1.0f / a))
UNARY(rcp_approx_ftz_f32, LaneF32, LaneF32, canonical(flush(1.0f / flush(a))))
UNARY(sqrt_approx_f32, LaneF32, LaneF32, canonical(sqrtf(a)))
UNARY(sqrt_approx_ftz_f32, LaneF32, LaneF32, canonical(sqrtf(flush(a))))
// Two roundings: within 2^-23, where PTX asks for 2^-22.9.
static inline float rsqrt_of(float x) {
    return canonical(1.0f / sqrtf(x));
}
UNARY(rsqrt_f32, LaneF32, LaneF32, rsqrt_of(a))
UNARY(rsqrt_ftz_f32, LaneF32, LaneF32, rsqrt_of(flush(a)))
UNARY(sin_f32, LaneF32, LaneF32, canonical(sinf(a)))
UNARY(sin_ftz_f32, LaneF32, LaneF32, canonical(flush(sinf(flush(a)))))
UNARY(cos_f32, LaneF32, LaneF32, canonical(cosf(a)))
UNARY(cos_ftz_f32, LaneF32, LaneF32, canonical(flush(cosf(flush(a)))))
UNARY(tanh_f32, LaneF32, LaneF32, canonical(tanhf(a)))

// div.approx multiplies by a reciprocal that underflows for |b| > 2^126: the quotient is then 0, or
// NaN if a is infinite. div.full is right for every b.
static inline float divide_approximately(float a, float b) {
    float q = fabsf(b) > 0x1p126f ? a * copysignf(0.0f, b) : a / b;
    return canonical(q);
}
BINARY(div_approx_f32, LaneF32, LaneF32, LaneF32, divide_approximately(a, b))
BINARY(div_approx_ftz_f32, LaneF32, LaneF32, LaneF32,
       flush(divide_approximately(flush(a), flush(b))))
BINARY(div_full_f32, LaneF32, LaneF32, LaneF32, canonical(a / b))
BINARY(div_full_ftz_f32, LaneF32, LaneF32, LaneF32, canonical(flush(flush(a) / flush(b))))

// f64: only the upper 32 bits of the operand are looked at, and only those of the result are set.
static inline double upper_half(double x) {
    return bits_double(double_bits(x) & ~0xffffffffull);
}
static inline double flush_double(double x) {
    return fabs(x) < 0x1p-1022 ? copysign(0.0, x) : x;
}
static inline double round_upper(double x) {
    if (!(fabs(x) <= 0x1.fffffp1023)) return x != x ? bits_double(0x7fffffffull << 32) : x;
    return bits_double((double_bits(x) + 0x80000000ull) & ~0xffffffffull);
}
UNARY(rcp_approx_f64, LaneF64, LaneF64,
      round_upper(flush_double(1.0 / flush_double(upper_half(a)))))
UNARY(rsqrt_approx_f64, LaneF64, LaneF64, round_upper(1.0 / sqrt(upper_half(a))))
UNARY(rsqrt_approx_ftz_f64, LaneF64, LaneF64, round_upper(1.0 / sqrt(flush_double(upper_half(a)))))

// ---- ex2 and tanh of 16-bit formats: by way of f32

typedef float Function(float);
static float ex2_function(float x) {
    return exp2_of(x);
}
static float tanh_function(float x) {
    return tanhf(x);
}

// .ftz exists for bf16, whose subnormals are those of f32.
static Flow narrow_function(Warp *w, const Insn *i, uint32_t mask, Function *f, bool bf16,
                            bool x2) {
    const Lane16 *a = row(w, i->a);
    uint16_t r[2 * WARP_SIZE];
    for (int k = 0; k < (x2 ? 64 : 32); k++) {
        if (!(mask >> (x2 ? k / 2 : k) & 1)) continue;
        if (!bf16)
            r[k] = float_to_half(f(half_to_float(a[k])));
        else
            r[k] = float_to_bf16(f == ex2_function ? flush(f(flush(bf16_to_float(a[k]))))
                                                   : f(bf16_to_float(a[k])));
    }
    if (x2)
        put32(w, i->d, r, mask);
    else
        put16(w, i->d, r, mask);
    return FLOW_NEXT;
}
#define NARROW_FUNCTION(name, function, bf16, x2)                                                  \
    static Flow name(Warp *w, const Insn *i, uint32_t mask) {                                      \
        return narrow_function(w, i, mask, function, bf16, x2);                                    \
    }
NARROW_FUNCTION(ex2_f16, ex2_function, false, false)
NARROW_FUNCTION(ex2_f16x2, ex2_function, false, true)
NARROW_FUNCTION(ex2_bf16, ex2_function, true, false)
NARROW_FUNCTION(ex2_bf16x2, ex2_function, true, true)
NARROW_FUNCTION(tanh_f16, tanh_function, false, false)
NARROW_FUNCTION(tanh_f16x2, tanh_function, false, true)
NARROW_FUNCTION(tanh_bf16, tanh_function, true, false)
NARROW_FUNCTION(tanh_bf16x2, tanh_function, true, true)

#define R1_16 "d16 a16"
#define R1_32 "d32 a32"
#define R2_32 "d32 a32 b32"
#define R1_64 "d64 a64"

const Form function_forms[] = {
    {"ex2", "approx ftz f32", R1_32, ex2_ftz_f32, PIPE_MUFU, 1},
    {"ex2", "approx f32", R1_32, ex2_f32, PIPE_MUFU, 1},
    {"ex2", "approx f16", R1_16, ex2_f16, PIPE_MUFU, 1},
    {"ex2", "approx f16x2", R1_32, ex2_f16x2, PIPE_MUFU, 2},
    {"ex2", "approx ftz bf16", R1_16, ex2_bf16, PIPE_MUFU, 1},
    {"ex2", "approx ftz bf16x2", R1_32, ex2_bf16x2, PIPE_MUFU, 2},
    {"lg2", "approx ftz f32", R1_32, lg2_ftz_f32, PIPE_MUFU, 1},
    {"lg2", "approx f32", R1_32, lg2_f32, PIPE_MUFU, 1},
    {"rcp", "approx ftz f32", R1_32, rcp_approx_ftz_f32, PIPE_MUFU, 1},
    {"rcp", "approx f32", R1_32, rcp_approx_f32, PIPE_MUFU, 1},
    {"rcp", "approx ftz f64", R1_64, rcp_approx_f64, PIPE_MUFU, 1},
    {"sqrt", "approx ftz f32", R1_32, sqrt_approx_ftz_f32, PIPE_MUFU, 1},
    {"sqrt", "approx f32", R1_32, sqrt_approx_f32, PIPE_MUFU, 1},
    {"rsqrt", "approx ftz f32", R1_32, rsqrt_ftz_f32, PIPE_MUFU, 1},
    {"rsqrt", "approx f32", R1_32, rsqrt_f32, PIPE_MUFU, 1},
    {"rsqrt", "approx ftz f64", R1_64, rsqrt_approx_ftz_f64, PIPE_MUFU, 1},
    {"rsqrt", "approx f64", R1_64, rsqrt_approx_f64, PIPE_MUFU, 1},
    {"sin", "approx ftz f32", R1_32, sin_ftz_f32, PIPE_MUFU, 1},
    {"sin", "approx f32", R1_32, sin_f32, PIPE_MUFU, 1},
    {"cos", "approx ftz f32", R1_32, cos_ftz_f32, PIPE_MUFU, 1},
    {"cos", "approx f32", R1_32, cos_f32, PIPE_MUFU, 1},
    {"tanh", "approx f32", R1_32, tanh_f32, PIPE_MUFU, 1},
    {"tanh", "approx f16", R1_16, tanh_f16, PIPE_MUFU, 1},
    {"tanh", "approx f16x2", R1_32, tanh_f16x2, PIPE_MUFU, 2},
    {"tanh", "approx bf16", R1_16, tanh_bf16, PIPE_MUFU, 1},
    {"tanh", "approx bf16x2", R1_32, tanh_bf16x2, PIPE_MUFU, 2},
    {"div", "approx ftz f32", R2_32, div_approx_ftz_f32, PIPE_MUFU, 1},
    {"div", "approx f32", R2_32, div_approx_f32, PIPE_MUFU, 1},
    {"div", "full ftz f32", R2_32, div_full_ftz_f32, PIPE_MUFU, 1},
    {"div", "full f32", R2_32, div_full_f32, PIPE_MUFU, 1},
    {0},
};
