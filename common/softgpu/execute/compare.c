// Comparison and selection (PTX ISA 9.7.6, 9.7.7): setp, set, selp, slct.
//
// A comparison of two rows gives a bit mask of lanes. For each (type, operator) there is one
// function that makes the mask, and one handler for setp; `set` calls the former.
#include "softgpu/execute/execute.h"
#include "softgpu/execute/formats.h"

typedef uint32_t Compare(const Warp *w, const Insn *i);

// What setp does with the mask: p = mask op c, q = !mask op c.
typedef enum { BOOL_NONE, BOOL_AND, BOOL_OR, BOOL_XOR } BoolOp;
static inline uint32_t combine(const Warp *w, const Insn *i, uint32_t bits) {
    if (i->c == ROW_NONE) return bits;
    uint32_t c = predicate(w, i->c);
    return i->choice[1] == BOOL_AND ? bits & c : i->choice[1] == BOOL_OR ? bits | c : bits ^ c;
}
static inline Flow set_predicates(Warp *w, const Insn *i, uint32_t mask, uint32_t bits) {
    // both values before the first write: q or p may be c itself
    uint32_t p = combine(w, i, bits), q = combine(w, i, ~bits);
    put_predicate(w, i->d, p, mask);
    if (i->e != ROW_NONE) put_predicate(w, i->e, q, mask);
    return FLOW_NEXT;
}

#define COMPARE(name, T, expression)                                                               \
    static inline uint32_t compare_##name(const Warp *w, const Insn *i) {                          \
        const T *x = row(w, i->a), *y = row(w, i->b);                                              \
        uint32_t bits = 0;                                                                         \
        for (int l = 0; l < WARP_SIZE; l++) {                                                      \
            T a = x[l], b = y[l];                                                                  \
            (void)a, (void)b;                                                                      \
            bits |= (uint32_t)(expression) << l;                                                   \
        }                                                                                          \
        return bits;                                                                               \
    }                                                                                              \
    static Flow setp_##name(Warp *w, const Insn *i, uint32_t mask) {                               \
        return set_predicates(w, i, mask, compare_##name(w, i));                                   \
    }
#define COMPARE_EQUAL(suffix, T)                                                                   \
    COMPARE(eq_##suffix, T, a == b)                                                                \
    COMPARE(ne_##suffix, T, a != b)
#define COMPARE_ORDER(suffix, T)                                                                   \
    COMPARE(lt_##suffix, T, a < b)                                                                 \
    COMPARE(le_##suffix, T, a <= b)                                                                \
    COMPARE(gt_##suffix, T, a > b)                                                                 \
    COMPARE(ge_##suffix, T, a >= b)
// The …u operators are true where an operand is NaN, the plain ones false.
#define COMPARE_FLOAT(suffix, T, f)                                                                \
    COMPARE(eq_##suffix, T, f(a) == f(b))                                                          \
    COMPARE(ne_##suffix, T, (f(a) < f(b)) | (f(a) > f(b)))                                         \
    COMPARE(lt_##suffix, T, f(a) < f(b))                                                           \
    COMPARE(le_##suffix, T, f(a) <= f(b))                                                          \
    COMPARE(gt_##suffix, T, f(a) > f(b))                                                           \
    COMPARE(ge_##suffix, T, f(a) >= f(b))                                                          \
    COMPARE(equ_##suffix, T, !((f(a) < f(b)) | (f(a) > f(b))))                                     \
    COMPARE(neu_##suffix, T, f(a) != f(b))                                                         \
    COMPARE(ltu_##suffix, T, !(f(a) >= f(b)))                                                      \
    COMPARE(leu_##suffix, T, !(f(a) > f(b)))                                                       \
    COMPARE(gtu_##suffix, T, !(f(a) <= f(b)))                                                      \
    COMPARE(geu_##suffix, T, !(f(a) < f(b)))                                                       \
    COMPARE(num_##suffix, T, (a == a) & (b == b))                                                  \
    COMPARE(nan_##suffix, T, (a != a) | (b != b))
#define AS_IT_IS(x) (x)
COMPARE_EQUAL(b16, Lane16)
COMPARE_EQUAL(b32, Lane32)
COMPARE_EQUAL(b64, Lane64)
COMPARE_ORDER(u16, Lane16)
COMPARE_ORDER(s16, LaneS16)
COMPARE_ORDER(u32, Lane32)
COMPARE_ORDER(s32, LaneS32)
COMPARE_ORDER(u64, Lane64)
COMPARE_ORDER(s64, LaneS64)
COMPARE_FLOAT(f32, LaneF32, AS_IT_IS)
COMPARE_FLOAT(ftz_f32, LaneF32, flush)
COMPARE_FLOAT(f64, LaneF64, AS_IT_IS)

// ---- the table of comparisons

typedef enum {
    EQ = 1,
    NE,
    LT,
    LE,
    GT,
    GE,
    LO,
    LS,
    HI,
    HS,
    EQU,
    NEU,
    LTU,
    LEU,
    GTU,
    GEU,
    NUM,
    NAN_
} Operator;
#define OPERATORS "eq|ne|lt|le|gt|ge|lo|ls|hi|hs|equ|neu|ltu|leu|gtu|geu|num|nan"

// Types by their place in the group of modifiers.
typedef enum {
    B16 = 1,
    B32,
    B64,
    U16,
    U32,
    U64,
    S16,
    S32,
    S64,
    F32,
    F64,
    F16,
    BF16,
    F16X2,
    BF16X2,
    FTZ_F32
} CompareType;
#define TYPES "b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64|f16|bf16|f16x2|bf16x2"
static const uint8_t type_bits[] = {0, 16, 32, 64, 16, 32, 64, 16, 32, 64, 32, 64, 16, 16, 32, 32};

typedef struct {
    Handler *setp;
    Compare *compare;
} Comparison;
#define C(name)                                                                                    \
    { setp_##name, compare_##name }
#define EQUALITY(b) [EQ] = C(eq_##b), [NE] = C(ne_##b)
#define ORDERING(t) [LT] = C(lt_##t), [LE] = C(le_##t), [GT] = C(gt_##t), [GE] = C(ge_##t)
// lo, ls, hi, hs are lt, le, gt, ge for unsigned types only.
#define UNSIGNED(t) [LO] = C(lt_##t), [LS] = C(le_##t), [HI] = C(gt_##t), [HS] = C(ge_##t)
#define UNORDERED(t)                                                                               \
    [EQU] = C(equ_##t), [NEU] = C(neu_##t), [LTU] = C(ltu_##t), [LEU] = C(leu_##t),                \
    [GTU] = C(gtu_##t), [GEU] = C(geu_##t), [NUM] = C(num_##t), [NAN_] = C(nan_##t)
static const Comparison comparisons[][NAN_ + 1] = {
    [B16] = {EQUALITY(b16)},
    [B32] = {EQUALITY(b32)},
    [B64] = {EQUALITY(b64)},
    [U16] = {EQUALITY(b16), ORDERING(u16), UNSIGNED(u16)},
    [U32] = {EQUALITY(b32), ORDERING(u32), UNSIGNED(u32)},
    [U64] = {EQUALITY(b64), ORDERING(u64), UNSIGNED(u64)},
    [S16] = {EQUALITY(b16), ORDERING(s16)},
    [S32] = {EQUALITY(b32), ORDERING(s32)},
    [S64] = {EQUALITY(b64), ORDERING(s64)},
    [F32] = {EQUALITY(f32), ORDERING(f32), UNORDERED(f32)},
    [F64] = {EQUALITY(f64), ORDERING(f64), UNORDERED(f64)},
    [FTZ_F32] = {EQUALITY(ftz_f32), ORDERING(ftz_f32), UNORDERED(ftz_f32)},
};

// ---- f16 and bf16: widened, one value at a time

static bool compare_floats(float a, float b, Operator op) {
    bool unordered = a != a || b != b;
    switch (op) {
    case EQ: return a == b;
    case NE: return a < b || a > b;
    case LT: return a < b;
    case LE: return a <= b;
    case GT: return a > b;
    case GE: return a >= b;
    case EQU: return unordered || a == b;
    case NEU: return a != b;
    case LTU: return !(a >= b);
    case LEU: return !(a > b);
    case GTU: return !(a <= b);
    case GEU: return !(a < b);
    case NUM: return !unordered;
    case NAN_: return unordered;
    default: return false;
    }
}
typedef struct {
    Operator op;
    bool bf16, pair, ftz;
} HalfCompare;

static float widen_half(uint16_t h, const HalfCompare *how) {
    uint16_t exponent = how->bf16 ? 0x7f80 : 0x7c00;
    if (how->ftz && !(h & exponent)) h &= 0x8000;
    return how->bf16 ? bf16_to_float(h) : half_to_float(h);
}
// The mask of the lower (or only) halves, and that of the upper ones.
static void compare_halves(const Warp *w, const Insn *i, const HalfCompare *how, uint32_t out[2]) {
    const Lane16 *a = row(w, i->a), *b = row(w, i->b);
    int per_lane = how->pair ? 2 : 1;
    out[0] = out[1] = 0;
    for (int k = 0; k < per_lane * WARP_SIZE; k++)
        if (compare_floats(widen_half(a[k], how), widen_half(b[k], how), how->op))
            out[k % per_lane] |= 1u << k / per_lane;
}
static Flow setp_half(Warp *w, const Insn *i, uint32_t mask) {
    const HalfCompare *how = i->extra;
    uint32_t bits[2];
    compare_halves(w, i, how, bits);
    if (!how->pair) return set_predicates(w, i, mask, bits[0]);
    uint32_t p = combine(w, i, bits[0]), q = combine(w, i, bits[1]);
    put_predicate(w, i->d, p, mask);
    put_predicate(w, i->e, q, mask);
    return FLOW_NEXT;
}

// ---- lowering of setp and set

// Sources a, b (of the compared type) and the optional predicate c, operands 1 to 3.
static const char *lower_sources(Lowering *l, const Match *m, Insn *i, CompareType type) {
    const PtxInstruction *p = m->ptx;
    int wanted = m->choice[1] ? 4 : 3;
    if (p->operand_count != wanted)
        return m->choice[1] ? "a comparison with .and, .or or .xor takes a predicate c"
                            : "a comparison without .and, .or or .xor takes two sources";
    const char *why = NULL;
    i->a = source_row(l, &p->operands[1], type_bits[type], &why);
    i->b = source_row(l, &p->operands[2], type_bits[type], &why);
    if (m->choice[1]) i->c = source_row(l, &p->operands[3], 1, &why);
    return why;
}
static const HalfCompare *half_compare(Lowering *l, const Match *m, CompareType type) {
    HalfCompare *how = kernel_alloc(l, sizeof *how);
    *how = (HalfCompare){(Operator)m->choice[0], type == BF16 || type == BF16X2,
                         type == F16X2 || type == BF16X2, m->choice[2]};
    return how;
}
static bool operator_fits_half(Operator op) {
    return op < LO || op > HS;
}

// setp.op{.bool}{.ftz}.type p|q, a, b{, c}
static const char *lower_setp(Lowering *l, const Match *m, Insn *i) {
    CompareType type = (CompareType)m->choice[3];
    bool half = type >= F16;
    if (m->choice[2] && type != F32 && !half) return ".ftz is for f32, f16 and bf16";
    const PtxOperand *destination = &m->ptx->operands[0];
    if ((type == F16X2 || type == BF16X2) && destination->pair == -1)
        return "a comparison of pairs writes two predicates p|q";
    const char *why = lower_sources(l, m, i, type);
    if (why) return why;
    i->d = destination_row(l, destination, 1, &why);
    i->e = pair_row(l, destination, &why);
    if (half) {
        if (!operator_fits_half((Operator)m->choice[0])) return "this comparison is for integers";
        i->extra = half_compare(l, m, type);
        i->run = setp_half;
        return why;
    }
    i->run = comparisons[m->choice[2] ? FTZ_F32 : type][m->choice[0]].setp;
    return i->run ? why : "this comparison does not exist for the type";
}

// What `set` writes for true: all ones, or 1.0 in the destination's format.
typedef struct {
    Compare *compare; // or, for 16-bit formats:
    const HalfCompare *half;
    uint32_t one;
    uint8_t bits; // of the destination
    bool pair;    // the destination holds two halves
} Set;

static Flow set(Warp *w, const Insn *i, uint32_t mask) {
    const Set *s = i->extra;
    uint32_t bits[2];
    if (s->half)
        compare_halves(w, i, s->half, bits);
    else
        bits[0] = bits[1] = s->compare(w, i);
    bits[0] = combine(w, i, bits[0]);
    bits[1] = combine(w, i, bits[1]);
    uint16_t r16[WARP_SIZE];
    uint32_t r32[WARP_SIZE];
    for (int l = 0; l < WARP_SIZE; l++) {
        uint32_t lower = bits[0] >> l & 1 ? s->one : 0, upper = bits[1] >> l & 1 ? s->one : 0;
        r32[l] = s->pair ? lower | upper << 16 : lower;
        r16[l] = (uint16_t)lower;
    }
    if (s->bits == 16)
        put16(w, i->d, r16, mask);
    else
        put32(w, i->d, r32, mask);
    return FLOW_NEXT;
}

typedef enum {
    TO_U32 = 1,
    TO_S32,
    TO_F32,
    TO_U16,
    TO_S16,
    TO_F16,
    TO_BF16,
    TO_F16X2,
    TO_BF16X2
} SetType;
static const char *lower_set(Lowering *l, const Match *m, Insn *i) {
    SetType to = (SetType)m->choice[3];
    CompareType type = (CompareType)m->choice[4];
    Set *s = kernel_alloc(l, sizeof *s);
    memset(s, 0, sizeof *s);
    s->pair = to == TO_F16X2 || to == TO_BF16X2;
    s->bits = to == TO_U16 || to == TO_S16 || to == TO_F16 || to == TO_BF16 ? 16 : 32;
    s->one = to == TO_F32                       ? 0x3f800000u
             : to == TO_F16 || to == TO_F16X2   ? 0x3c00
             : to == TO_BF16 || to == TO_BF16X2 ? 0x3f80
             : s->bits == 16                    ? 0xffff
                                                : ~0u;
    bool pair_source = type == F16X2 || type == BF16X2;
    if (s->pair != pair_source) {
        if (s->pair) return "a destination pair needs source pairs";
        // set.{u32,s32}.f16x2: a mask of 16 ones for each half
        if (to != TO_U32 && to != TO_S32) return "a source pair needs a destination of 32 bits";
        s->pair = true;
        s->one = 0xffff;
    }
    if (m->choice[2] && type != F32 && type < F16) return ".ftz is for f32, f16 and bf16";
    const char *why = lower_sources(l, m, i, type);
    if (why) return why;
    i->d = destination_row(l, &m->ptx->operands[0], s->bits, &why);
    if (type >= F16) {
        if (!operator_fits_half((Operator)m->choice[0])) return "this comparison is for integers";
        s->half = half_compare(l, m, type);
    } else {
        s->compare = comparisons[m->choice[2] ? FTZ_F32 : type][m->choice[0]].compare;
        if (!s->compare) return "this comparison does not exist for the type";
    }
    i->extra = s;
    i->run = set;
    return why;
}

// ---- selp and slct

#define SELECT(suffix, T)                                                                          \
    static Flow selp_##suffix(Warp *w, const Insn *i, uint32_t mask) {                             \
        T *d = row(w, i->d);                                                                       \
        const T *a = row(w, i->a), *b = row(w, i->b);                                              \
        uint32_t c = predicate(w, i->c);                                                           \
        EACH_LANE(T, d, mask, c >> l & 1 ? a[l] : b[l]);                                           \
        return FLOW_NEXT;                                                                          \
    }                                                                                              \
    TERNARY(slct_s32_##suffix, T, T, T, LaneS32, c >= 0 ? a : b)                                   \
    TERNARY(slct_f32_##suffix, T, T, T, LaneF32, c >= 0.0f ? a : b)                                \
    TERNARY(slct_ftz_##suffix, T, T, T, LaneF32, flush(c) >= 0.0f ? a : b)
SELECT(16, Lane16)
SELECT(32, Lane32)
SELECT(64, Lane64)

#define S16_TYPES "b16|u16|s16|f16|bf16"
#define S32_TYPES "b32|u32|s32|f32"
#define S64_TYPES "b64|u64|s64|f64"

const Form compare_forms[] = {
    {"setp", OPERATORS " and|or|xor? ftz? " TYPES, NULL, NULL, PIPE_ALU, 0, 0, lower_setp},
    {"set", OPERATORS " and|or|xor? ftz? u32|s32|f32|u16|s16|f16|bf16|f16x2|bf16x2 " TYPES, NULL,
     NULL, PIPE_ALU, 0, 0, lower_set},
    {"selp", S32_TYPES, "d32 a32 b32 cp", selp_32, PIPE_ALU},
    {"selp", S64_TYPES, "d64 a64 b64 cp", selp_64, PIPE_ALU},
    {"selp", S16_TYPES, "d16 a16 b16 cp", selp_16, PIPE_ALU},
    {"slct", S16_TYPES " s32", "d16 a16 b16 c32", slct_s32_16, PIPE_ALU},
    {"slct", S32_TYPES " s32", "d32 a32 b32 c32", slct_s32_32, PIPE_ALU},
    {"slct", S64_TYPES " s32", "d64 a64 b64 c32", slct_s32_64, PIPE_ALU},
    {"slct", S16_TYPES " f32", "d16 a16 b16 c32", slct_f32_16, PIPE_ALU},
    {"slct", S32_TYPES " f32", "d32 a32 b32 c32", slct_f32_32, PIPE_ALU},
    {"slct", S64_TYPES " f32", "d64 a64 b64 c32", slct_f32_64, PIPE_ALU},
    {"slct", "ftz " S16_TYPES " f32", "d16 a16 b16 c32", slct_ftz_16, PIPE_ALU},
    {"slct", "ftz " S32_TYPES " f32", "d32 a32 b32 c32", slct_ftz_32, PIPE_ALU},
    {"slct", "ftz " S64_TYPES " f32", "d64 a64 b64 c32", slct_ftz_64, PIPE_ALU},
    {0},
};
