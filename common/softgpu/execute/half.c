// Arithmetic on f16, bf16 and their pairs (PTX ISA 9.7.4): add, sub, mul, fma, neg, abs, min, max.
//
// Sums and products of two are computed in f32 and rounded again. That gives what one rounding
// gives: products are exact in f32, and a sum that is not has an addend so small that it can't
// bring the result near a tie. fma is computed in f32 where products are exact in it, otherwise in
// double and narrowed, and rounded to odd: an odd last bit tells the final rounding that something
// was cut off, so that it is right.
#include "softgpu/execute/execute.h"
#include "softgpu/execute/formats.h"

enum { MAX_HALVES = 2 * WARP_SIZE };

static void fetch(float *to, const Lane16 *from, int n, bool bf16, bool ftz) {
    if (bf16)
        for (int k = 0; k < n; k++) to[k] = bf16_to_float(from[k]);
    else
        halves_to_floats(to, (const uint16_t *)from, n);
    if (!ftz) return;
    float smallest = bf16 ? 0x1p-126f : 0x1p-14f;
    for (int k = 0; k < n; k++) to[k] = fabsf(to[k]) < smallest ? copysignf(0.0f, to[k]) : to[k];
}

// Rounds, flushes if asked, and writes the lanes of `mask`.
static void store(Warp *w, const Insn *i, uint32_t mask, const float *r, int n, bool bf16,
                  bool ftz) {
    uint16_t h[MAX_HALVES];
    if (bf16)
        for (int k = 0; k < n; k++) h[k] = float_to_bf16(r[k]);
    else
        floats_to_halves(h, r, n);
    if (ftz) {
        uint16_t exponent = bf16 ? 0x7f80 : 0x7c00;
        for (int k = 0; k < n; k++) h[k] = h[k] & exponent ? h[k] : h[k] & 0x8000;
    }
    if (n == MAX_HALVES)
        put32(w, i->d, h, mask);
    else
        put16(w, i->d, h, mask);
}

// ---- add, sub, mul. choice: [0] rn, [1] ftz, [2] sat, [3] type: 1 f16, 2 f16x2, 3 bf16, 4 bf16x2

typedef enum {
    TYPE_CHOICE_F16 = 1,
    TYPE_CHOICE_F16X2,
    TYPE_CHOICE_BF16,
    TYPE_CHOICE_BF16X2
} HalfType;
static inline bool is_bf16(unsigned type) {
    return type >= TYPE_CHOICE_BF16;
}
static inline int half_count(unsigned type) {
    return type % 2 == 0 ? MAX_HALVES : WARP_SIZE;
}

#define ARITHMETIC(name, expression)                                                               \
    static Flow name(Warp *w, const Insn *i, uint32_t mask) {                                      \
        float a[MAX_HALVES], b[MAX_HALVES], r[MAX_HALVES];                                         \
        bool bf16 = is_bf16(i->choice[3]);                                                         \
        int n = half_count(i->choice[3]);                                                          \
        fetch(a, row(w, i->a), n, bf16, i->choice[1]);                                             \
        fetch(b, row(w, i->b), n, bf16, i->choice[1]);                                             \
        for (int k = 0; k < n; k++) r[k] = expression;                                             \
        if (i->choice[2])                                                                          \
            for (int k = 0; k < n; k++) r[k] = saturate(r[k]);                                     \
        store(w, i, mask, r, n, bf16, i->choice[1]);                                               \
        return FLOW_NEXT;                                                                          \
    }
ARITHMETIC(half_add, a[k] + b[k])
ARITHMETIC(half_sub, a[k] - b[k])
ARITHMETIC(half_mul, a[k] * b[k])

// a * b + c rounded to odd: if bits were lost, the last bit says so. The product must be exact in
// the type, and the sum must not overflow.
static inline double fma_odd(double a, double b, double c) {
    double product = a * b;
    double sum = product + c;
    double back = sum - product; // Knuth's two-sum: what the rounding of the sum lost
    double lost = (product - (sum - back)) + (c - back);
    uint64_t bits = double_bits(sum);
    // towards the lost part: the neighbour whose last bit is odd
    uint64_t odd = (lost > 0) == (sum > 0) ? bits + 1 : bits - 1;
    return lost == 0 || lost != lost || (bits & 1) ? sum : bits_double(odd);
}
static inline float fma_odd_f32(float a, float b, float c) {
    float product = a * b;
    float sum = product + c;
    float back = sum - product;
    float lost = (product - (sum - back)) + (c - back);
    uint32_t bits = float_bits(sum);
    uint32_t odd = (lost > 0) == (sum > 0) ? bits + 1 : bits - 1;
    return lost == 0 || lost != lost || (bits & 1) ? sum : bits_float(odd);
}

// A double as a float, rounded to odd.
static inline float narrow_odd(double x) {
    float y = (float)x;
    uint32_t bits = float_bits(y);
    uint32_t odd = fabs(x) > fabs((double)y) ? bits + 1 : bits - 1;
    return x == (double)y || x != x || (bits & 1) ? y : bits_float(odd);
}

// Does f32 do for these numbers? It does for all of f16: products have 22 bits and lie between
// 2^-48 and 2^32. Those of bf16 have 16 bits, but may be too small or too large.
static bool f32_does(const float *a, const float *b, const float *c, int n, bool bf16) {
    if (!bf16) return true;
    int bad = 0;
    for (int k = 0; k < n; k++) {
        float product = fabsf(a[k] * b[k]);
        bool small = product < 0x1p-100f && !(a[k] == 0 || b[k] == 0);
        bad |= small | !(product < 0x1p126f) | !(fabsf(c[k]) < 0x1p126f);
    }
    return !bad;
}

// choice: [0] rn, [1] ftz, [2] sat, [3] type, [4] relu.
static Flow half_fma(Warp *w, const Insn *i, uint32_t mask) {
    float a[MAX_HALVES], b[MAX_HALVES], c[MAX_HALVES], r[MAX_HALVES];
    bool bf16 = is_bf16(i->choice[3]), ftz = i->choice[1];
    int n = half_count(i->choice[3]);
    fetch(a, row(w, i->a), n, bf16, ftz);
    fetch(b, row(w, i->b), n, bf16, ftz);
    fetch(c, row(w, i->c), n, bf16, ftz);
    if (f32_does(a, b, c, n, bf16))
        for (int k = 0; k < n; k++) r[k] = fma_odd_f32(a[k], b[k], c[k]);
    else
        for (int k = 0; k < n; k++) r[k] = narrow_odd(fma_odd(a[k], b[k], c[k]));
    if (i->choice[2])
        for (int k = 0; k < n; k++) r[k] = saturate(r[k]);
    if (i->choice[4])
        for (int k = 0; k < n; k++) r[k] = r[k] > 0.0f || r[k] != r[k] ? r[k] : 0.0f;
    store(w, i, mask, r, n, bf16, ftz);
    return FLOW_NEXT;
}

// ---- signs. choice: [0] ftz, [1] type

static inline uint32_t flush_halves(uint32_t x, bool bf16) {
    uint32_t exponent = bf16 ? 0x7f80 : 0x7c00;
    uint32_t lower = x & exponent ? 0xffff : 0x8000;
    uint32_t upper = x & exponent << 16 ? 0xffff0000u : 0x80000000u;
    return x & (lower | upper);
}
static Flow half_sign(Warp *w, const Insn *i, uint32_t mask, bool negate) {
    unsigned type = i->choice[1];
    bool bf16 = is_bf16(type), ftz = i->choice[0];
    if (half_count(type) == MAX_HALVES) {
        Lane32 *d = row(w, i->d);
        const Lane32 *a = row(w, i->a);
#define SIGNED_AS_ASKED(x) (negate ? (x) ^ 0x80008000u : (x)&0x7fff7fffu)
        EACH_LANE(uint32_t, d, mask, SIGNED_AS_ASKED(ftz ? flush_halves(a[l], bf16) : a[l]));
    } else {
        Lane16 *d = row(w, i->d);
        const Lane16 *a = row(w, i->a);
        EACH_LANE(uint16_t, d, mask, SIGNED_AS_ASKED(ftz ? flush_halves(a[l], bf16) : a[l]));
    }
    return FLOW_NEXT;
}
static Flow half_neg(Warp *w, const Insn *i, uint32_t mask) {
    return half_sign(w, i, mask, true);
}
static Flow half_abs(Warp *w, const Insn *i, uint32_t mask) {
    return half_sign(w, i, mask, false);
}

// ---- min, max. choice: [0] ftz, [1] NaN, [2] xorsign, [3] abs, [4] type

// Codes ordered as integers: -0 below +0.
static inline int16_t order(uint16_t h) {
    return (int16_t)(h ^ ((int16_t)h >> 15 & 0x7fff));
}

static Flow half_extreme(Warp *w, const Insn *i, uint32_t mask, bool want_max) {
    unsigned type = i->choice[4];
    bool bf16 = is_bf16(type), ftz = i->choice[0], nan_wins = i->choice[1];
    uint16_t infinity = bf16 ? 0x7f80 : 0x7c00;
    uint16_t sign_kept = i->choice[3] ? 0x7fff : 0xffff, xorsign = i->choice[2] ? 0x8000 : 0;
    int n = half_count(type);
    const Lane16 *a = row(w, i->a), *b = row(w, i->b);
    uint16_t x[MAX_HALVES], y[MAX_HALVES], r[MAX_HALVES];
    memcpy(x, a, sizeof *x * (size_t)n);
    memcpy(y, b, sizeof *y * (size_t)n);
    if (ftz)
        for (int k = 0; k < n; k++) {
            x[k] = (uint16_t)flush_halves(x[k], bf16);
            y[k] = (uint16_t)flush_halves(y[k], bf16);
        }
    for (int k = 0; k < n; k++) {
        uint16_t sign = (x[k] ^ y[k]) & xorsign, p = x[k] & sign_kept, q = y[k] & sign_kept;
        bool p_nan = (p & 0x7fff) > infinity, q_nan = (q & 0x7fff) > infinity;
        uint16_t best = (order(p) > order(q)) == want_max ? p : q;
        best = p_nan ? q : best;
        best = q_nan ? p : best;
        best = xorsign ? (best & 0x7fff) | sign : best;
        bool nan = nan_wins ? p_nan | q_nan : p_nan & q_nan;
        r[k] = nan ? 0x7fff : best;
    }
    if (n == MAX_HALVES)
        put32(w, i->d, r, mask);
    else
        put16(w, i->d, r, mask);
    return FLOW_NEXT;
}
static Flow half_max(Warp *w, const Insn *i, uint32_t mask) {
    return half_extreme(w, i, mask, true);
}
static Flow half_min(Warp *w, const Insn *i, uint32_t mask) {
    return half_extreme(w, i, mask, false);
}

#define SINGLE "f16|_|bf16" // "_" is no modifier: it keeps the numbers of HalfType
#define PAIR   "_|f16x2|__|bf16x2"
#define R1_16  "d16 a16"
#define R2_16  "d16 a16 b16"
#define R3_16  "d16 a16 b16 c16"
#define R1_32  "d32 a32"
#define R2_32  "d32 a32 b32"
#define R3_32  "d32 a32 b32 c32"

const Form half_forms[] = {
    {"add", "rn? ftz? sat? " SINGLE, R2_16, half_add, PIPE_FMA, 1},
    {"add", "rn? ftz? sat? " PAIR, R2_32, half_add, PIPE_FMA, 2},
    {"sub", "rn? ftz? sat? " SINGLE, R2_16, half_sub, PIPE_FMA, 1},
    {"sub", "rn? ftz? sat? " PAIR, R2_32, half_sub, PIPE_FMA, 2},
    {"mul", "rn? ftz? sat? " SINGLE, R2_16, half_mul, PIPE_FMA, 1},
    {"mul", "rn? ftz? sat? " PAIR, R2_32, half_mul, PIPE_FMA, 2},
    {"fma", "rn ftz? sat? " SINGLE " relu?", R3_16, half_fma, PIPE_FMA, 2},
    {"fma", "rn ftz? sat? " PAIR " relu?", R3_32, half_fma, PIPE_FMA, 4},
    {"neg", "ftz? " SINGLE, R1_16, half_neg, PIPE_ALU},
    {"neg", "ftz? " PAIR, R1_32, half_neg, PIPE_ALU},
    {"abs", "ftz? " SINGLE, R1_16, half_abs, PIPE_ALU},
    {"abs", "ftz? " PAIR, R1_32, half_abs, PIPE_ALU},
    {"min", "ftz? NaN? xorsign? abs? " SINGLE, R2_16, half_min, PIPE_ALU},
    {"min", "ftz? NaN? xorsign? abs? " PAIR, R2_32, half_min, PIPE_ALU},
    {"max", "ftz? NaN? xorsign? abs? " SINGLE, R2_16, half_max, PIPE_ALU},
    {"max", "ftz? NaN? xorsign? abs? " PAIR, R2_32, half_max, PIPE_ALU},
    {0},
};
