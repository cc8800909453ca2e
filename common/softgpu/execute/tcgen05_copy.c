// tcgen05.cp and tcgen05.shift (PTX ISA 9.7.16.9): what comes to tensor memory from shared memory,
// and what moves within it.
//
// cp copies rows of 16 or 32 bytes. With .b8x16 each 16 bytes of the source hold 16 numbers of 4 or
// 6 bits, packed at the start and followed by padding, and 16 bytes with one number each come of
// them, as a product of kind f8f6f4 wants them in tensor memory:
//
//     .b4x16_p64    00xxxx00
//     .b6x16_p32    0xxxxxx0
//
// PTX only draws that; in words it stands in CUTLASS (examples/python/CuTeDSL/experimental/
// primitives/tcgen05/cp_narrow_a_to_tmem_mma.py).
//
// shift moves 8 columns of the 32 lanes that its address names by one lane. PTX says "downwards
// across all the rows, except the last": by what NVIDIA has observed on a B200 (CUTLASS, python/
// CuTeDSL/cutlass/experimental/primitives/nvvm_wrapper.py) lane r takes what lane r + 1 holds, and
// the last keeps what it has. tcgen05.mma with .ashift does the same to A.
#include <string.h>

#include "softgpu/check/check.h"
#include "softgpu/check/findings.h"
#include "softgpu/check/tmem_race.h"
#include "softgpu/execute/tcgen05.h"

// What each lane of the mask does, with the blocks that it is done in.
static Flow each_lane(Warp *w, const Insn *i, uint32_t mask, int group,
                      bool (*one)(Warp *w, const Insn *i, int lane, Cta *const ctas[2])) {
    Cta *ctas[2];
    if (!tcgen05_ctas(w, i, group, ctas)) return FLOW_FAULT;
    for (uint32_t rest = mask; rest; rest &= rest - 1)
        if (!one(w, i, __builtin_ctz(rest), ctas)) return FLOW_FAULT;
    return FLOW_NEXT;
}

// ---- tcgen05.cp

int copy_lane(const CopyForm *f, int r, int c) {
    if (f->spread) return c ? -1 : 32 * r;
    switch (f->copies) {
    case 1: return c < 2 ? r % 32 + 32 * (r / 32) + 64 * c : -1;
    case 2: return c < 2 ? r % 32 + 64 * (r / 32) + 32 * c : -1;
    case 4: return c < 4 ? r + 32 * c : -1;
    default: return c ? -1 : r;
    }
}

// Rows of 16 or 32 bytes; of 4x256b the four rows are the first of a group of eight.
SharedOperand copy_operand(const CopyForm *f, uint64_t descriptor) {
    return (SharedOperand){.descriptor = descriptor_blackwell(descriptor),
                           .element = 1,
                           .rows = f->rows,
                           .depth = f->row_bytes};
}

static bool copy_lane_of(Warp *w, const Insn *i, int lane, Cta *const ctas[2]) {
    const CopyForm *f = i->extra;
    TensorOp op = {.kind = TENSOR_COPY, .insn = i, .warp = w, .lane = lane};
    op.copy.to = tcgen05_address_at(w, &f->to, lane);
    op.copy.from = ((const Lane64 *)row(w, f->from))[lane];
    SharedOperand o = copy_operand(f, op.copy.from);
    uint32_t columns = f->row_bytes / 4, groups = 0;
    if (tmem_lane(op.copy.to)) {
        finding(w, i, lane, FINDING_TENSOR, "Pass the address of lane 0.",
                "copies to lane %u of tensor memory on; all shapes begin at lane 0",
                tmem_lane(op.copy.to));
        return false;
    }
    for (int r = 0; r < f->rows; r++)
        for (int c = 0, to; (to = copy_lane(f, r, c)) >= 0 && c < 4; c++) groups |= 1u << to / 16;
    TensorIssuer *issuer = tcgen05_issuer(w, lane);
    for (int k = 0; k < f->group; k++) {
        if (!tcgen05_columns(w, i, lane, ctas[k], op.copy.to, columns, "copies to") ||
            !tcgen05_descriptor(w, i, lane, ctas[k], &o, op.copy.from, "the source"))
            return false;
        if (!race_on(w)) continue;
        Chunks chunks;
        descriptor_chunks(&o, &chunks);
        tmem_race_operand(issuer, i, k, chunks.at, chunks.count);
        tmem_race_issue(issuer, i, ctas[k], tmem_column(op.copy.to), columns, groups,
                        f->spread ? TMEM_COPY_SPREAD : TMEM_COPY, 0);
    }
    uint64_t bytes = (uint64_t)f->rows * f->row_bytes;
    op.cost = (TensorCost){.work = bytes / 128, .latency = 64, .bytes = bytes};
    tcgen05_issue(&op);
    return !w->sm->faulted;
}

static Flow copy(Warp *w, const Insn *i, uint32_t mask) {
    return each_lane(w, i, mask, ((const CopyForm *)i->extra)->group, copy_lane_of);
}

// 16 bytes of the source as they come to tensor memory.
static void unpack(const CopyForm *f, const uint8_t from[CHUNK], uint8_t to[CHUNK]) {
    if (!f->unpack) memcpy(to, from, CHUNK);
    for (unsigned n = 0; n < CHUNK && f->unpack; n++) {
        unsigned bits = f->unpack, at = bits * n, two = from[at / 8];
        if (at / 8 + 1 < CHUNK) two |= (unsigned)from[at / 8 + 1] << 8;
        to[n] = (uint8_t)((two >> at % 8 & ((1u << bits) - 1)) << (bits == 4 ? 2 : 1));
    }
}

void tcgen05_execute_copy(const TensorOp *op) {
    const CopyForm *f = op->insn->extra;
    SharedOperand o = copy_operand(f, op->copy.from);
    Chunks chunks;
    Cta *ctas[2];
    descriptor_chunks(&o, &chunks);
    tcgen05_op_ctas(op, f->group, ctas);
    int per_row = f->row_bytes / CHUNK;
    for (int k = 0; k < f->group; k++) {
        Tmem *t = tmem_of(ctas[k]->sm);
        tcgen05_shared_written(op, ctas[k], &o, &chunks, f->unpack ? 2 * f->unpack : CHUNK,
                               "its source");
        for (int at = 0; at < chunks.count; at++) {
            uint8_t bytes[CHUNK];
            unpack(f, ctas[k]->shared + chunks.at[at], bytes);
            for (int c = 0, lane; (lane = copy_lane(f, at / per_row, c)) >= 0 && c < 4; c++)
                for (int n = 0; n < 4; n++) {
                    uint32_t column = tmem_column(op->copy.to) + (uint32_t)(at % per_row * 4 + n);
                    memcpy(&t->cell[column][lane], bytes + 4 * n, 4);
                    t->written[column][lane / 32] |= 1u << lane % 32;
                }
        }
    }
}

// ---- tcgen05.shift

// What nothing has written moves along as such.
void tmem_shift(Tmem *t, uint32_t column, int lane) {
    for (uint32_t c = column; c < column + SHIFT_COLUMNS; c++) {
        uint32_t *cell = &t->cell[c][lane], *written = &t->written[c][lane / 32];
        memmove(cell, cell + 1, (SHIFT_LANES - 1) * sizeof *cell);
        *written = *written >> 1 | (*written & 1u << (SHIFT_LANES - 1));
    }
}

static bool shift_lane_of(Warp *w, const Insn *i, int lane, Cta *const ctas[2]) {
    const ShiftForm *f = i->extra;
    uint32_t to = tcgen05_address_at(w, &f->at, lane), first = tmem_lane(to);
    TensorOp op = {.kind = TENSOR_SHIFT, .insn = i, .warp = w, .lane = lane, .copy.to = to};
    if (first % SHIFT_LANES) {
        finding(w, i, lane, FINDING_TENSOR,
                "Pass the address of lane 0, 32, 64 or 96: a shift moves 32 lanes.",
                "shifts tensor memory from lane %u on, which is no multiple of 32", first);
        return false;
    }
    TensorIssuer *issuer = tcgen05_issuer(w, lane);
    for (int k = 0; k < f->group; k++) {
        if (!tcgen05_columns(w, i, lane, ctas[k], to, SHIFT_COLUMNS, "shifts")) return false;
        tmem_race_issue(issuer, i, ctas[k], tmem_column(to), SHIFT_COLUMNS, 3u << first / 16,
                        TMEM_SHIFT, 0);
    }
    // Nobody has published its time: taken for that of a copy of as much.
    op.cost = (TensorCost){.work = SHIFT_LANES * SHIFT_COLUMNS * 4 / 128, .latency = 64};
    tcgen05_issue(&op);
    return !w->sm->faulted;
}

static Flow shift(Warp *w, const Insn *i, uint32_t mask) {
    return each_lane(w, i, mask, ((const ShiftForm *)i->extra)->group, shift_lane_of);
}

void tcgen05_execute_shift(const TensorOp *op) {
    const ShiftForm *f = op->insn->extra;
    Cta *ctas[2];
    tcgen05_op_ctas(op, f->group, ctas);
    for (int k = 0; k < f->group; k++)
        tmem_shift(tmem_of(ctas[k]->sm), tmem_column(op->copy.to), (int)tmem_lane(op->copy.to));
}

// ---- lowering

static const char *lower_copy(Lowering *l, const Match *m, Insn *i) {
    const PtxInstruction *p = m->ptx;
    CopyForm *f = kernel_alloc(l, sizeof *f);
    *f = (CopyForm){.group = ptx_has_modifier(p, "cta_group::2") ? 2 : 1};
    f->row_bytes = ptx_has_modifier(p, "128x256b") || ptx_has_modifier(p, "4x256b") ? 32 : 16;
    f->rows = 128;
    if (ptx_has_modifier(p, "4x256b")) {
        f->rows = 4;
        f->spread = true;
    } else if (ptx_has_modifier(p, "64x128b")) {
        f->rows = 64;
        f->copies = ptx_has_modifier(p, "warpx2::02_13") ? 1 : 2;
    } else if (ptx_has_modifier(p, "32x128b")) {
        f->rows = 32;
        f->copies = 4;
    }
    if (ptx_has_modifier(p, "b8x16")) f->unpack = ptx_has_modifier(p, "b4x16_p64") ? 4 : 6;
    const char *why = tcgen05_address(l, &p->operands[0], &f->to);
    if (!why) f->from = source_row(l, &p->operands[1], 64, &why);
    i->extra = f;
    i->run = copy;
    return why;
}

static const char *lower_shift(Lowering *l, const Match *m, Insn *i) {
    ShiftForm *f = kernel_alloc(l, sizeof *f);
    *f = (ShiftForm){.group = ptx_has_modifier(m->ptx, "cta_group::2") ? 2 : 1};
    i->extra = f;
    i->run = shift;
    return tcgen05_address(l, &m->ptx->operands[0], &f->at);
}

#define GROUP "cta_group::1|cta_group::2 "
#define COPY(mods)                                                                                 \
    {                                                                                              \
        .name = "tcgen05", .modifiers = "cp " GROUP mods, .operands = "m b64",                     \
        .pipe = PIPE_TENSOR, .lower = lower_copy                                                   \
    }
#define UNPACK " b8x16 b4x16_p64|b6x16_p32"

const Form tcgen05_copy_forms[] = {
    COPY("128x256b|128x128b|4x256b"),
    COPY("64x128b warpx2::02_13|warpx2::01_23"),
    COPY("32x128b warpx4"),
    COPY("128x256b|128x128b|4x256b" UNPACK),
    COPY("64x128b warpx2::02_13|warpx2::01_23" UNPACK),
    COPY("32x128b warpx4" UNPACK),
    {.name = "tcgen05",
     .modifiers = "shift " GROUP "down",
     .operands = "m",
     .pipe = PIPE_TENSOR,
     .lower = lower_shift},
    {0},
};
