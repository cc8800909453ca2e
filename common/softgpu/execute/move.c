// Moves and what is near them (PTX ISA 9.7.9): mov with its packing of vectors, cvta, isspacep,
// prefetches and cache policies, nanosleep, pmevent.
#include "softgpu/execute/execute.h"
#include "softgpu/machine/global.h"

// ---- mov of one register

UNARY(mov_16, Lane16, Lane16, a)
UNARY(mov_32, Lane32, Lane32, a)
UNARY(mov_64, Lane64, Lane64, a)
static Flow mov_128(Warp *w, const Insn *i, uint32_t mask) {
    put128(w, i->d, row(w, i->a), mask);
    return FLOW_NEXT;
}
static Flow mov_pred(Warp *w, const Insn *i, uint32_t mask) {
    put_predicate(w, i->d, predicate(w, i->a), mask);
    return FLOW_NEXT;
}

// ---- mov that packs or unpacks: {x, y} = b, d = {x, y}; the first element is the lowest

// Insn.imm is the width of an element, row_count how many there are. Elements of 8 bits live in
// rows of 16, as registers of 8 bits do.
static inline uint64_t element(const Warp *w, Row r, int l, int bits) {
    if (bits == 64) return ((const Lane64 *)row(w, r))[l];
    if (bits == 32) return ((const Lane32 *)row(w, r))[l];
    uint64_t x = ((const Lane16 *)row(w, r))[l];
    return bits == 8 ? x & 0xff : x;
}
static Flow pack(Warp *w, const Insn *i, uint32_t mask) {
    int bits = (int)i->imm, total = bits * i->row_count;
    for (int l = 0; l < WARP_SIZE; l++) {
        if (!(mask >> l & 1)) continue;
        uint64_t value = 0;
        if (total == 128) { // two of 64 bits, or four of 32
            uint64_t part[2] = {0, 0};
            for (int e = 0; e < i->row_count; e++)
                part[e * bits / 64] |= element(w, i->rows[e], l, bits) << (e * bits % 64);
            ((Lane128 *)row(w, i->d))[l] = (Lane128){part[0], part[1]};
            continue;
        }
        for (int e = 0; e < i->row_count; e++)
            value |= element(w, i->rows[e], l, bits) << (e * bits);
        if (total == 64)
            ((Lane64 *)row(w, i->d))[l] = value;
        else if (total == 32)
            ((Lane32 *)row(w, i->d))[l] = (uint32_t)value;
        else
            ((Lane16 *)row(w, i->d))[l] = (uint16_t)value;
    }
    return FLOW_NEXT;
}
static Flow unpack(Warp *w, const Insn *i, uint32_t mask) {
    int bits = (int)i->imm, total = bits * i->row_count;
    for (int l = 0; l < WARP_SIZE; l++) {
        if (!(mask >> l & 1)) continue;
        uint64_t part[2] = {0, 0};
        if (total == 128) {
            Lane128 both = ((const Lane128 *)row(w, i->a))[l];
            part[0] = both.lo, part[1] = both.hi;
        } else {
            part[0] = element(w, i->a, l, total);
        }
        for (int e = 0; e < i->row_count; e++) {
            uint64_t x = part[e * bits / 64] >> (e * bits % 64);
            void *d = row(w, i->rows[e]);
            if (bits == 64)
                ((Lane64 *)d)[l] = x;
            else if (bits == 32)
                ((Lane32 *)d)[l] = (uint32_t)x;
            else
                ((Lane16 *)d)[l] = (uint16_t)(bits == 8 ? x & 0xff : x);
        }
    }
    return FLOW_NEXT;
}

// The pairs that compilers write all the time.
#define PACK_TWO(name, D, S, bits)                                                                 \
    static Flow pack_##name(Warp *w, const Insn *i, uint32_t mask) {                               \
        D *d = row(w, i->d);                                                                       \
        const S *lower = row(w, i->rows[0]), *upper = row(w, i->rows[1]);                          \
        EACH_LANE(D, d, mask, lower[l] | (D)upper[l] << bits);                                     \
        return FLOW_NEXT;                                                                          \
    }                                                                                              \
    static Flow unpack_##name(Warp *w, const Insn *i, uint32_t mask) {                             \
        const D *a = row(w, i->a);                                                                 \
        S *lower = row(w, i->rows[0]), *upper = row(w, i->rows[1]);                                \
        EACH_LANE(S, lower, mask, a[l]);                                                           \
        EACH_LANE(S, upper, mask, a[l] >> bits);                                                   \
        return FLOW_NEXT;                                                                          \
    }
PACK_TWO(2x16, Lane32, Lane16, 16)
PACK_TWO(2x32, Lane64, Lane32, 32)

static const char *lower_pack(Lowering *l, const Match *m, Insn *i) {
    static const uint8_t widths[] = {0, 16, 32, 64, 128}; // by choice[0]
    int total = widths[m->choice[0]];
    const PtxOperand *to = &m->ptx->operands[0], *from = &m->ptx->operands[1];
    bool packs = from->kind == OPERAND_VECTOR;
    const PtxOperand *vector = packs ? from : to;
    int count = vector->count, bits = count == 2 || count == 4 ? total / count : 0;
    if (bits < 8 || packs == (to->kind == OPERAND_VECTOR))
        return "mov packs two or four elements into a register, or unpacks them";
    const char *why = NULL;
    Row *rows = kernel_alloc(l, sizeof *rows * (size_t)count);
    for (int e = 0; e < count; e++) {
        const PtxOperand *o = &vector->elements[e];
        int width = bits < 16 ? 16 : bits;
        rows[e] = packs ? source_row(l, o, width, &why) : destination_row(l, o, width, &why);
    }
    if (packs)
        i->d = destination_row(l, to, total, &why);
    else
        i->a = source_row(l, from, total, &why);
    i->rows = rows;
    i->row_count = (uint16_t)count;
    i->imm = (uint64_t)bits;
    i->run = packs ? pack : unpack;
    if (count == 2 && total == 32) i->run = packs ? pack_2x16 : unpack_2x16;
    if (count == 2 && total == 64) i->run = packs ? pack_2x32 : unpack_2x32;
    return why;
}

// ---- addresses

// The address of a .local variable: its offset in the function's storage, which lies where the
// running activation of the function has its.
Flow local_address(Warp *w, const Insn *i, uint32_t mask) {
    uint64_t address = i->imm + w->groups[w->current].frame->local_base;
    if (i->size == 8) {
        Lane64 *d = row(w, i->d);
        EACH_LANE(uint64_t, d, mask, address);
    } else {
        Lane32 *d = row(w, i->d);
        EACH_LANE(uint32_t, d, mask, address);
    }
    return FLOW_NEXT;
}

// Generic addresses: each space but global and const has a window.
UNARY(shared_to_generic, Lane64, Lane64, a + SHARED_WINDOW)
UNARY(generic_to_shared, Lane64, Lane64, a - SHARED_WINDOW)
UNARY(local_to_generic, Lane64, Lane64, a + LOCAL_WINDOW)
UNARY(generic_to_local, Lane64, Lane64, a - LOCAL_WINDOW)
UNARY(param_to_generic, Lane64, Lane64, a + PARAM_WINDOW)
UNARY(generic_to_param, Lane64, Lane64, a - PARAM_WINDOW)

// isspacep. choice[0] as in IS_SPACES.
#define IS_SPACES "const|global|local|shared|shared::cta|shared::cluster|param|param::entry"
typedef enum {
    IS_CONST = 1,
    IS_GLOBAL,
    IS_LOCAL,
    IS_SHARED,
    IS_CTA,
    IS_CLUSTER,
    IS_PARAM,
    IS_ENTRY
} IsSpace;

static bool is_constant(const Warp *w, uint64_t a) {
    const Allocation *at = global_find(w->sm->gpu->memory, a);
    return at && at->kind == MEMORY_CONSTANT;
}
static bool in_space(const Warp *w, uint64_t a, IsSpace space) {
    bool shared = a - SHARED_WINDOW < SHARED_WINDOW_SIZE;
    bool local = a - LOCAL_WINDOW < LOCAL_WINDOW_SIZE;
    bool param = a - PARAM_WINDOW < PARAM_WINDOW_SIZE;
    switch (space) {
    case IS_SHARED:
    case IS_CTA: return shared && (a - SHARED_WINDOW) >> RANK_SHIFT == w->cta->cluster_rank;
    case IS_CLUSTER: return shared;
    case IS_LOCAL: return local;
    case IS_PARAM:
    case IS_ENTRY: return param;
    case IS_CONST: return !shared && !local && !param && is_constant(w, a);
    case IS_GLOBAL: return !shared && !local && !param && !is_constant(w, a);
    }
    return false;
}
static Flow isspacep(Warp *w, const Insn *i, uint32_t mask) {
    const Lane64 *a = row(w, i->a);
    uint32_t bits = 0;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        bits |= (uint32_t)in_space(w, a[l], (IsSpace)i->choice[0]) << l;
    }
    put_predicate(w, i->d, bits, mask);
    return FLOW_NEXT;
}

// ---- hints: nothing that a program can see

static Flow no_effect(Warp *w, const Insn *i, uint32_t mask) {
    (void)w, (void)i, (void)mask;
    return FLOW_NEXT;
}
// An address, and for some a size behind it.
static const char *lower_hint(Lowering *l, const Match *m, Insn *i) {
    int count = m->ptx->operand_count;
    if (count != 1 && count != 2) return "this hint takes an address";
    if (count == 2 && m->ptx->operands[1].kind != OPERAND_INTEGER)
        return "the size must be an immediate";
    i->run = no_effect;
    return address_operand(l, &m->ptx->operands[0], i);
}

// A cache policy is opaque and has no effect here: 0.
static Flow createpolicy(Warp *w, const Insn *i, uint32_t mask) {
    Lane64 *d = row(w, i->d);
    EACH_LANE(uint64_t, d, mask, 0);
    return FLOW_NEXT;
}
static const char *lower_policy(Lowering *l, const Match *m, Insn *i) {
    const PtxOperand *o = m->ptx->operands;
    const char *why = NULL;
    if (m->ptx->operand_count < 1) return "createpolicy takes a destination";
    i->run = createpolicy;
    i->d = destination_row(l, &o[0], 64, &why);
    if (why) return why;
    if (m->ptx->operand_count > 1 && o[1].kind == OPERAND_ADDRESS)
        why = address_operand(l, &o[1], i);
    return why;
}

// Sleeps as long as the lane that asks for most.
static Flow nanosleep(Warp *w, const Insn *i, uint32_t mask) {
    const Lane32 *a = row(w, i->a);
    uint32_t most = 0;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        uint32_t t = a[__builtin_ctz(rest)];
        if (t > most) most = t;
    }
    uint64_t cycles = (uint64_t)(most * w->sm->gpu->figures.clock_ghz);
    if (cycles == 0) return FLOW_YIELD;
    warp_block(w, BLOCK_SLEEP, 0, w->sm->time + cycles);
    return FLOW_WAIT;
}

#define M16 "b16|u16|s16|f16|bf16"
#define M32 "b32|u32|s32|f32|f16x2|bf16x2"
#define M64 "b64|u64|s64|f64"

const Form move_forms[] = {
    {"mov", M32, "d32 a32", mov_32, PIPE_ALU},
    {"mov", M64, "d64 a64", mov_64, PIPE_ALU},
    {"mov", M16, "d16 a16", mov_16, PIPE_ALU},
    {"mov", "pred", "dp ap", mov_pred, PIPE_ALU},
    {"mov", "b128", "d128 a128", mov_128, PIPE_ALU},
    {"mov", "b16|b32|b64|b128", NULL, NULL, PIPE_ALU, 0, 0, lower_pack},

    {"cvta", "global|const u64", "d64 a64", mov_64, PIPE_ALU},
    {"cvta", "to global|const u64", "d64 a64", mov_64, PIPE_ALU},
    {"cvta", "shared|shared::cta|shared::cluster u64", "d64 a64", shared_to_generic, PIPE_ALU},
    {"cvta", "to shared|shared::cta|shared::cluster u64", "d64 a64", generic_to_shared, PIPE_ALU},
    {"cvta", "local u64", "d64 a64", local_to_generic, PIPE_ALU},
    {"cvta", "to local u64", "d64 a64", generic_to_local, PIPE_ALU},
    {"cvta", "param|param::entry u64", "d64 a64", param_to_generic, PIPE_ALU},
    {"cvta", "to param|param::entry u64", "d64 a64", generic_to_param, PIPE_ALU},
    {"isspacep", IS_SPACES, "dp a64", isspacep, PIPE_ALU},

    {"prefetch", "global|local? L1|L2", NULL, NULL, PIPE_LSU, 0, 0, lower_hint},
    {"prefetch", "global L2::evict_last|L2::evict_normal", NULL, NULL, PIPE_LSU, 0, 0, lower_hint},
    {"prefetchu", "L1", NULL, NULL, PIPE_LSU, 0, 0, lower_hint},
    {"discard", "global? L2", NULL, NULL, PIPE_LSU, 0, 0, lower_hint},
    {"applypriority", "global? L2::evict_normal", NULL, NULL, PIPE_LSU, 0, 0, lower_hint},
    {"createpolicy",
     "fractional L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged "
     "L2::evict_first|L2::evict_unchanged? b64",
     NULL, NULL, PIPE_ALU, 0, 0, lower_policy},
    {"createpolicy",
     "range global? L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged "
     "L2::evict_first|L2::evict_unchanged? b64",
     NULL, NULL, PIPE_ALU, 0, 0, lower_policy},
    {"createpolicy", "cvt L2 b64", NULL, NULL, PIPE_ALU, 0, 0, lower_policy},

    {"nanosleep", "u32", "a32", nanosleep, PIPE_CONTROL},
    {"pmevent", "mask?", "i", no_effect, PIPE_NONE},
    {0},
};
