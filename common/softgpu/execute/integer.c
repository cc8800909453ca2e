// Integer arithmetic (PTX ISA 9.7.1, 9.7.2): add, sub, mul, mad, sad, div, rem, abs, neg, min, max.
// Bit operations are in bits.c.
//
// Where PTX leaves a result open, we do what the machine code does that ptxas makes of it: division
// and remainder by zero give all ones, INT_MIN / -1 gives INT_MIN.
#include "softgpu/execute/execute.h"

typedef __int128 Wide;
typedef unsigned __int128 UWide;

// ---- add and sub: signedness doesn't matter unless the result saturates

BINARY(add_16, Lane16, Lane16, Lane16, a + b)
BINARY(add_32, Lane32, Lane32, Lane32, a + b)
BINARY(add_64, Lane64, Lane64, Lane64, a + b)
BINARY(sub_16, Lane16, Lane16, Lane16, a - b)
BINARY(sub_32, Lane32, Lane32, Lane32, a - b)
BINARY(sub_64, Lane64, Lane64, Lane64, a - b)

static inline int32_t clamp_s32(int64_t x) {
    return (int32_t)(x < INT32_MIN ? INT32_MIN : x > INT32_MAX ? INT32_MAX : x);
}
BINARY(add_sat_s32, LaneS32, LaneS32, LaneS32, clamp_s32((int64_t)a + b))
BINARY(sub_sat_s32, LaneS32, LaneS32, LaneS32, clamp_s32((int64_t)a - b))

// Two 16-bit halves in one row of 32 bits.
#define HALVES(lower, upper) ((uint32_t)(uint16_t)(lower) | (uint32_t)(uint16_t)(upper) << 16)
BINARY(add_16x2, Lane32, Lane32, Lane32, HALVES(a + b, (a >> 16) + (b >> 16)))
BINARY(sub_16x2, Lane32, Lane32, Lane32, HALVES(a - b, (a >> 16) - (b >> 16)))

// ---- the carry chain: a bit per lane in Warp.carry
//
// As on the chip, a subtraction is a + ~b + carry: its carry is 1 if nothing was borrowed. One sees
// that where add and sub share the bit: nvcc's division of 128 bits reads a sub.cc's by addc.

typedef enum { CARRY_IN = 1, CARRY_OUT = 2, SUBTRACT = 4 } CarryUse;

// a ± b with carry in and out, for 32 and 64 bits.
static Flow carry_add(Warp *w, const Insn *i, uint32_t mask, int bits, CarryUse use) {
    uint32_t carry_out = 0;
    for (int l = 0; l < WARP_SIZE; l++) {
        if (!(mask >> l & 1)) continue;
        uint64_t a, b;
        if (bits == 64) {
            a = ((const Lane64 *)row(w, i->a))[l];
            b = ((const Lane64 *)row(w, i->b))[l];
        } else {
            a = ((const Lane32 *)row(w, i->a))[l];
            b = ((const Lane32 *)row(w, i->b))[l];
        }
        bool subtract = use & SUBTRACT;
        unsigned carry = use & CARRY_IN ? w->carry >> l & 1 : subtract;
        if (subtract) b = bits == 64 ? ~b : (uint32_t)~b;
        UWide sum = (UWide)a + b + carry;
        carry_out |= (uint32_t)(sum >> bits & 1) << l;
        if (bits == 64)
            ((Lane64 *)row(w, i->d))[l] = (uint64_t)sum;
        else
            ((Lane32 *)row(w, i->d))[l] = (uint32_t)sum;
    }
    if (use & CARRY_OUT) w->carry = (w->carry & ~mask) | carry_out;
    return FLOW_NEXT;
}
#define CARRY_ADD(name, bits, use)                                                                 \
    static Flow name(Warp *w, const Insn *i, uint32_t mask) {                                      \
        return carry_add(w, i, mask, bits, (CarryUse)(use));                                       \
    }
CARRY_ADD(add_cc_32, 32, CARRY_OUT)
CARRY_ADD(add_cc_64, 64, CARRY_OUT)
CARRY_ADD(addc_32, 32, CARRY_IN)
CARRY_ADD(addc_64, 64, CARRY_IN)
CARRY_ADD(addc_cc_32, 32, CARRY_IN | CARRY_OUT)
CARRY_ADD(addc_cc_64, 64, CARRY_IN | CARRY_OUT)
CARRY_ADD(sub_cc_32, 32, SUBTRACT | CARRY_OUT)
CARRY_ADD(sub_cc_64, 64, SUBTRACT | CARRY_OUT)
CARRY_ADD(subc_32, 32, SUBTRACT | CARRY_IN)
CARRY_ADD(subc_64, 64, SUBTRACT | CARRY_IN)
CARRY_ADD(subc_cc_32, 32, SUBTRACT | CARRY_IN | CARRY_OUT)
CARRY_ADD(subc_cc_64, 64, SUBTRACT | CARRY_IN | CARRY_OUT)

// mad{c}{.cc}: choice[0] is 1 for .hi, 2 for .lo; choice[1] the .cc; choice[2] 1 for unsigned.
static Flow carry_mad(Warp *w, const Insn *i, uint32_t mask, int bits, bool carry_in) {
    bool wide = bits == 64, is_signed = i->choice[2] == 2, high = i->choice[0] == 1;
    uint32_t carry_out = 0;
    for (int l = 0; l < WARP_SIZE; l++) {
        if (!(mask >> l & 1)) continue;
        uint64_t c;
        UWide product;
        if (wide) {
            uint64_t a = ((const Lane64 *)row(w, i->a))[l], b = ((const Lane64 *)row(w, i->b))[l];
            c = ((const Lane64 *)row(w, i->c))[l];
            product = is_signed ? (UWide)((Wide)(int64_t)a * (int64_t)b) : (UWide)a * b;
        } else {
            uint32_t a = ((const Lane32 *)row(w, i->a))[l], b = ((const Lane32 *)row(w, i->b))[l];
            c = ((const Lane32 *)row(w, i->c))[l];
            product = is_signed ? (UWide)((int64_t)(int32_t)a * (int32_t)b) : (UWide)a * b;
        }
        uint64_t part = (uint64_t)(high ? product >> bits : product);
        if (!wide) part = (uint32_t)part;
        UWide sum = (UWide)part + c + (carry_in ? w->carry >> l & 1 : 0);
        carry_out |= (uint32_t)(sum >> bits & 1) << l;
        if (wide)
            ((Lane64 *)row(w, i->d))[l] = (uint64_t)sum;
        else
            ((Lane32 *)row(w, i->d))[l] = (uint32_t)sum;
    }
    if (i->choice[1]) w->carry = (w->carry & ~mask) | carry_out;
    return FLOW_NEXT;
}
#define CARRY_MAD(name, bits, carry_in)                                                            \
    static Flow name(Warp *w, const Insn *i, uint32_t mask) {                                      \
        return carry_mad(w, i, mask, bits, carry_in);                                              \
    }
CARRY_MAD(mad_cc_32, 32, false)
CARRY_MAD(mad_cc_64, 64, false)
CARRY_MAD(madc_32, 32, true)
CARRY_MAD(madc_64, 64, true)

// ---- mul and mad

// 16-bit operands are promoted to int, whose product of two 65535 would overflow: say unsigned.
BINARY(mul_lo_16, Lane16, Lane16, Lane16, (uint32_t)a *b)
BINARY(mul_lo_32, Lane32, Lane32, Lane32, a *b)
BINARY(mul_lo_64, Lane64, Lane64, Lane64, a *b)
BINARY(mul_hi_u16, Lane16, Lane16, Lane16, (uint32_t)a *b >> 16)
BINARY(mul_hi_s16, LaneS16, LaneS16, LaneS16, a *b >> 16)
BINARY(mul_hi_u32, Lane32, Lane32, Lane32, (uint64_t)a *b >> 32)
BINARY(mul_hi_s32, LaneS32, LaneS32, LaneS32, (int64_t)a *b >> 32)
BINARY(mul_hi_u64, Lane64, Lane64, Lane64, (UWide)a *b >> 64)
BINARY(mul_hi_s64, LaneS64, LaneS64, LaneS64, (Wide)a *b >> 64)
BINARY(mul_wide_u16, Lane32, Lane16, Lane16, (uint32_t)a *b)
BINARY(mul_wide_s16, LaneS32, LaneS16, LaneS16, a *b)
BINARY(mul_wide_u32, Lane64, Lane32, Lane32, (uint64_t)a *b)
BINARY(mul_wide_s32, LaneS64, LaneS32, LaneS32, (int64_t)a *b)

TERNARY(mad_lo_16, Lane16, Lane16, Lane16, Lane16, (uint32_t)a *b + c)
TERNARY(mad_lo_32, Lane32, Lane32, Lane32, Lane32, a *b + c)
TERNARY(mad_lo_64, Lane64, Lane64, Lane64, Lane64, a *b + c)
TERNARY(mad_hi_u16, Lane16, Lane16, Lane16, Lane16, ((uint32_t)a * b >> 16) + c)
TERNARY(mad_hi_s16, Lane16, LaneS16, LaneS16, Lane16, (a * b >> 16) + c)
TERNARY(mad_hi_u32, Lane32, Lane32, Lane32, Lane32, (uint32_t)((uint64_t)a *b >> 32) + c)
TERNARY(mad_hi_s32, Lane32, LaneS32, LaneS32, Lane32, (uint32_t)((int64_t)a *b >> 32) + c)
TERNARY(mad_hi_sat_s32, LaneS32, LaneS32, LaneS32, LaneS32, clamp_s32(((int64_t)a * b >> 32) + c))
TERNARY(mad_hi_u64, Lane64, Lane64, Lane64, Lane64, (uint64_t)((UWide)a *b >> 64) + c)
TERNARY(mad_hi_s64, Lane64, LaneS64, LaneS64, Lane64, (uint64_t)((Wide)a *b >> 64) + c)
TERNARY(mad_wide_u16, Lane32, Lane16, Lane16, Lane32, (uint32_t)a *b + c)
TERNARY(mad_wide_s16, Lane32, LaneS16, LaneS16, Lane32, (uint32_t)(a *b) + c)
TERNARY(mad_wide_u32, Lane64, Lane32, Lane32, Lane64, (uint64_t)a *b + c)
TERNARY(mad_wide_s32, Lane64, LaneS32, LaneS32, Lane64, (uint64_t)((int64_t)a *b) + c)

// 24-bit multiplication: .lo is bits 31..0 of the 48-bit product, .hi bits 47..16.
static inline uint64_t product_u24(uint32_t a, uint32_t b) {
    return (uint64_t)(a & 0xffffff) * (b & 0xffffff);
}
static inline int64_t product_s24(uint32_t a, uint32_t b) {
    return (int64_t)((int32_t)(a << 8) >> 8) * ((int32_t)(b << 8) >> 8);
}
BINARY(mul24_lo_u32, Lane32, Lane32, Lane32, product_u24(a, b))
BINARY(mul24_hi_u32, Lane32, Lane32, Lane32, product_u24(a, b) >> 16)
BINARY(mul24_lo_s32, Lane32, Lane32, Lane32, product_s24(a, b))
BINARY(mul24_hi_s32, Lane32, Lane32, Lane32, product_s24(a, b) >> 16)
TERNARY(mad24_lo_u32, Lane32, Lane32, Lane32, Lane32, product_u24(a, b) + c)
TERNARY(mad24_hi_u32, Lane32, Lane32, Lane32, Lane32, (product_u24(a, b) >> 16) + c)
TERNARY(mad24_lo_s32, Lane32, Lane32, Lane32, Lane32, (uint64_t)product_s24(a, b) + c)
TERNARY(mad24_hi_s32, Lane32, Lane32, Lane32, Lane32, (uint64_t)(product_s24(a, b) >> 16) + c)
TERNARY(mad24_hi_sat_s32, LaneS32, Lane32, Lane32, LaneS32,
        clamp_s32((int64_t)(int32_t)(product_s24(a, b) >> 16) + c))

// ---- sum of absolute differences

TERNARY(sad_u16, Lane16, Lane16, Lane16, Lane16, c + (a > b ? a - b : b - a))
TERNARY(sad_s16, Lane16, LaneS16, LaneS16, Lane16, c + (a > b ? a - b : b - a))
TERNARY(sad_u32, Lane32, Lane32, Lane32, Lane32, c + (a > b ? a - b : b - a))
TERNARY(sad_s32, Lane32, LaneS32, LaneS32, Lane32,
        c + (a > b ? (uint32_t)a - (uint32_t)b : (uint32_t)b - (uint32_t)a))
TERNARY(sad_u64, Lane64, Lane64, Lane64, Lane64, c + (a > b ? a - b : b - a))
TERNARY(sad_s64, Lane64, LaneS64, LaneS64, Lane64,
        c + (a > b ? (uint64_t)a - (uint64_t)b : (uint64_t)b - (uint64_t)a))

// ---- div and rem

#define DIVISION(suffix, U, S)                                                                     \
    BINARY(div_u##suffix, U, U, U, b ? a / b : ~(U)0)                                              \
    BINARY(rem_u##suffix, U, U, U, b ? a % b : ~(U)0)                                              \
    BINARY(div_s##suffix, S, S, S, b == 0 ? -1 : b == -1 ? (S)(0 - (U)a) : a / b)                  \
    BINARY(rem_s##suffix, S, S, S, b == 0 ? -1 : b == -1 ? 0 : a % b)
DIVISION(16, Lane16, LaneS16)
DIVISION(32, Lane32, LaneS32)
DIVISION(64, Lane64, LaneS64)

// ---- abs, neg, min, max: |INT_MIN| is INT_MIN

#define SIGNED_UNARY(suffix, U, S)                                                                 \
    UNARY(abs_s##suffix, U, S, a < 0 ? 0 - (U)a : (U)a)                                            \
    UNARY(neg_s##suffix, U, U, 0 - a)
SIGNED_UNARY(16, Lane16, LaneS16)
SIGNED_UNARY(32, Lane32, LaneS32)
SIGNED_UNARY(64, Lane64, LaneS64)

#define MIN_MAX(suffix, T)                                                                         \
    BINARY(min_##suffix, T, T, T, a < b ? a : b)                                                   \
    BINARY(max_##suffix, T, T, T, a > b ? a : b)
MIN_MAX(u16, Lane16)
MIN_MAX(s16, LaneS16)
MIN_MAX(u32, Lane32)
MIN_MAX(s32, LaneS32)
MIN_MAX(u64, Lane64)
MIN_MAX(s64, LaneS64)
static inline int32_t relu_s32(int32_t x) {
    return x < 0 ? 0 : x;
}
BINARY(min_relu_s32, LaneS32, LaneS32, LaneS32, relu_s32(a < b ? a : b))
BINARY(max_relu_s32, LaneS32, LaneS32, LaneS32, relu_s32(a > b ? a : b))

// min and max of 16-bit pairs. choice[0]: .relu (signed only).
static Flow pair_extreme(Warp *w, const Insn *i, uint32_t mask, bool is_signed, bool want_max) {
    const Lane16 *a = row(w, i->a), *b = row(w, i->b);
    uint16_t result[2 * WARP_SIZE];
    for (int h = 0; h < 2 * WARP_SIZE; h++) {
        int x = is_signed ? (int16_t)a[h] : a[h], y = is_signed ? (int16_t)b[h] : b[h];
        int z = want_max ? (x > y ? x : y) : (x < y ? x : y);
        result[h] = (uint16_t)(is_signed && i->choice[0] && z < 0 ? 0 : z);
    }
    put32(w, i->d, result, mask);
    return FLOW_NEXT;
}
#define PAIR_EXTREME(name, is_signed, want_max)                                                    \
    static Flow name(Warp *w, const Insn *i, uint32_t mask) {                                      \
        return pair_extreme(w, i, mask, is_signed, want_max);                                      \
    }
PAIR_EXTREME(min_u16x2, false, false)
PAIR_EXTREME(max_u16x2, false, true)
PAIR_EXTREME(min_s16x2, true, false)
PAIR_EXTREME(max_s16x2, true, true)

// ---- dot products of packed bytes

static inline int64_t byte_of(uint32_t x, int n, bool is_signed) {
    uint8_t b = (uint8_t)(x >> 8 * n);
    return is_signed ? (int8_t)b : b;
}
static inline int64_t half_of(uint32_t x, int n, bool is_signed) {
    uint16_t h = (uint16_t)(x >> 16 * n);
    return is_signed ? (int16_t)h : h;
}
// choice[0], choice[1]: types of a and b, 1 = u32, 2 = s32.
static Flow dp4a(Warp *w, const Insn *i, uint32_t mask) {
    const Lane32 *a = row(w, i->a), *b = row(w, i->b), *c = row(w, i->c);
    uint32_t result[WARP_SIZE];
    for (int l = 0; l < WARP_SIZE; l++) {
        int64_t sum = c[l];
        for (int n = 0; n < 4; n++)
            sum += byte_of(a[l], n, i->choice[0] == 2) * byte_of(b[l], n, i->choice[1] == 2);
        result[l] = (uint32_t)sum;
    }
    put32(w, i->d, result, mask);
    return FLOW_NEXT;
}
// choice[0]: 1 = lo, 2 = hi pair of b's bytes; choice[1], choice[2]: types of a and b.
static Flow dp2a(Warp *w, const Insn *i, uint32_t mask) {
    const Lane32 *a = row(w, i->a), *b = row(w, i->b), *c = row(w, i->c);
    int first = i->choice[0] == 2 ? 2 : 0;
    uint32_t result[WARP_SIZE];
    for (int l = 0; l < WARP_SIZE; l++) {
        int64_t sum = c[l];
        for (int n = 0; n < 2; n++)
            sum +=
                half_of(a[l], n, i->choice[1] == 2) * byte_of(b[l], first + n, i->choice[2] == 2);
        result[l] = (uint32_t)sum;
    }
    put32(w, i->d, result, mask);
    return FLOW_NEXT;
}

#define R2_16 "d16 a16 b16"
#define R2_32 "d32 a32 b32"
#define R2_64 "d64 a64 b64"
#define R3_16 "d16 a16 b16 c16"
#define R3_32 "d32 a32 b32 c32"
#define R3_64 "d64 a64 b64 c64"

const Form integer_forms[] = {
    {"add", "s32|u32", R2_32, add_32, PIPE_ALU},
    {"add", "s64|u64", R2_64, add_64, PIPE_ALU},
    {"add", "s16|u16", R2_16, add_16, PIPE_ALU},
    {"add", "u16x2|s16x2", R2_32, add_16x2, PIPE_ALU},
    {"add", "sat s32", R2_32, add_sat_s32, PIPE_ALU},
    {"add", "cc u32|s32|b32", R2_32, add_cc_32, PIPE_ALU},
    {"add", "cc u64|s64|b64", R2_64, add_cc_64, PIPE_ALU},
    {"addc", "cc u32|s32|b32", R2_32, addc_cc_32, PIPE_ALU},
    {"addc", "cc u64|s64|b64", R2_64, addc_cc_64, PIPE_ALU},
    {"addc", "u32|s32|b32", R2_32, addc_32, PIPE_ALU},
    {"addc", "u64|s64|b64", R2_64, addc_64, PIPE_ALU},
    {"sub", "s32|u32", R2_32, sub_32, PIPE_ALU},
    {"sub", "s64|u64", R2_64, sub_64, PIPE_ALU},
    {"sub", "s16|u16", R2_16, sub_16, PIPE_ALU},
    {"sub", "u16x2|s16x2", R2_32, sub_16x2, PIPE_ALU},
    {"sub", "sat s32", R2_32, sub_sat_s32, PIPE_ALU},
    {"sub", "cc u32|s32|b32", R2_32, sub_cc_32, PIPE_ALU},
    {"sub", "cc u64|s64|b64", R2_64, sub_cc_64, PIPE_ALU},
    {"subc", "cc u32|s32|b32", R2_32, subc_cc_32, PIPE_ALU},
    {"subc", "cc u64|s64|b64", R2_64, subc_cc_64, PIPE_ALU},
    {"subc", "u32|s32|b32", R2_32, subc_32, PIPE_ALU},
    {"subc", "u64|s64|b64", R2_64, subc_64, PIPE_ALU},

    {"mul", "lo s32|u32", R2_32, mul_lo_32, PIPE_IMAD},
    {"mul", "lo s64|u64", R2_64, mul_lo_64, PIPE_IMAD},
    {"mul", "lo s16|u16", R2_16, mul_lo_16, PIPE_IMAD},
    {"mul", "wide u32", "d64 a32 b32", mul_wide_u32, PIPE_IMAD},
    {"mul", "wide s32", "d64 a32 b32", mul_wide_s32, PIPE_IMAD},
    {"mul", "wide u16", "d32 a16 b16", mul_wide_u16, PIPE_IMAD},
    {"mul", "wide s16", "d32 a16 b16", mul_wide_s16, PIPE_IMAD},
    {"mul", "hi u32", R2_32, mul_hi_u32, PIPE_IMAD},
    {"mul", "hi s32", R2_32, mul_hi_s32, PIPE_IMAD},
    {"mul", "hi u64", R2_64, mul_hi_u64, PIPE_IMAD},
    {"mul", "hi s64", R2_64, mul_hi_s64, PIPE_IMAD},
    {"mul", "hi u16", R2_16, mul_hi_u16, PIPE_IMAD},
    {"mul", "hi s16", R2_16, mul_hi_s16, PIPE_IMAD},
    {"mad", "lo s32|u32", R3_32, mad_lo_32, PIPE_IMAD},
    {"mad", "lo s64|u64", R3_64, mad_lo_64, PIPE_IMAD},
    {"mad", "lo s16|u16", R3_16, mad_lo_16, PIPE_IMAD},
    {"mad", "wide u32", "d64 a32 b32 c64", mad_wide_u32, PIPE_IMAD},
    {"mad", "wide s32", "d64 a32 b32 c64", mad_wide_s32, PIPE_IMAD},
    {"mad", "wide u16", "d32 a16 b16 c32", mad_wide_u16, PIPE_IMAD},
    {"mad", "wide s16", "d32 a16 b16 c32", mad_wide_s16, PIPE_IMAD},
    {"mad", "hi u32", R3_32, mad_hi_u32, PIPE_IMAD},
    {"mad", "hi s32", R3_32, mad_hi_s32, PIPE_IMAD},
    {"mad", "hi sat s32", R3_32, mad_hi_sat_s32, PIPE_IMAD},
    {"mad", "hi u64", R3_64, mad_hi_u64, PIPE_IMAD},
    {"mad", "hi s64", R3_64, mad_hi_s64, PIPE_IMAD},
    {"mad", "hi u16", R3_16, mad_hi_u16, PIPE_IMAD},
    {"mad", "hi s16", R3_16, mad_hi_s16, PIPE_IMAD},
    {"mad", "hi|lo cc u32|s32", R3_32, mad_cc_32, PIPE_IMAD},
    {"mad", "hi|lo cc u64|s64", R3_64, mad_cc_64, PIPE_IMAD},
    {"madc", "hi|lo cc? u32|s32", R3_32, madc_32, PIPE_IMAD},
    {"madc", "hi|lo cc? u64|s64", R3_64, madc_64, PIPE_IMAD},
    {"mul24", "lo u32", R2_32, mul24_lo_u32, PIPE_IMAD},
    {"mul24", "hi u32", R2_32, mul24_hi_u32, PIPE_IMAD},
    {"mul24", "lo s32", R2_32, mul24_lo_s32, PIPE_IMAD},
    {"mul24", "hi s32", R2_32, mul24_hi_s32, PIPE_IMAD},
    {"mad24", "lo u32", R3_32, mad24_lo_u32, PIPE_IMAD},
    {"mad24", "hi u32", R3_32, mad24_hi_u32, PIPE_IMAD},
    {"mad24", "lo s32", R3_32, mad24_lo_s32, PIPE_IMAD},
    {"mad24", "hi s32", R3_32, mad24_hi_s32, PIPE_IMAD},
    {"mad24", "hi sat s32", R3_32, mad24_hi_sat_s32, PIPE_IMAD},
    {"sad", "u16", R3_16, sad_u16, PIPE_ALU},
    {"sad", "s16", R3_16, sad_s16, PIPE_ALU},
    {"sad", "u32", R3_32, sad_u32, PIPE_ALU},
    {"sad", "s32", R3_32, sad_s32, PIPE_ALU},
    {"sad", "u64", R3_64, sad_u64, PIPE_ALU},
    {"sad", "s64", R3_64, sad_s64, PIPE_ALU},
    {"dp4a", "u32|s32 u32|s32", R3_32, dp4a, PIPE_IMAD},
    {"dp2a", "lo|hi u32|s32 u32|s32", R3_32, dp2a, PIPE_IMAD},

    {"div", "u16", R2_16, div_u16, PIPE_IMAD},
    {"div", "s16", R2_16, div_s16, PIPE_IMAD},
    {"div", "u32", R2_32, div_u32, PIPE_IMAD},
    {"div", "s32", R2_32, div_s32, PIPE_IMAD},
    {"div", "u64", R2_64, div_u64, PIPE_IMAD},
    {"div", "s64", R2_64, div_s64, PIPE_IMAD},
    {"rem", "u16", R2_16, rem_u16, PIPE_IMAD},
    {"rem", "s16", R2_16, rem_s16, PIPE_IMAD},
    {"rem", "u32", R2_32, rem_u32, PIPE_IMAD},
    {"rem", "s32", R2_32, rem_s32, PIPE_IMAD},
    {"rem", "u64", R2_64, rem_u64, PIPE_IMAD},
    {"rem", "s64", R2_64, rem_s64, PIPE_IMAD},

    {"abs", "s16", "d16 a16", abs_s16, PIPE_ALU},
    {"abs", "s32", "d32 a32", abs_s32, PIPE_ALU},
    {"abs", "s64", "d64 a64", abs_s64, PIPE_ALU},
    {"neg", "s16", "d16 a16", neg_s16, PIPE_ALU},
    {"neg", "s32", "d32 a32", neg_s32, PIPE_ALU},
    {"neg", "s64", "d64 a64", neg_s64, PIPE_ALU},
    {"min", "u16", R2_16, min_u16, PIPE_ALU},
    {"min", "s16", R2_16, min_s16, PIPE_ALU},
    {"min", "u32", R2_32, min_u32, PIPE_ALU},
    {"min", "s32", R2_32, min_s32, PIPE_ALU},
    {"min", "u64", R2_64, min_u64, PIPE_ALU},
    {"min", "s64", R2_64, min_s64, PIPE_ALU},
    {"min", "relu s32", R2_32, min_relu_s32, PIPE_ALU},
    {"min", "u16x2", R2_32, min_u16x2, PIPE_ALU},
    {"min", "relu? s16x2", R2_32, min_s16x2, PIPE_ALU},
    {"max", "u16", R2_16, max_u16, PIPE_ALU},
    {"max", "s16", R2_16, max_s16, PIPE_ALU},
    {"max", "u32", R2_32, max_u32, PIPE_ALU},
    {"max", "s32", R2_32, max_s32, PIPE_ALU},
    {"max", "u64", R2_64, max_u64, PIPE_ALU},
    {"max", "s64", R2_64, max_s64, PIPE_ALU},
    {"max", "relu s32", R2_32, max_relu_s32, PIPE_ALU},
    {"max", "u16x2", R2_32, max_u16x2, PIPE_ALU},
    {"max", "relu? s16x2", R2_32, max_s16x2, PIPE_ALU},
    {0},
};
