// Arithmetic on f16, bf16 and their pairs (PTX ISA 9.7.4): add, sub, mul, fma, neg, abs, min, max.
//
// Sums and products of two are computed in f32 and rounded again: f32 has more than twice the bits
// plus two, so the second rounding can't differ from a single one; the exception is bf16, whose sums
// span more exponents than that argument covers only when the smaller is below half an ulp of f32,
// where it can't reach a tie either. fma is computed in double, rounded to odd, which makes the
// final rounding that of the exact result.
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
static void store(Warp *w, const Insn *i, uint32_t mask, const float *r, int n, bool bf16, bool ftz) {
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

typedef enum { TYPE_CHOICE_F16 = 1, TYPE_CHOICE_F16X2, TYPE_CHOICE_BF16, TYPE_CHOICE_BF16X2 } HalfType;
static inline bool is_bf16(unsigned type) { return type >= TYPE_CHOICE_BF16; }
static inline int half_count(unsigned type) { return type % 2 == 0 ? MAX_HALVES : WARP_SIZE; }

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

// a * b + c rounded to odd in double: if bits were lost, the last bit says so.
static inline double fma_odd(double a, double b, double c) {
    double product = a * b; // exact: at most 22 bits
    double sum = product + c;
    double back = sum - product; // Knuth's two-sum: what the rounding of the sum lost
    double lost = (product - (sum - back)) + (c - back);
    uint64_t bits = double_bits(sum);
    if (lost == 0 || lost != lost || (bits & 1)) return sum;
    // towards the lost part: the neighbour whose last bit is odd
    bool away = (lost > 0) == (sum > 0);
    return bits_double(away ? bits + 1 : bits - 1);
}

// choice: [0] rn, [1] ftz, [2] sat, [3] type, [4] relu.
static Flow half_fma(Warp *w, const Insn *i, uint32_t mask) {
    float a[MAX_HALVES], b[MAX_HALVES], c[MAX_HALVES];
    uint16_t r[MAX_HALVES];
    bool bf16 = is_bf16(i->choice[3]), ftz = i->choice[1];
    int n = half_count(i->choice[3]);
    fetch(a, row(w, i->a), n, bf16, ftz);
    fetch(b, row(w, i->b), n, bf16, ftz);
    fetch(c, row(w, i->c), n, bf16, ftz);
    const Format *format = bf16 ? &FORMAT_BF16 : &FORMAT_F16;
    for (int k = 0; k < n; k++) {
        uint16_t h =
            (uint16_t)round_to_format(fma_odd(a[k], b[k], c[k]), format, ROUND_NEAREST, false);
        bool nan = (h & 0x7fff) > format->max_finite + 1;
        if (ftz && !(h >> format->mantissa & ((1u << format->exponent) - 1))) h &= 0x8000;
        if (i->choice[4] && (h & 0x8000) && !nan) h = 0;
        if (i->choice[2]) {
            uint16_t one = bf16 ? 0x3f80 : 0x3c00;
            h = nan || (h & 0x8000) ? 0 : h > one ? one : h;
        }
        r[k] = h;
    }
    if (n == MAX_HALVES)
        put32(w, i->d, r, mask);
    else
        put16(w, i->d, r, mask);
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
#define SIGNED_AS_ASKED(x) (negate ? (x) ^ 0x80008000u : (x) & 0x7fff7fffu)
        EACH_LANE(uint32_t, d, mask, SIGNED_AS_ASKED(ftz ? flush_halves(a[l], bf16) : a[l]));
    } else {
        Lane16 *d = row(w, i->d);
        const Lane16 *a = row(w, i->a);
        EACH_LANE(uint16_t, d, mask, SIGNED_AS_ASKED(ftz ? flush_halves(a[l], bf16) : a[l]));
    }
    return FLOW_NEXT;
}
static Flow half_neg(Warp *w, const Insn *i, uint32_t mask) { return half_sign(w, i, mask, true); }
static Flow half_abs(Warp *w, const Insn *i, uint32_t mask) { return half_sign(w, i, mask, false); }

// ---- min, max. choice: [0] ftz, [1] NaN, [2] xorsign, [3] abs, [4] type

// Codes ordered as integers: -0 below +0.
static inline int32_t order(uint16_t h) { return h & 0x8000 ? -(int32_t)(h & 0x7fff) - 1 : h; }

static inline uint16_t extreme_of(uint16_t a, uint16_t b, bool want_max, bool nan_wins,
                                  uint16_t infinity) {
    bool a_nan = (a & 0x7fff) > infinity, b_nan = (b & 0x7fff) > infinity;
    if (a_nan || b_nan) return (a_nan && b_nan) || nan_wins ? 0x7fff : a_nan ? b : a;
    return (order(a) > order(b)) == want_max ? a : b;
}
static Flow half_extreme(Warp *w, const Insn *i, uint32_t mask, bool want_max) {
    unsigned type = i->choice[4];
    bool bf16 = is_bf16(type);
    int n = half_count(type);
    uint16_t infinity = bf16 ? 0x7f80 : 0x7c00;
    const Lane16 *a = row(w, i->a), *b = row(w, i->b);
    uint16_t r[MAX_HALVES];
    for (int k = 0; k < n; k++) {
        uint16_t x = a[k], y = b[k];
        if (i->choice[0]) x = (uint16_t)flush_halves(x, bf16), y = (uint16_t)flush_halves(y, bf16);
        uint16_t sign = (x ^ y) & 0x8000;
        if (i->choice[3]) x &= 0x7fff, y &= 0x7fff;
        r[k] = extreme_of(x, y, want_max, i->choice[1], infinity);
        if (i->choice[2] && (r[k] & 0x7fff) <= infinity) r[k] = (r[k] & 0x7fff) | sign;
    }
    if (n == MAX_HALVES)
        put32(w, i->d, r, mask);
    else
        put16(w, i->d, r, mask);
    return FLOW_NEXT;
}
static Flow half_max(Warp *w, const Insn *i, uint32_t mask) { return half_extreme(w, i, mask, true); }
static Flow half_min(Warp *w, const Insn *i, uint32_t mask) { return half_extreme(w, i, mask, false); }

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
