// cvt between the plain types (PTX ISA 9.7.9.21): integers of 8 to 64 bits, f16, bf16, f32, f64.
// The packed and the small formats are in pack.c.
//
// Pairs that programs use much have a handler each (`quick`); all others go through convert_lane,
// which knows every pair. Both obey the same rules: float to integer saturates and NaN becomes 0
// (2^63 for 64 bits); .sat clamps floats to [0, 1]; a result narrower than its register is extended
// by its sign or by zeros.
#include "softgpu/execute/execute.h"
#include "softgpu/execute/rounding.h"

typedef enum { U8 = 1, U16, U32, U64, S8, S16, S32, S64, F16, BF16, F32, F64 } Scalar;
#define SCALARS "u8|u16|u32|u64|s8|s16|s32|s64|f16|bf16|f32|f64"
static const uint8_t scalar_bits[] = {0, 8, 16, 32, 64, 8, 16, 32, 64, 16, 16, 32, 64};
static inline bool is_float(Scalar t) {
    return t >= F16;
}
static inline bool is_signed(Scalar t) {
    return t >= S8 && t <= S64;
}

// choice[0]: to integers first, then the directions of floats.
typedef enum { EXACT, RNI, RZI, RMI, RPI, RN, RZ, RM, RP } Mode;
#define MODES "rni|rzi|rmi|rpi|rn|rz|rm|rp"

typedef struct {
    Scalar from, to;
    uint8_t from_bits, to_bits; // widths of the registers
    Mode mode;
    bool ftz, sat;
} Conversion;

// ---- one value, any pair

typedef __int128 Wide;

static double round_to_integer(double x, Mode mode) {
    switch (mode) {
    case RNI: return rint(x);
    case RMI: return floor(x);
    case RPI: return ceil(x);
    case RZI: return trunc(x);
    default: return x;
    }
}

static Rounding mode_rounding(Mode mode) {
    return mode == RZ   ? ROUND_ZERO
           : mode == RM ? ROUND_DOWN
           : mode == RP ? ROUND_UP
                        : ROUND_NEAREST;
}

// The smallest and largest values of an integer type.
static Wide least(Scalar t) {
    return is_signed(t) ? -((Wide)1 << (scalar_bits[t] - 1)) : 0;
}
static Wide most(Scalar t) {
    return ((Wide)1 << (scalar_bits[t] - is_signed(t))) - 1;
}

static Wide clamp(Wide v, Scalar t) {
    return v < least(t) ? least(t) : v > most(t) ? most(t) : v;
}

static Wide integer_source(uint64_t raw, Scalar t) {
    unsigned spare = 64u - scalar_bits[t];
    raw <<= spare;
    return is_signed(t) ? (Wide)((int64_t)raw >> spare) : (Wide)(raw >> spare);
}

static double float_source(uint64_t raw, const Conversion *c) {
    switch (c->from) {
    case F16: return half_to_float((uint16_t)raw);
    case BF16: return bf16_to_float((uint16_t)raw);
    case F32: {
        float x = bits_float((uint32_t)raw);
        return c->ftz ? flush(x) : x;
    }
    default: return bits_double(raw);
    }
}

static Wide float_to_integer(double x, Scalar t, Mode mode) {
    if (x != x) return scalar_bits[t] == 64 ? (Wide)1 << 63 : 0;
    x = round_to_integer(x, mode == EXACT ? RZI : mode);
    // most(t) + 1 and least(t) are powers of two: exact as doubles
    if (x >= (double)(most(t) + 1)) return most(t);
    if (x <= (double)least(t)) return least(t);
    return (Wide)x;
}

// An integer as a double whose last bit is set if bits were lost: rounding it again to a format of
// fewer than 52 bits gives what rounding the integer would.
static double integer_to_odd(Wide v) {
    bool negative = v < 0;
    uint64_t magnitude = (uint64_t)(negative ? -v : v);
    if (magnitude >> 53) magnitude = (magnitude & ~0xfffull) | ((magnitude & 0xfff) != 0) << 11;
    double x = (double)magnitude;
    return negative ? -x : x;
}

// Not inlined: the conversion has to stay between the switches of the rounding mode.
static __attribute__((noinline)) void to_double(double *to, const Wide *v) {
    *to = *v < 0 ? (double)(int64_t)*v : (double)(uint64_t)*v;
}
static double integer_to_double(Wide v, Mode mode) {
    double x;
    RoundingState old = rounding_begin(mode_rounding(mode));
    to_double(&x, &v);
    rounding_end(old);
    return x;
}

static uint64_t float_result(double x, const Conversion *c) {
    if (c->sat) x = x > 0 ? (x < 1 ? x : 1.0) : 0.0;
    Rounding rounding = mode_rounding(c->mode);
    switch (c->to) {
    case F16: return round_to_format(x, &FORMAT_F16, rounding, false);
    case BF16: return round_to_format(x, &FORMAT_BF16, rounding, false);
    case F32: {
        uint32_t bits = round_to_format(x, &FORMAT_F32, rounding, false);
        return c->ftz && !(bits & 0x7f800000u) ? bits & 0x80000000u : bits;
    }
    default: return double_bits(x);
    }
}

static uint64_t convert_lane(uint64_t raw, const Conversion *c) {
    if (is_float(c->from)) {
        double x = float_source(raw, c);
        if (!is_float(c->to)) return (uint64_t)float_to_integer(x, c->to, c->mode);
        return float_result(round_to_integer(x, c->mode), c);
    }
    Wide v = integer_source(raw, c->from);
    if (!is_float(c->to)) return (uint64_t)(c->sat ? clamp(v, c->to) : v);
    return float_result(c->to == F64 ? integer_to_double(v, c->mode) : integer_to_odd(v), c);
}

// Extends a result to its register.
static uint64_t extend(uint64_t value, const Conversion *c) {
    if (is_float(c->to)) return value;
    return (uint64_t)integer_source(value, c->to);
}

static Flow convert(Warp *w, const Insn *i, uint32_t mask) {
    const Conversion *c = i->extra;
    const void *from = row(w, i->a);
    void *to = row(w, i->d);
    for (int l = 0; l < WARP_SIZE; l++) {
        if (!(mask >> l & 1)) continue;
        uint64_t raw = c->from_bits == 64   ? ((const Lane64 *)from)[l]
                       : c->from_bits == 32 ? ((const Lane32 *)from)[l]
                                            : ((const Lane16 *)from)[l];
        uint64_t value = extend(convert_lane(raw, c), c);
        if (c->to_bits == 64)
            ((Lane64 *)to)[l] = value;
        else if (c->to_bits == 32)
            ((Lane32 *)to)[l] = (uint32_t)value;
        else
            ((Lane16 *)to)[l] = (uint16_t)value;
    }
    return FLOW_NEXT;
}

// ---- quick pairs

UNARY(copy_16, Lane16, Lane16, a)
UNARY(copy_32, Lane32, Lane32, a)
UNARY(copy_64, Lane64, Lane64, a)
UNARY(cut_32_16, Lane16, Lane32, a)
UNARY(cut_64_16, Lane16, Lane64, a)
UNARY(cut_64_32, Lane32, Lane64, a)
UNARY(zeros_16_32, Lane32, Lane16, a)
UNARY(zeros_16_64, Lane64, Lane16, a)
UNARY(zeros_32_64, Lane64, Lane32, a)
UNARY(signs_16_32, LaneS32, LaneS16, a)
UNARY(signs_16_64, LaneS64, LaneS16, a)
UNARY(signs_32_64, LaneS64, LaneS32, a)
UNARY(signs_8_16, LaneS16, Lane16, (int8_t)a)
UNARY(signs_8_32, LaneS32, Lane16, (int8_t)a)
UNARY(zeros_8_16, Lane16, Lane16, (uint8_t)a)
UNARY(zeros_8_32, Lane32, Lane16, (uint8_t)a)

UNARY(f32_s32, LaneF32, LaneS32, a)
UNARY(f32_u32, LaneF32, Lane32, a)
UNARY(f32_s64, LaneF32, LaneS64, a)
UNARY(f32_u64, LaneF32, Lane64, a)
UNARY(f64_s64, LaneF64, LaneS64, a)
UNARY(f64_u64, LaneF64, Lane64, a)
UNARY(f64_s32, LaneF64, LaneS32, a)
UNARY(f64_u32, LaneF64, Lane32, a)
UNARY(f64_f32, LaneF64, LaneF32, a)
UNARY(f32_f64, LaneF32, LaneF64, canonical((float)a))
UNARY(f32_bf16, LaneF32, Lane16, bf16_to_float(a))
UNARY(bf16_f32, Lane16, LaneF32, float_to_bf16(a))
UNARY(f32_sat, LaneF32, LaneF32, saturate(a))
UNARY(f32_ftz_sat, LaneF32, LaneF32, saturate(flush(a)))
UNARY(f32_rni, LaneF32, LaneF32, canonical(rintf(a)))
UNARY(f32_rmi, LaneF32, LaneF32, canonical(floorf(a)))
UNARY(f32_rzi, LaneF32, LaneF32, canonical(truncf(a)))

static inline int32_t float_to_s32(float x) {
    float inside = x >= -0x1p31f && x < 0x1p31f ? x : 0.0f;
    int32_t r = (int32_t)inside;
    r = x >= 0x1p31f ? INT32_MAX : r;
    return x < -0x1p31f ? INT32_MIN : r;
}
UNARY(s32_f32_rzi, LaneS32, LaneF32, float_to_s32(a))
UNARY(s32_f32_rni, LaneS32, LaneF32, float_to_s32(rintf(a)))
UNARY(s32_f32_rmi, LaneS32, LaneF32, float_to_s32(floorf(a)))

// Rows of different widths never overlap, so whole ones can be written at once.
static Flow f32_f16(Warp *w, const Insn *i, uint32_t mask) {
    float r[WARP_SIZE];
    if (mask == FULL_MASK) {
        halves_to_floats(row(w, i->d), row(w, i->a), WARP_SIZE);
        return FLOW_NEXT;
    }
    halves_to_floats(r, row(w, i->a), WARP_SIZE);
    put32(w, i->d, r, mask);
    return FLOW_NEXT;
}
static Flow f16_f32(Warp *w, const Insn *i, uint32_t mask) {
    uint16_t r[WARP_SIZE];
    if (mask == FULL_MASK) {
        floats_to_halves(row(w, i->d), row(w, i->a), WARP_SIZE);
        return FLOW_NEXT;
    }
    floats_to_halves(r, row(w, i->a), WARP_SIZE);
    put16(w, i->d, r, mask);
    return FLOW_NEXT;
}

static Handler *quick_integer(const Conversion *c) {
    if (c->sat) return NULL;
    int from = scalar_bits[c->from], to = scalar_bits[c->to];
    bool sign = is_signed(c->from);
    if (from == 8) {
        if (c->from_bits != 16 || to == 8) return NULL;
        if (c->to_bits == 16 && to == 16) return sign ? signs_8_16 : zeros_8_16;
        if (c->to_bits == 32 && to == 32) return sign ? signs_8_32 : zeros_8_32;
        return NULL;
    }
    if (from != c->from_bits || to != c->to_bits) return NULL;
    if (from == to) return to == 16 ? copy_16 : to == 32 ? copy_32 : copy_64;
    if (from > to) return to == 32 ? cut_64_32 : from == 32 ? cut_32_16 : cut_64_16;
    if (from == 32) return sign ? signs_32_64 : zeros_32_64;
    if (to == 32) return sign ? signs_16_32 : zeros_16_32;
    return sign ? signs_16_64 : zeros_16_64;
}

// The handler that does the same as convert_lane, faster; NULL if there is none.
static Handler *quick(const Conversion *c) {
    if (!is_float(c->from) && !is_float(c->to)) return quick_integer(c);
    if (scalar_bits[c->from] != c->from_bits || scalar_bits[c->to] != c->to_bits) return NULL;
    static const struct {
        Scalar to, from;
        Mode mode;
        bool ftz, sat;
        Handler *run;
    } pairs[] = {
        {F32, F16, EXACT, false, false, f32_f16},   {F16, F32, RN, false, false, f16_f32},
        {F32, BF16, EXACT, false, false, f32_bf16}, {BF16, F32, RN, false, false, bf16_f32},
        {F32, S32, RN, false, false, f32_s32},      {F32, U32, RN, false, false, f32_u32},
        {F32, S64, RN, false, false, f32_s64},      {F32, U64, RN, false, false, f32_u64},
        {F64, S64, RN, false, false, f64_s64},      {F64, U64, RN, false, false, f64_u64},
        {F64, S32, RN, false, false, f64_s32},      {F64, U32, RN, false, false, f64_u32},
        {F64, S32, EXACT, false, false, f64_s32},   {F64, U32, EXACT, false, false, f64_u32},
        {F64, F32, EXACT, false, false, f64_f32},   {F32, F64, RN, false, false, f32_f64},
        {F32, F32, EXACT, false, true, f32_sat},    {F32, F32, EXACT, true, true, f32_ftz_sat},
        {F32, F32, RNI, false, false, f32_rni},     {F32, F32, RMI, false, false, f32_rmi},
        {F32, F32, RZI, false, false, f32_rzi},     {S32, F32, RZI, false, false, s32_f32_rzi},
        {S32, F32, RNI, false, false, s32_f32_rni}, {S32, F32, RMI, false, false, s32_f32_rmi},
        {S32, F32, RZI, true, false, s32_f32_rzi},
    };
    for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++)
        if (pairs[k].to == c->to && pairs[k].from == c->from && pairs[k].mode == c->mode &&
            pairs[k].ftz == c->ftz && pairs[k].sat == c->sat)
            return pairs[k].run;
    return NULL;
}

static int container(Scalar t) {
    return scalar_bits[t] < 16 ? 16 : scalar_bits[t];
}

// The source's register may be wider than its type, the destination's too.
static const char *lower_cvt(Lowering *l, const Match *m, Insn *i) {
    const PtxInstruction *p = m->ptx;
    if (p->operand_count != 2) return "cvt takes a destination and a source";
    Conversion *c = kernel_alloc(l, sizeof *c);
    *c = (Conversion){.mode = (Mode)m->choice[0],
                      .ftz = m->choice[1],
                      .sat = m->choice[2],
                      .to = (Scalar)m->choice[3],
                      .from = (Scalar)m->choice[4]};
    if (is_float(c->from) != is_float(c->to) && !is_float(c->to) && c->mode > RPI)
        return "a conversion to an integer takes .rni, .rzi, .rmi or .rpi";
    int from = operand_width(l, &p->operands[1]), to = operand_width(l, &p->operands[0]);
    c->from_bits = (uint8_t)(from ? from : container(c->from));
    c->to_bits = (uint8_t)(to ? to : container(c->to));
    if (c->from_bits < scalar_bits[c->from] || c->from_bits > 64)
        return "the source register is narrower than the type";
    if (c->to_bits < scalar_bits[c->to] || c->to_bits > 64)
        return "the destination register is narrower than the type";
    const char *why = NULL;
    i->a = source_row(l, &p->operands[1], c->from_bits, &why);
    i->d = destination_row(l, &p->operands[0], c->to_bits, &why);
    i->extra = c;
    i->run = quick(c);
    if (!i->run) i->run = convert;
    return why;
}

const Form convert_forms[] = {
    {"cvt", MODES "? ftz? sat? " SCALARS " " SCALARS, NULL, NULL, PIPE_CONVERT, 0, 0, lower_cvt},
    {0},
};
