// st.async, red.async (PTX ISA 9.7.9.12, 9.7.13.7): stores to a CTA of the cluster that tell an
// mbarrier there of their bytes. And st.bulk (9.7.9.13), which zeroes the CTA's own memory.
#include <string.h>

#include "softgpu/execute/execute.h"
#include "softgpu/execute/memory_access.h"
#include "softgpu/machine/cluster.h"
#include "softgpu/machine/remote.h"

// Insn.extra. Insn.rows are the values; `barrier` holds the second address.
typedef struct {
    Insn barrier;
    bool generic, reduces;
    Reduction reduction;
    TensorType type;
} Remote;

// One of the two addresses of all lanes, rank bits and all.
static bool addresses(Warp *w, const Insn *i, const Insn *operand, bool generic, uint32_t mask,
                      uint32_t address[WARP_SIZE]) {
    if (!generic) return narrow_addresses(w, operand, mask, address);
    uint64_t wide[WARP_SIZE];
    wide_addresses(w, operand, wide);
    uint32_t wrong = mask & ~generic_spaces(wide, mask).shared;
    window_addresses(wide, address);
    if (!wrong) return true;
    int lane = __builtin_ctz(wrong);
    finding(w, i, lane, FINDING_WRONG_SPACE, "Give addresses of the cluster's shared memory.",
            "uses 0x%llx, which is no address of shared memory", (unsigned long long)wide[lane]);
    return false;
}

static Flow remote(Warp *w, const Insn *i, uint32_t mask) {
    const Remote *r = i->extra;
    uint32_t to[WARP_SIZE], at[WARP_SIZE], barrier[WARP_SIZE], barrier_at[WARP_SIZE];
    unsigned bytes = (unsigned)i->size * i->row_count;
    Cta *cta[WARP_SIZE], *home = NULL;
    if (!addresses(w, i, i, r->generic, mask, to) ||
        !addresses(w, i, &r->barrier, r->generic, mask, barrier))
        return FLOW_FAULT;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        cta[l] = check_peer(w, i, l, to[l], &at[l]);
        if (cta[l]) home = check_peer(w, i, l, barrier[l], &barrier_at[l]);
        if (!cta[l] || !home) return FLOW_FAULT;
        if (home == cta[l]) continue;
        finding(w, i, l, FINDING_WRONG_SPACE, "Take both addresses from mapa with the same rank.",
                "stores to CTA %u of the cluster, but its mbarrier is in CTA %u",
                cta[l]->cluster_rank, home->cluster_rank);
        return FLOW_FAULT;
    }
    if (!check_shared(w, i, at, bytes, mask, true) ||
        !check_shared(w, i, barrier_at, 8, mask, true))
        return FLOW_FAULT;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        RemoteStore s = {.to = cta[l],
                         .at = at[l],
                         .mbarrier = barrier_at[l],
                         .reduces = r->reduces,
                         .reduction = r->reduction,
                         .type = r->type,
                         .bytes = (uint8_t)bytes};
        for (int k = 0; k < i->row_count; k++)
            memcpy(s.value + k * i->size, (uint8_t *)row(w, i->rows[k]) + l * i->size, i->size);
        remote_issue(w, i, l, &s);
        if (w->sm->faulted || cta[l]->sm->faulted) return FLOW_FAULT;
    }
    w->stores++;
    w->sm->changes++;
    return FLOW_NEXT;
}

// Zeroes `size` bytes of the CTA's own shared memory.
static Flow bulk_zero(Warp *w, const Insn *i, uint32_t mask) {
    uint32_t address[WARP_SIZE];
    const Lane64 *size = row(w, i->b);
    Cta *cta = w->cta;
    if (!addresses(w, i, i, i->space != SPACE_SHARED, mask, address)) return FLOW_FAULT;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        uint32_t at[WARP_SIZE];
        at[l] = address[l] - (cta->cluster_rank << RANK_SHIFT);
        if (size[l] % 8) {
            finding(w, i, l, FINDING_MISALIGNED, "Give a size that is a multiple of 8.",
                    "stores %llu bytes with st.bulk", (unsigned long long)size[l]);
            return FLOW_FAULT;
        }
        // Piece by piece, so that the finding names the first one that doesn't fit.
        for (uint64_t done = 0; done < size[l]; done += 8, at[l] += 8) {
            Places places;
            uint32_t piece[WARP_SIZE];
            piece[l] = at[l] + (cta->cluster_rank << RANK_SHIFT);
            Access access = {.bytes = 8, .kind = ACCESS_WRITE};
            if (!place_shared(w, i, piece, 1u << l, access, &places)) return FLOW_FAULT;
            places_spread(&places, 8);
            memset(places.at[l], 0, 8);
        }
    }
    w->stores++;
    w->sm->changes++;
    return FLOW_NEXT;
}

// ---- lowering

// Bits of the element that the last modifier names.
static int value_bits(const PtxInstruction *p) {
    return !strcmp(p->modifiers[p->modifier_count - 1] + 1, "64") ? 64 : 32;
}

static const char *lower_remote(Lowering *l, const Match *m, Insn *i) {
    const PtxInstruction *p = m->ptx;
    if (p->operand_count != 3) return "it takes an address, a value and an mbarrier";
    const PtxOperand *value = &p->operands[1];
    const PtxOperand *elements = value->kind == OPERAND_VECTOR ? value->elements : value;
    unsigned count = value->kind == OPERAND_VECTOR ? (unsigned)value->count : 1;
    if (count != (ptx_has_modifier(p, "v4") ? 4u : ptx_has_modifier(p, "v2") ? 2u : 1u))
        return "the vector's length is not that of the instruction";
    int bits = value_bits(p);
    if (bits * count > 128) return "no asynchronous store is wider than 16 bytes";

    Remote *r = kernel_alloc(l, sizeof *r);
    memset(r, 0, sizeof *r);
    r->generic = !ptx_has_modifier(p, "shared::cluster");
    r->reduces = !strcmp(p->opcode, "red");
    while (r->reduces && !ptx_has_modifier(p, reduction_name(r->reduction))) r->reduction++;
    bool is_signed = p->modifiers[p->modifier_count - 1][0] == 's';
    if (bits == 64)
        r->type = is_signed ? TENSOR_S64 : TENSOR_U64;
    else
        r->type = is_signed ? TENSOR_S32 : TENSOR_U32;
    Row *rows = kernel_alloc(l, count * sizeof *rows);
    const char *why = NULL;
    for (unsigned k = 0; k < count; k++) {
        rows[k] = source_row(l, &elements[k], bits, &why);
        if (rows[k] == ROW_NONE) return why;
    }
    i->rows = rows;
    i->row_count = (uint16_t)count;
    i->size = (uint8_t)(bits / 8);
    i->space = SPACE_SHARED;
    i->run = remote;
    r->barrier = *i;
    why = address_operand(l, &p->operands[0], i);
    if (!why) why = address_operand(l, &p->operands[2], &r->barrier);
    i->extra = r;
    return why;
}

static const char *lower_bulk_zero(Lowering *l, const Match *m, Insn *i) {
    const PtxOperand *o = m->ptx->operands;
    if (m->ptx->operand_count != 3) return "st.bulk takes an address, a size and the value 0";
    if (o[2].kind != OPERAND_INTEGER || o[2].bits) return "st.bulk stores zeros only";
    const char *why = NULL;
    i->b = source_row(l, &o[1], 64, &why);
    i->space = ptx_has_modifier(m->ptx, "shared::cta") ? SPACE_SHARED : SPACE_NONE;
    i->run = bulk_zero;
    return why ? why : address_operand(l, &o[0], i);
}

#define COMPLETES "mbarrier::complete_tx::bytes "
#define REDUCES   "async relaxed cluster shared::cluster? " COMPLETES

const Form remote_forms[] = {
    {.name = "st",
     .modifiers =
         "async weak? shared::cluster? " COMPLETES "v2|v4? b32|b64|u32|u64|s32|s64|f32|f64",
     .pipe = PIPE_LSU,
     .lower = lower_remote},
    {.name = "red", .modifiers = REDUCES "inc|dec u32", .pipe = PIPE_LSU, .lower = lower_remote},
    {.name = "red",
     .modifiers = REDUCES "min|max u32|s32",
     .pipe = PIPE_LSU,
     .lower = lower_remote},
    {.name = "red",
     .modifiers = REDUCES "add u32|s32|u64|s64",
     .pipe = PIPE_LSU,
     .lower = lower_remote},
    {.name = "red", .modifiers = REDUCES "and|or|xor b32", .pipe = PIPE_LSU, .lower = lower_remote},
    {.name = "st",
     .modifiers = "bulk weak? shared::cta?",
     .pipe = PIPE_LSU,
     .lower = lower_bulk_zero},
    {0},
};
