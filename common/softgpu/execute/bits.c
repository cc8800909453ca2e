// Bit operations (PTX ISA 9.7.1 and 9.7.8): logic, shifts, bit fields, counts, permutes.
#include "softgpu/execute/execute.h"

// ---- logic

#define LOGIC(suffix, T)                                                                           \
    BINARY(and_##suffix, T, T, T, a &b)                                                            \
    BINARY(or_##suffix, T, T, T, a | b)                                                            \
    BINARY(xor_##suffix, T, T, T, a ^ b)                                                           \
    UNARY(not_##suffix, T, T, ~a)                                                                  \
    UNARY(cnot_##suffix, T, T, a == 0)
LOGIC(16, Lane16)
LOGIC(32, Lane32)
LOGIC(64, Lane64)

// Logic on predicates works on the whole bit mask at once.
#define PREDICATE_LOGIC(name, expression)                                                          \
    static Flow name(Warp *w, const Insn *i, uint32_t mask) {                                      \
        uint32_t a = predicate(w, i->a), b = predicate(w, i->b);                                   \
        put_predicate(w, i->d, expression, mask);                                                  \
        return FLOW_NEXT;                                                                          \
    }
PREDICATE_LOGIC(and_pred, a &b)
PREDICATE_LOGIC(or_pred, a | b)
PREDICATE_LOGIC(xor_pred, a ^ b)
static Flow not_pred(Warp *w, const Insn *i, uint32_t mask) {
    put_predicate(w, i->d, ~predicate(w, i->a), mask);
    return FLOW_NEXT;
}

// Any function of three bits: `imm` bit (a << 2 | b << 1 | c) is its value. A tree of selections
// by c, then b, then a.
static Flow lop3(Warp *w, const Insn *i, uint32_t mask) {
    Lane32 *d = row(w, i->d);
    const Lane32 *a = row(w, i->a), *b = row(w, i->b), *c = row(w, i->c);
    uint32_t zero[4], differs[4]; // the value where c = 0, and whether c = 1 changes it
    for (int n = 0; n < 4; n++) {
        zero[n] = i->imm >> (2 * n) & 1 ? ~0u : 0;
        differs[n] = zero[n] ^ (i->imm >> (2 * n + 1) & 1 ? ~0u : 0);
    }
#define BY_C(n)    (zero[n] ^ (c[l] & differs[n]))
#define BY_B(n)    ((b[l] & BY_C(2 * n + 1)) | (~b[l] & BY_C(2 * n)))
#define BY_A_B_C() ((a[l] & BY_B(1)) | (~a[l] & BY_B(0)))
    EACH_LANE(uint32_t, d, mask, BY_A_B_C());
    return FLOW_NEXT;
}
// lop3.{or,and} d|p, a, b, c, immLut, q: p = (d != 0) op q.
static Flow lop3_predicate(Warp *w, const Insn *i, uint32_t mask) {
    lop3(w, i, mask);
    const Lane32 *d = row(w, i->d);
    uint32_t bits = 0, q = predicate(w, i->rows[0]);
    for (int l = 0; l < WARP_SIZE; l++) bits |= (uint32_t)(d[l] != 0) << l;
    put_predicate(w, i->e, i->choice[0] == 1 ? bits | q : bits & q, mask);
    return FLOW_NEXT;
}
// lop3.BoolOp has six operands, the first a pair whose first half may be the sink.
static const char *lower_lop3_predicate(Lowering *l, const Match *m, Insn *i) {
    const PtxInstruction *p = m->ptx;
    const char *why = NULL;
    if (p->operand_count != 6) return "lop3 with .and or .or takes six operands";
    if (p->operands[4].kind != OPERAND_INTEGER) return "the table of lop3 must be an immediate";
    i->imm = p->operands[4].bits & 0xff;
    i->d = destination_row(l, &p->operands[0], 32, &why);
    i->e = pair_row(l, &p->operands[0], &why);
    if (i->e == ROW_NONE) return "lop3 with .and or .or writes a pair d|p";
    i->a = source_row(l, &p->operands[1], 32, &why);
    i->b = source_row(l, &p->operands[2], 32, &why);
    i->c = source_row(l, &p->operands[3], 32, &why);
    Row *q = kernel_alloc(l, sizeof *q);
    *q = source_row(l, &p->operands[5], 1, &why);
    i->rows = q;
    i->row_count = 1;
    i->run = lop3_predicate;
    return why;
}

// ---- shifts: counts beyond the width shift everything out

#define SHIFTS(suffix, U, S, PROMOTED, bits)                                                       \
    BINARY(shl_##suffix, U, U, Lane32, b < bits ? (U)((PROMOTED)a << (b & (bits - 1))) : 0)        \
    BINARY(shr_u##suffix, U, U, Lane32, b < bits ? (U)(a >> (b & (bits - 1))) : 0)                 \
    BINARY(shr_s##suffix, S, S, Lane32, a >> (b < bits ? b : bits - 1))
SHIFTS(16, Lane16, LaneS16, uint32_t, 16)
SHIFTS(32, Lane32, LaneS32, uint32_t, 32)
SHIFTS(64, Lane64, LaneS64, uint64_t, 64)

// Funnel shifts of {b:a}: .l gives the upper word after a shift left, .r the lower after one right.
static inline uint32_t funnel_left(uint32_t a, uint32_t b, uint32_t n) {
    return (uint32_t)((((uint64_t)b << 32 | a) << n) >> 32);
}
static inline uint32_t funnel_right(uint32_t a, uint32_t b, uint32_t n) {
    return (uint32_t)(((uint64_t)b << 32 | a) >> n);
}
TERNARY(shf_l_wrap, Lane32, Lane32, Lane32, Lane32, funnel_left(a, b, c & 31))
TERNARY(shf_r_wrap, Lane32, Lane32, Lane32, Lane32, funnel_right(a, b, c & 31))
TERNARY(shf_l_clamp, Lane32, Lane32, Lane32, Lane32, c < 32 ? funnel_left(a, b, c & 31) : a)
TERNARY(shf_r_clamp, Lane32, Lane32, Lane32, Lane32, c < 32 ? funnel_right(a, b, c & 31) : b)

// ---- counts and searches

UNARY(popc_32, Lane32, Lane32, __builtin_popcount(a))
UNARY(popc_64, Lane32, Lane64, __builtin_popcountll(a))
UNARY(clz_32, Lane32, Lane32, a ? __builtin_clz(a) : 32)
UNARY(clz_64, Lane32, Lane64, a ? __builtin_clzll(a) : 64)

static inline uint32_t reverse_32(uint32_t x) {
    x = (x & 0x55555555) << 1 | (x >> 1 & 0x55555555);
    x = (x & 0x33333333) << 2 | (x >> 2 & 0x33333333);
    x = (x & 0x0f0f0f0f) << 4 | (x >> 4 & 0x0f0f0f0f);
    return __builtin_bswap32(x);
}
UNARY(brev_32, Lane32, Lane32, reverse_32(a))
UNARY(brev_64, Lane64, Lane64, (uint64_t)reverse_32((uint32_t)a) << 32 | reverse_32(a >> 32))

// bfind: position of the most significant bit that differs from the sign; all ones if none.
// .shiftamt: how far to shift left to bring it to the top.
static inline uint32_t find_u64(uint64_t x) {
    return x ? 63u - (uint32_t)__builtin_clzll(x) : ~0u;
}
static inline uint32_t shift_amount(uint32_t position, uint32_t bits) {
    return position == ~0u ? position : bits - 1 - position;
}
UNARY(bfind_u32, Lane32, Lane32, find_u64(a))
UNARY(bfind_s32, Lane32, LaneS32, find_u64((uint32_t)(a < 0 ? ~a : a)))
UNARY(bfind_u64, Lane32, Lane64, find_u64(a))
UNARY(bfind_s64, Lane32, LaneS64, find_u64((uint64_t)(a < 0 ? ~a : a)))
UNARY(bfind_shift_u32, Lane32, Lane32, shift_amount(find_u64(a), 32))
UNARY(bfind_shift_s32, Lane32, LaneS32, shift_amount(find_u64((uint32_t)(a < 0 ? ~a : a)), 32))
UNARY(bfind_shift_u64, Lane32, Lane64, shift_amount(find_u64(a), 64))
UNARY(bfind_shift_s64, Lane32, LaneS64, shift_amount(find_u64((uint64_t)(a < 0 ? ~a : a)), 64))

// fns: the offset-th set bit of `bits` from `base` on, upwards if offset > 0, downwards if < 0;
// offset 0 asks whether the base bit itself is set. All ones if there is none.
static uint32_t find_nth_set(uint32_t bits, uint32_t base, int32_t offset) {
    if (base > 31) return ~0u;
    if (offset == 0) return bits >> base & 1 ? base : ~0u;
    int step = offset > 0 ? 1 : -1;
    int64_t left = offset > 0 ? offset : -(int64_t)offset;
    for (int position = (int)base; position >= 0 && position < 32; position += step)
        if (bits >> position & 1 && --left == 0) return (uint32_t)position;
    return ~0u;
}
TERNARY(fns, Lane32, Lane32, Lane32, LaneS32, find_nth_set(a, b, c))

// ---- bit fields: position and length are taken from the low byte

static inline uint64_t field_u(uint64_t a, uint32_t position, uint32_t length, uint32_t bits) {
    position &= 0xff, length &= 0xff;
    if (length == 0 || position >= bits) return 0;
    uint64_t field = a >> position;
    return length < 64 ? field & ((1ull << length) - 1) : field;
}
// The sign is the field's top bit, or the operand's where the field runs off its end.
static inline uint64_t field_s(uint64_t a, uint32_t position, uint32_t length, uint32_t bits) {
    position &= 0xff, length &= 0xff;
    if (length == 0) return 0;
    uint32_t top = position + length - 1;
    if (top >= bits) top = bits - 1;
    uint64_t sign = a >> top & 1 ? ~0ull : 0;
    if (position >= bits) return sign;
    uint64_t field = a >> position;
    uint32_t width = bits - position < length ? bits - position : length;
    return width < 64 ? (field & ((1ull << width) - 1)) | (sign << width) : field;
}
TERNARY(bfe_u32, Lane32, Lane32, Lane32, Lane32, field_u(a, b, c, 32))
TERNARY(bfe_s32, Lane32, Lane32, Lane32, Lane32, field_s(a, b, c, 32))
TERNARY(bfe_u64, Lane64, Lane64, Lane32, Lane32, field_u(a, b, c, 64))
TERNARY(bfe_s64, Lane64, Lane64, Lane32, Lane32, field_s(a, b, c, 64))

static inline uint64_t insert(uint64_t from, uint64_t into, uint32_t position, uint32_t length,
                              uint32_t bits) {
    position &= 0xff, length &= 0xff;
    if (length == 0 || position >= bits) return into;
    uint64_t field = length < 64 ? (1ull << length) - 1 : ~0ull;
    return (into & ~(field << position)) | (from & field) << position;
}
#define INSERT(name, T, bits)                                                                      \
    static Flow name(Warp *w, const Insn *i, uint32_t mask) {                                      \
        T *d = row(w, i->d);                                                                       \
        const T *a = row(w, i->a), *b = row(w, i->b);                                              \
        const Lane32 *c = row(w, i->c), *e = row(w, i->e);                                         \
        EACH_LANE(T, d, mask, insert(a[l], b[l], c[l], e[l], bits));                               \
        return FLOW_NEXT;                                                                          \
    }
INSERT(bfi_32, Lane32, 32)
INSERT(bfi_64, Lane64, 64)

// bmsk: b ones from position a on. .clamp takes both as at most 32, .wrap modulo 32.
static inline uint32_t bit_mask(uint32_t position, uint32_t length, bool wrap) {
    position = wrap ? position & 31 : position < 32 ? position : 32;
    length = wrap ? length & 31 : length < 32 ? length : 32;
    return (uint32_t)(((1ull << length) - 1) << position);
}
BINARY(bmsk_clamp, Lane32, Lane32, Lane32, bit_mask(a, b, false))
BINARY(bmsk_wrap, Lane32, Lane32, Lane32, bit_mask(a, b, true))

// szext: extends the low b bits of a. b = 0 gives 0; .clamp: b of 32 and more leaves a as it is.
static inline uint32_t extend(uint32_t a, uint32_t n, bool wrap, bool is_signed) {
    n = wrap ? n & 31 : n < 32 ? n : 32;
    if (n == 0) return 0;
    return is_signed ? (uint32_t)((int32_t)(a << (32 - n)) >> (32 - n)) : a << (32 - n) >> (32 - n);
}
BINARY(szext_clamp_u32, Lane32, Lane32, Lane32, extend(a, b, false, false))
BINARY(szext_clamp_s32, Lane32, Lane32, Lane32, extend(a, b, false, true))
BINARY(szext_wrap_u32, Lane32, Lane32, Lane32, extend(a, b, true, false))
BINARY(szext_wrap_s32, Lane32, Lane32, Lane32, extend(a, b, true, true))

// ---- prmt: picks four of the eight bytes {b:a}

// Byte n of the result by selector nibble: 3 bits of index; bit 3 asks for the byte's sign instead.
static inline uint32_t permute_byte(uint64_t bytes, uint32_t nibble) {
    uint32_t byte = (uint32_t)(bytes >> 8 * (nibble & 7)) & 0xff;
    return nibble & 8 ? (byte & 0x80 ? 0xff : 0) : byte;
}
static inline uint32_t permute(uint32_t a, uint32_t b, uint32_t selector) {
    uint64_t bytes = (uint64_t)b << 32 | a;
    uint32_t result = 0;
    for (int n = 0; n < 4; n++) result |= permute_byte(bytes, selector >> 4 * n & 15) << 8 * n;
    return result;
}
TERNARY(prmt, Lane32, Lane32, Lane32, Lane32, permute(a, b, c))

// The special modes are ordinary selections; c's low two bits choose one of four.
typedef enum { F4E = 1, B4E, RC8, ECL, ECR, RC16 } PermuteMode;
static inline uint32_t mode_selector(PermuteMode mode, uint32_t c) {
    static const uint16_t selectors[][4] = {
        [F4E] = {0x3210, 0x4321, 0x5432, 0x6543}, [B4E] = {0x5670, 0x6701, 0x7012, 0x0123},
        [RC8] = {0x0000, 0x1111, 0x2222, 0x3333}, [ECL] = {0x3210, 0x3211, 0x3222, 0x3333},
        [ECR] = {0x0000, 0x1110, 0x2210, 0x3210}, [RC16] = {0x1010, 0x3232, 0x1010, 0x3232},
    };
    return selectors[mode][c & 3];
}
static Flow prmt_mode(Warp *w, const Insn *i, uint32_t mask) {
    Lane32 *d = row(w, i->d);
    const Lane32 *a = row(w, i->a), *b = row(w, i->b), *c = row(w, i->c);
    PermuteMode mode = (PermuteMode)i->choice[1];
    EACH_LANE(uint32_t, d, mask, permute(a[l], b[l], mode_selector(mode, c[l])));
    return FLOW_NEXT;
}

#define R1_32 "d32 a32"
#define R2_32 "d32 a32 b32"
#define R3_32 "d32 a32 b32 c32"

const Form bits_forms[] = {
    {"and", "b32", R2_32, and_32, PIPE_ALU},
    {"and", "b64", "d64 a64 b64", and_64, PIPE_ALU},
    {"and", "b16", "d16 a16 b16", and_16, PIPE_ALU},
    {"and", "pred", "dp ap bp", and_pred, PIPE_ALU},
    {"or", "b32", R2_32, or_32, PIPE_ALU},
    {"or", "b64", "d64 a64 b64", or_64, PIPE_ALU},
    {"or", "b16", "d16 a16 b16", or_16, PIPE_ALU},
    {"or", "pred", "dp ap bp", or_pred, PIPE_ALU},
    {"xor", "b32", R2_32, xor_32, PIPE_ALU},
    {"xor", "b64", "d64 a64 b64", xor_64, PIPE_ALU},
    {"xor", "b16", "d16 a16 b16", xor_16, PIPE_ALU},
    {"xor", "pred", "dp ap bp", xor_pred, PIPE_ALU},
    {"not", "b32", R1_32, not_32, PIPE_ALU},
    {"not", "b64", "d64 a64", not_64, PIPE_ALU},
    {"not", "b16", "d16 a16", not_16, PIPE_ALU},
    {"not", "pred", "dp ap", not_pred, PIPE_ALU},
    {"cnot", "b32", R1_32, cnot_32, PIPE_ALU},
    {"cnot", "b64", "d64 a64", cnot_64, PIPE_ALU},
    {"cnot", "b16", "d16 a16", cnot_16, PIPE_ALU},
    {"lop3", "b32", "d32 a32 b32 c32 i", lop3, PIPE_ALU},
    {"lop3", "or|and b32", NULL, NULL, PIPE_ALU, 0, 0, lower_lop3_predicate},

    {"shl", "b32", R2_32, shl_32, PIPE_ALU},
    {"shl", "b64", "d64 a64 b32", shl_64, PIPE_ALU},
    {"shl", "b16", "d16 a16 b32", shl_16, PIPE_ALU},
    {"shr", "u32|b32", R2_32, shr_u32, PIPE_ALU},
    {"shr", "s32", R2_32, shr_s32, PIPE_ALU},
    {"shr", "u64|b64", "d64 a64 b32", shr_u64, PIPE_ALU},
    {"shr", "s64", "d64 a64 b32", shr_s64, PIPE_ALU},
    {"shr", "u16|b16", "d16 a16 b32", shr_u16, PIPE_ALU},
    {"shr", "s16", "d16 a16 b32", shr_s16, PIPE_ALU},
    {"shf", "l wrap b32", R3_32, shf_l_wrap, PIPE_ALU},
    {"shf", "r wrap b32", R3_32, shf_r_wrap, PIPE_ALU},
    {"shf", "l clamp b32", R3_32, shf_l_clamp, PIPE_ALU},
    {"shf", "r clamp b32", R3_32, shf_r_clamp, PIPE_ALU},

    {"popc", "b32", R1_32, popc_32, PIPE_ALU},
    {"popc", "b64", "d32 a64", popc_64, PIPE_ALU},
    {"clz", "b32", R1_32, clz_32, PIPE_ALU},
    {"clz", "b64", "d32 a64", clz_64, PIPE_ALU},
    {"brev", "b32", R1_32, brev_32, PIPE_ALU},
    {"brev", "b64", "d64 a64", brev_64, PIPE_ALU},
    {"bfind", "u32", R1_32, bfind_u32, PIPE_ALU},
    {"bfind", "s32", R1_32, bfind_s32, PIPE_ALU},
    {"bfind", "u64", "d32 a64", bfind_u64, PIPE_ALU},
    {"bfind", "s64", "d32 a64", bfind_s64, PIPE_ALU},
    {"bfind", "shiftamt u32", R1_32, bfind_shift_u32, PIPE_ALU},
    {"bfind", "shiftamt s32", R1_32, bfind_shift_s32, PIPE_ALU},
    {"bfind", "shiftamt u64", "d32 a64", bfind_shift_u64, PIPE_ALU},
    {"bfind", "shiftamt s64", "d32 a64", bfind_shift_s64, PIPE_ALU},
    {"fns", "b32", R3_32, fns, PIPE_ALU},

    {"bfe", "u32", R3_32, bfe_u32, PIPE_ALU},
    {"bfe", "s32", R3_32, bfe_s32, PIPE_ALU},
    {"bfe", "u64", "d64 a64 b32 c32", bfe_u64, PIPE_ALU},
    {"bfe", "s64", "d64 a64 b32 c32", bfe_s64, PIPE_ALU},
    {"bfi", "b32", "d32 a32 b32 c32 e32", bfi_32, PIPE_ALU},
    {"bfi", "b64", "d64 a64 b64 c32 e32", bfi_64, PIPE_ALU},
    {"bmsk", "clamp b32", R2_32, bmsk_clamp, PIPE_ALU},
    {"bmsk", "wrap b32", R2_32, bmsk_wrap, PIPE_ALU},
    {"szext", "clamp u32", R2_32, szext_clamp_u32, PIPE_ALU},
    {"szext", "clamp s32", R2_32, szext_clamp_s32, PIPE_ALU},
    {"szext", "wrap u32", R2_32, szext_wrap_u32, PIPE_ALU},
    {"szext", "wrap s32", R2_32, szext_wrap_s32, PIPE_ALU},
    {"prmt", "b32", R3_32, prmt, PIPE_ALU},
    {"prmt", "b32 f4e|b4e|rc8|ecl|ecr|rc16", R3_32, prmt_mode, PIPE_ALU},
    {0},
};
