// Arithmetic on f32, f64 and f32x2 (PTX ISA 9.7.3, 9.7.5): what IEEE 754 defines, to the last bit.
// The approximate functions are in function.c, 16-bit formats in half.c.
//
// Plain rounding to nearest has handlers of its own; directed rounding, .sat and their combinations
// go through general_f32 and general_f64, which switch the host's rounding mode around a loop.
#include "softgpu/execute/execute.h"
#include "softgpu/execute/rounding.h"

// ---- the common cases

BINARY(add_f32, LaneF32, LaneF32, LaneF32, canonical(a + b))
BINARY(sub_f32, LaneF32, LaneF32, LaneF32, canonical(a - b))
BINARY(mul_f32, LaneF32, LaneF32, LaneF32, canonical(a *b))
BINARY(add_ftz_f32, LaneF32, LaneF32, LaneF32, canonical(flush(flush(a) + flush(b))))
BINARY(sub_ftz_f32, LaneF32, LaneF32, LaneF32, canonical(flush(flush(a) - flush(b))))
BINARY(mul_ftz_f32, LaneF32, LaneF32, LaneF32, canonical(flush(flush(a) * flush(b))))
TERNARY(fma_f32, LaneF32, LaneF32, LaneF32, LaneF32, canonical(fmaf(a, b, c)))
TERNARY(fma_ftz_f32, LaneF32, LaneF32, LaneF32, LaneF32,
        canonical(flush(fmaf(flush(a), flush(b), flush(c)))))
BINARY(div_f32, LaneF32, LaneF32, LaneF32, canonical(a / b))
UNARY(rcp_f32, LaneF32, LaneF32, canonical(1.0f / a))
UNARY(sqrt_f32, LaneF32, LaneF32, canonical(sqrtf(a)))

BINARY(add_f64, LaneF64, LaneF64, LaneF64, a + b)
BINARY(sub_f64, LaneF64, LaneF64, LaneF64, a - b)
BINARY(mul_f64, LaneF64, LaneF64, LaneF64, a *b)
TERNARY(fma_f64, LaneF64, LaneF64, LaneF64, LaneF64, fma(a, b, c))
BINARY(div_f64, LaneF64, LaneF64, LaneF64, a / b)
UNARY(rcp_f64, LaneF64, LaneF64, 1.0 / a)
UNARY(sqrt_f64, LaneF64, LaneF64, sqrt(a))

// ---- every rounding, .ftz and .sat

// One operation on n floats or doubles; what it doesn't take is NULL. Not inlined: the arithmetic
// has to stay between the switches of the rounding mode.
typedef void Loop32(float *r, const float *a, const float *b, const float *c, int n);
typedef void Loop64(double *r, const double *a, const double *b, const double *c);
#define LOOP(name, expression32, expression64)                                                     \
    static __attribute__((noinline)) void name##_loop32(float *r, const float *a, const float *b,  \
                                                        const float *c, int n) {                   \
        (void)a, (void)b, (void)c;                                                                 \
        for (int k = 0; k < n; k++) r[k] = expression32;                                           \
    }                                                                                              \
    static __attribute__((noinline)) void name##_loop64(double *r, const double *a,                \
                                                        const double *b, const double *c) {        \
        (void)a, (void)b, (void)c;                                                                 \
        for (int k = 0; k < WARP_SIZE; k++) r[k] = expression64;                                   \
    }
LOOP(add, a[k] + b[k], a[k] + b[k])
LOOP(sub, a[k] - b[k], a[k] - b[k])
LOOP(mul, a[k] * b[k], a[k] * b[k])
LOOP(fma, fmaf(a[k], b[k], c[k]), fma(a[k], b[k], c[k]))
LOOP(div, a[k] / b[k], a[k] / b[k])
LOOP(rcp, 1.0f / a[k], 1.0 / a[k])
LOOP(sqrt, sqrtf(a[k]), sqrt(a[k]))

// Copies n floats, flushed if asked.
static void fetch(float *to, const void *from, int n, bool ftz) {
    memcpy(to, from, sizeof *to * (size_t)n);
    if (ftz)
        for (int k = 0; k < n; k++) to[k] = flush(to[k]);
}

// choice[0]: the rounding; choice[1]: .ftz. `n`: 32, or 64 for f32x2.
static Flow general_f32(Warp *w, const Insn *i, uint32_t mask, Loop32 *loop, int n, bool sat) {
    float a[2 * WARP_SIZE], b[2 * WARP_SIZE], c[2 * WARP_SIZE], r[2 * WARP_SIZE];
    bool ftz = i->choice[1];
    fetch(a, row(w, i->a), n, ftz);
    if (i->b != ROW_NONE) fetch(b, row(w, i->b), n, ftz);
    if (i->c != ROW_NONE) fetch(c, row(w, i->c), n, ftz);
    RoundingState old = rounding_begin(chosen_rounding(i->choice[0]));
    loop(r, a, b, c, n);
    rounding_end(old);
    for (int k = 0; k < n; k++) r[k] = canonical(r[k]);
    if (ftz)
        for (int k = 0; k < n; k++) r[k] = flush(r[k]);
    if (sat)
        for (int k = 0; k < n; k++) r[k] = saturate(r[k]);
    if (n == WARP_SIZE)
        put32(w, i->d, r, mask);
    else
        put64(w, i->d, r, mask);
    return FLOW_NEXT;
}
static Flow general_f64(Warp *w, const Insn *i, uint32_t mask, Loop64 *loop) {
    double a[WARP_SIZE], b[WARP_SIZE], c[WARP_SIZE], r[WARP_SIZE];
    memcpy(a, row(w, i->a), sizeof a);
    if (i->b != ROW_NONE) memcpy(b, row(w, i->b), sizeof b);
    if (i->c != ROW_NONE) memcpy(c, row(w, i->c), sizeof c);
    RoundingState old = rounding_begin(chosen_rounding(i->choice[0]));
    loop(r, a, b, c);
    rounding_end(old);
    put64(w, i->d, r, mask);
    return FLOW_NEXT;
}
// `sat`: choice[2] is .sat where the form has it.
#define GENERAL(name, sat)                                                                         \
    static Flow name##_general_f32(Warp *w, const Insn *i, uint32_t mask) {                        \
        return general_f32(w, i, mask, name##_loop32, WARP_SIZE, sat);                             \
    }                                                                                              \
    static Flow name##_general_f64(Warp *w, const Insn *i, uint32_t mask) {                        \
        return general_f64(w, i, mask, name##_loop64);                                             \
    }
#define GENERAL_X2(name)                                                                           \
    GENERAL(name, i->choice[2])                                                                    \
    static Flow name##_f32x2(Warp *w, const Insn *i, uint32_t mask) {                              \
        return general_f32(w, i, mask, name##_loop32, 2 * WARP_SIZE, false);                       \
    }
GENERAL_X2(add)
GENERAL_X2(sub)
GENERAL_X2(mul)
GENERAL_X2(fma)
GENERAL(div, false)
GENERAL(rcp, false)
GENERAL(sqrt, false)

// Mixed precision: add.f32.f16 d, a, c and fma.f32.bf16 d, a, b, c widen the 16-bit sources first.
// choice[0]: rounding; choice[1]: .sat; choice[2]: always f32; choice[3]: 1 = f16, 2 = bf16.
static void widen(float *to, const Lane16 *from, bool bf16) {
    for (int l = 0; l < WARP_SIZE; l++)
        to[l] = bf16 ? bf16_to_float(from[l]) : half_to_float(from[l]);
}
static Flow mixed(Warp *w, const Insn *i, uint32_t mask, Loop32 *loop, bool third) {
    float a[WARP_SIZE], b[WARP_SIZE], c[WARP_SIZE], r[WARP_SIZE];
    bool bf16 = i->choice[3] == 2;
    widen(a, row(w, i->a), bf16);
    if (third) {
        widen(b, row(w, i->b), bf16);
        memcpy(c, row(w, i->c), sizeof c);
    } else {
        memcpy(b, row(w, i->b), sizeof b);
    }
    RoundingState old = rounding_begin(chosen_rounding(i->choice[0]));
    loop(r, a, b, c, WARP_SIZE);
    rounding_end(old);
    for (int l = 0; l < WARP_SIZE; l++) r[l] = canonical(r[l]);
    if (i->choice[1])
        for (int l = 0; l < WARP_SIZE; l++) r[l] = saturate(r[l]);
    put32(w, i->d, r, mask);
    return FLOW_NEXT;
}
static Flow add_mixed(Warp *w, const Insn *i, uint32_t mask) {
    return mixed(w, i, mask, add_loop32, false);
}
static Flow sub_mixed(Warp *w, const Insn *i, uint32_t mask) {
    return mixed(w, i, mask, sub_loop32, false);
}
static Flow fma_mixed(Warp *w, const Insn *i, uint32_t mask) {
    return mixed(w, i, mask, fma_loop32, true);
}

// ---- signs

UNARY(abs_f32, Lane32, Lane32, a & 0x7fffffffu)
UNARY(neg_f32, Lane32, Lane32, a ^ 0x80000000u)
UNARY(abs_ftz_f32, LaneF32, LaneF32, fabsf(flush(a)))
UNARY(neg_ftz_f32, LaneF32, LaneF32, -flush(a))
UNARY(abs_f64, Lane64, Lane64, a & ~(1ull << 63))
UNARY(neg_f64, Lane64, Lane64, a ^ 1ull << 63)
// The sign of a on the value of b.
BINARY(copysign_f32, Lane32, Lane32, Lane32, (a & 0x80000000u) | (b & 0x7fffffffu))
BINARY(copysign_f64, Lane64, Lane64, Lane64, (a & 1ull << 63) | (b & ~(1ull << 63)))

// ---- minimum and maximum: a NaN loses against a number, -0 is less than +0

static inline float max_of(float a, float b) {
    float r = a > b ? a : b;
    r = a == b ? bits_float(float_bits(a) & float_bits(b)) : r;
    return canonical(b != b ? a : r);
}
static inline float min_of(float a, float b) {
    float r = a < b ? a : b;
    r = a == b ? bits_float(float_bits(a) | float_bits(b)) : r;
    return canonical(b != b ? a : r);
}
BINARY(max_f32, LaneF32, LaneF32, LaneF32, max_of(a, b))
BINARY(min_f32, LaneF32, LaneF32, LaneF32, min_of(a, b))
BINARY(max_ftz_f32, LaneF32, LaneF32, LaneF32, max_of(flush(a), flush(b)))
BINARY(min_ftz_f32, LaneF32, LaneF32, LaneF32, min_of(flush(a), flush(b)))

static inline double max_double(double a, double b) {
    if (a != a) return b;
    if (b != b) return a;
    return a == b ? bits_double(double_bits(a) & double_bits(b)) : a > b ? a : b;
}
static inline double min_double(double a, double b) {
    if (a != a) return b;
    if (b != b) return a;
    return a == b ? bits_double(double_bits(a) | double_bits(b)) : a < b ? a : b;
}
BINARY(max_f64, LaneF64, LaneF64, LaneF64, max_double(a, b))
BINARY(min_f64, LaneF64, LaneF64, LaneF64, min_double(a, b))

// All modifiers, two or three sources. choice: [0] ftz, [1] NaN, [2] xorsign, [3] abs.
// .NaN: a NaN wins. .abs compares magnitudes; .xorsign gives the result the product's sign.
static Flow extreme(Warp *w, const Insn *i, uint32_t mask, bool want_max) {
    const Row sources[3] = {i->a, i->b, i->c};
    int count = i->c == ROW_NONE ? 2 : 3;
    bool ftz = i->choice[0], magnitude = i->choice[3];
    float r[WARP_SIZE], next[WARP_SIZE];
    uint32_t sign[WARP_SIZE] = {0}, any_nan[WARP_SIZE] = {0};
    for (int s = 0; s < count; s++) {
        fetch(next, row(w, sources[s]), WARP_SIZE, ftz);
        for (int l = 0; l < WARP_SIZE; l++) sign[l] ^= float_bits(next[l]) & 0x80000000u;
        for (int l = 0; l < WARP_SIZE; l++) any_nan[l] |= next[l] != next[l];
        if (magnitude)
            for (int l = 0; l < WARP_SIZE; l++) next[l] = fabsf(next[l]);
        if (s == 0)
            memcpy(r, next, sizeof r);
        else if (want_max)
            for (int l = 0; l < WARP_SIZE; l++) r[l] = max_of(r[l], next[l]);
        else
            for (int l = 0; l < WARP_SIZE; l++) r[l] = min_of(r[l], next[l]);
    }
    if (i->choice[1])
        for (int l = 0; l < WARP_SIZE; l++) r[l] = any_nan[l] ? bits_float(0x7fffffffu) : r[l];
    if (i->choice[2])
        for (int l = 0; l < WARP_SIZE; l++)
            r[l] = r[l] == r[l] ? bits_float(float_bits(r[l]) | sign[l]) : r[l];
    put32(w, i->d, r, mask);
    return FLOW_NEXT;
}
static Flow max_general(Warp *w, const Insn *i, uint32_t mask) {
    return extreme(w, i, mask, true);
}
static Flow min_general(Warp *w, const Insn *i, uint32_t mask) {
    return extreme(w, i, mask, false);
}

// ---- testp

typedef enum { FINITE = 1, INFINITE, NUMBER, NOT_A_NUMBER, NORMAL, SUBNORMAL } Property;
static inline bool has_property(int class, Property property) {
    switch (property) {
    case FINITE: return class != FP_INFINITE && class != FP_NAN;
    case INFINITE: return class == FP_INFINITE;
    case NUMBER: return class != FP_NAN;
    case NOT_A_NUMBER: return class == FP_NAN;
    case NORMAL: return class == FP_NORMAL;
    case SUBNORMAL: return class == FP_SUBNORMAL;
    }
    return false;
}
static Flow testp_f32(Warp *w, const Insn *i, uint32_t mask) {
    const LaneF32 *a = row(w, i->a);
    uint32_t bits = 0;
    for (int l = 0; l < WARP_SIZE; l++)
        bits |= (uint32_t)has_property(fpclassify(a[l]), (Property)i->choice[0]) << l;
    put_predicate(w, i->d, bits, mask);
    return FLOW_NEXT;
}
static Flow testp_f64(Warp *w, const Insn *i, uint32_t mask) {
    const LaneF64 *a = row(w, i->a);
    uint32_t bits = 0;
    for (int l = 0; l < WARP_SIZE; l++)
        bits |= (uint32_t)has_property(fpclassify(a[l]), (Property)i->choice[0]) << l;
    put_predicate(w, i->d, bits, mask);
    return FLOW_NEXT;
}

#define R1_32 "d32 a32"
#define R2_32 "d32 a32 b32"
#define R3_32 "d32 a32 b32 c32"
#define R1_64 "d64 a64"
#define R2_64 "d64 a64 b64"
#define R3_64 "d64 a64 b64 c64"
#define RND   "rn|rz|rm|rp"

const Form float_forms[] = {
    {"add", "rn? f32", R2_32, add_f32, PIPE_FMA, 1},
    {"add", "rn? ftz f32", R2_32, add_ftz_f32, PIPE_FMA, 1},
    {"add", RND "? ftz? sat? f32", R2_32, add_general_f32, PIPE_FMA, 1},
    {"add", "rn? f64", R2_64, add_f64, PIPE_FP64, 1},
    {"add", RND " f64", R2_64, add_general_f64, PIPE_FP64, 1},
    {"add", RND "? ftz? f32x2", R2_64, add_f32x2, PIPE_FMA, 2},
    {"add", RND "? sat? f32 f16|bf16", "d32 a16 b32", add_mixed, PIPE_FMA, 1},
    {"sub", "rn? f32", R2_32, sub_f32, PIPE_FMA, 1},
    {"sub", "rn? ftz f32", R2_32, sub_ftz_f32, PIPE_FMA, 1},
    {"sub", RND "? ftz? sat? f32", R2_32, sub_general_f32, PIPE_FMA, 1},
    {"sub", "rn? f64", R2_64, sub_f64, PIPE_FP64, 1},
    {"sub", RND " f64", R2_64, sub_general_f64, PIPE_FP64, 1},
    {"sub", RND "? ftz? f32x2", R2_64, sub_f32x2, PIPE_FMA, 2},
    {"sub", RND "? sat? f32 f16|bf16", "d32 a16 b32", sub_mixed, PIPE_FMA, 1},
    {"mul", "rn? f32", R2_32, mul_f32, PIPE_FMA, 1},
    {"mul", "rn? ftz f32", R2_32, mul_ftz_f32, PIPE_FMA, 1},
    {"mul", RND "? ftz? sat? f32", R2_32, mul_general_f32, PIPE_FMA, 1},
    {"mul", "rn? f64", R2_64, mul_f64, PIPE_FP64, 1},
    {"mul", RND " f64", R2_64, mul_general_f64, PIPE_FP64, 1},
    {"mul", RND "? ftz? f32x2", R2_64, mul_f32x2, PIPE_FMA, 2},
    {"fma", "rn f32", R3_32, fma_f32, PIPE_FMA, 2},
    {"fma", "rn ftz f32", R3_32, fma_ftz_f32, PIPE_FMA, 2},
    {"fma", RND " ftz? sat? f32", R3_32, fma_general_f32, PIPE_FMA, 2},
    {"fma", "rn f64", R3_64, fma_f64, PIPE_FP64, 2},
    {"fma", RND " f64", R3_64, fma_general_f64, PIPE_FP64, 2},
    {"fma", RND " ftz? f32x2", R3_64, fma_f32x2, PIPE_FMA, 4},
    {"fma", RND " sat? f32 f16|bf16", "d32 a16 b16 c32", fma_mixed, PIPE_FMA, 2},
    {"mad", RND "? ftz? sat? f32", R3_32, fma_general_f32, PIPE_FMA, 2},
    {"mad", RND " f64", R3_64, fma_general_f64, PIPE_FP64, 2},

    {"div", "rn f32", R2_32, div_f32, PIPE_FMA, 1},
    {"div", RND " ftz? f32", R2_32, div_general_f32, PIPE_FMA, 1},
    {"div", "rn f64", R2_64, div_f64, PIPE_FP64, 1},
    {"div", RND " f64", R2_64, div_general_f64, PIPE_FP64, 1},
    {"rcp", "rn f32", R1_32, rcp_f32, PIPE_FMA, 1},
    {"rcp", RND " ftz? f32", R1_32, rcp_general_f32, PIPE_FMA, 1},
    {"rcp", "rn f64", R1_64, rcp_f64, PIPE_FP64, 1},
    {"rcp", RND " f64", R1_64, rcp_general_f64, PIPE_FP64, 1},
    {"sqrt", "rn f32", R1_32, sqrt_f32, PIPE_FMA, 1},
    {"sqrt", RND " ftz? f32", R1_32, sqrt_general_f32, PIPE_FMA, 1},
    {"sqrt", "rn f64", R1_64, sqrt_f64, PIPE_FP64, 1},
    {"sqrt", RND " f64", R1_64, sqrt_general_f64, PIPE_FP64, 1},

    {"abs", "f32", R1_32, abs_f32, PIPE_ALU},
    {"abs", "ftz f32", R1_32, abs_ftz_f32, PIPE_ALU},
    {"abs", "f64", R1_64, abs_f64, PIPE_ALU},
    {"neg", "f32", R1_32, neg_f32, PIPE_ALU},
    {"neg", "ftz f32", R1_32, neg_ftz_f32, PIPE_ALU},
    {"neg", "f64", R1_64, neg_f64, PIPE_ALU},
    {"copysign", "f32", R2_32, copysign_f32, PIPE_ALU},
    {"copysign", "f64", R2_64, copysign_f64, PIPE_ALU},
    {"min", "f32", R2_32, min_f32, PIPE_ALU},
    {"min", "ftz f32", R2_32, min_ftz_f32, PIPE_ALU},
    {"min", "ftz? NaN? xorsign? abs? f32", R3_32 "?", min_general, PIPE_ALU},
    {"min", "f64", R2_64, min_f64, PIPE_FP64},
    {"max", "f32", R2_32, max_f32, PIPE_ALU},
    {"max", "ftz f32", R2_32, max_ftz_f32, PIPE_ALU},
    {"max", "ftz? NaN? xorsign? abs? f32", R3_32 "?", max_general, PIPE_ALU},
    {"max", "f64", R2_64, max_f64, PIPE_FP64},
    {"testp", "finite|infinite|number|notanumber|normal|subnormal f32", "dp a32", testp_f32,
     PIPE_ALU},
    {"testp", "finite|infinite|number|notanumber|normal|subnormal f64", "dp a64", testp_f64,
     PIPE_ALU},
    {0},
};
