// wgmma: matrix products of a warpgroup (PTX ISA 9.7.15). Here are the forms and what happens at an
// issue; the queue is machine/wgmma.c, the arithmetic execute/wgmma_multiply.c, what may be done to
// registers in between check/in_flight.c.
#include "softgpu/execute/wgmma.h"

#include "softgpu/check/findings.h"
#include "softgpu/check/in_flight.h"
#include "softgpu/execute/execute.h"

static bool checks_sync(const Warp *w) {
    return w->sm->gpu->settings->checks & CHECK_SYNC;
}

// Does a row of 64 bits hold the same value in all lanes of the mask?
static bool uniform(const Lane64 *lanes, uint32_t mask, uint64_t value) {
    uint64_t differ = 0;
    for (int l = 0; l < WARP_SIZE; l++) differ |= mask >> l & 1 ? lanes[l] ^ value : 0;
    return !differ;
}

// The descriptor in a row. false after a finding: its lanes must agree.
static bool read_descriptor(Warp *w, const Insn *i, Row r, uint32_t all, char name,
                            uint64_t *value) {
    const Lane64 *lanes = row(w, r);
    *value = lanes[__builtin_ctz(all)];
    if (!checks_sync(w) || uniform(lanes, all, *value)) return true;
    finding(w, i, -1, FINDING_DIVERGENT,
            "Make it from values that all threads share: not from the thread's index.",
            "the descriptor of %c differs between the lanes of the warp; all 128 threads of the "
            "warpgroup must pass the same one",
            name);
    return false;
}

// A tile that begins in the middle of its swizzle's pattern: an error when strict, else a note.
// false: an error.
static bool check_start(Warp *w, const Insn *i, const SharedOperand *o, char name, uint64_t bits) {
    bool strict = w->sm->gpu->settings->strict;
    if (!descriptor_starts_inside(o)) return true;
    if (!strict && finding_again(w, i, FINDING_LINT)) return true;
    finding(w, i, -1, strict ? FINDING_MISALIGNED : FINDING_LINT,
            "Align the tile to 1024, 512 or 256 bytes for 128B, 64B or 32B.",
            "the descriptor of %c, 0x%016llx: the start address lies in the middle of the "
            "swizzle's pattern (address bits 7-9 for 128B, 7-8 for 64B, 7 for 32B aren't 0)",
            name, (unsigned long long)bits);
    return !strict;
}

// Is this part of shared memory one that the instruction can read? false after a finding.
static bool check_operand(Warp *w, const Insn *i, bool is_a, uint64_t bits) {
    SharedOperand o = wgmma_operand(wgmma_form(i), is_a, bits);
    char name = is_a ? 'A' : 'B';
    const char *fault = descriptor_fault(&o);
    if (fault) {
        finding(w, i, -1, FINDING_MISALIGNED, NULL, "the descriptor of %c, 0x%016llx: %s", name,
                (unsigned long long)bits, fault);
        return false;
    }
    if (!check_start(w, i, &o, name, bits)) return false;
    if (descriptor_within(&o, SHARED_RESERVED, w->cta->shared_size)) return true;
    Chunks chunks;
    descriptor_chunks(&o, &chunks);
    static const char *const swizzles[] = {"no swizzle", "32B swizzle", "64B swizzle",
                                           "128B swizzle"};
    const Descriptor *d = &o.descriptor;
    finding(w, i, -1, FINDING_OUT_OF_BOUNDS,
            "Offsets in descriptors are bytes / 16; see which of LBO and SBO goes where for this "
            "layout.",
            "%c reaches over shared memory 0x%x to 0x%x, beyond the block's 0x%x to 0x%x: its "
            "descriptor says %s-major, %s, start 0x%x, LBO %u bytes, SBO %u bytes",
            name, chunks.low, chunks.high - 1, SHARED_RESERVED, w->cta->shared_size - 1,
            o.mn_major ? "MN" : "K", swizzles[d->swizzle], d->start, d->leading, d->stride);
    return false;
}

Flow wgmma_mma_async(Warp *w, const Insn *i, uint32_t mask) {
    const WgmmaForm *f = wgmma_form(i);
    uint32_t all;
    Flow flow = gather_warp(w, i, mask, &all);
    if (flow != FLOW_NEXT) return flow;
    uint64_t a = 0, b;
    if (f->a_shared && !read_descriptor(w, i, i->a, all, 'A', &a)) return FLOW_FAULT;
    if (!read_descriptor(w, i, i->b, all, 'B', &b)) return FLOW_FAULT;
    uint32_t scale = predicate(w, i->c) & all;
    if (scale && scale != all && checks_sync(w)) {
        finding(w, i, -1, FINDING_DIVERGENT, "Decide it by what all threads share.",
                "scale-d is true in some lanes and false in others; all 128 threads of the "
                "warpgroup must pass the same");
        return FLOW_FAULT;
    }
    if (f->a_shared && !check_operand(w, i, true, a)) return FLOW_FAULT;
    if (!check_operand(w, i, false, b)) return FLOW_FAULT;
    return wgmma_issue(w, i, a, b, scale != 0);
}

static Flow fence(Warp *w, const Insn *i, uint32_t mask) {
    uint32_t all;
    Flow flow = gather_warp(w, i, mask, &all);
    if (flow == FLOW_NEXT) in_flight_fence(w);
    return flow;
}
static Flow commit_group(Warp *w, const Insn *i, uint32_t mask) {
    uint32_t all;
    Flow flow = gather_warp(w, i, mask, &all);
    if (flow == FLOW_NEXT) wgmma_commit(w);
    return flow;
}
static Flow wait_group(Warp *w, const Insn *i, uint32_t mask) {
    uint32_t all;
    Flow flow = gather_warp(w, i, mask, &all);
    if (flow != FLOW_NEXT) return flow;
    return wgmma_wait(w, i, (uint32_t)i->imm) ? FLOW_NEXT : FLOW_RETRY;
}

// ---- lowering

// The shape and the types, in the order written.
static void read_wording(const PtxInstruction *p, WgmmaForm *f) {
    Element *next[] = {&f->d, &f->a, &f->b};
    int types = 0;
    MatrixShape s = {0, 0, 0};
    for (int k = 0; k < p->modifier_count; k++) {
        Element e = element_named(p->modifiers[k]);
        if (e && types < 3) *next[types++] = e;
        shape_named(p->modifiers[k], &s);
        f->saturate |= !strcmp(p->modifiers[k], "satfinite");
    }
    f->n = s.n;
    f->k = s.k;
}

// The immediate operand number k, which must be one of two.
static const char *immediate(const PtxInstruction *p, int k, int64_t low, int64_t high,
                             int64_t *value) {
    if (p->operands[k].kind != OPERAND_INTEGER) return "scales and transpositions must be numbers";
    *value = (int64_t)p->operands[k].bits;
    if (*value == low || *value == high) return NULL;
    return low < 0 ? "imm-scale-a and imm-scale-b are 1 or -1"
                   : "imm-trans-a and imm-trans-b are 0 or 1";
}

// What follows scale-d: signs for floating-point types, then major-ness for 16-bit ones.
static const char *read_immediates(const PtxInstruction *p, WgmmaForm *f) {
    bool floats = f->d != ELEMENT_S32, halves = element_bits(f->a) == 16;
    int count = floats ? 2 : 0;
    if (halves) count += f->a_shared ? 2 : 1;
    if (p->operand_count != 4 + count)
        return "wgmma.mma_async takes D, A, B, scale-d, then for floating-point types two scales, "
               "and for f16 and bf16 a transposition for each operand in shared memory";
    if (!floats) return NULL;
    int64_t scale_a, scale_b, trans;
    const char *why = immediate(p, 4, -1, 1, &scale_a);
    if (!why) why = immediate(p, 5, -1, 1, &scale_b);
    if (why || !halves) {
        f->negate = !why && scale_a * scale_b < 0;
        return why;
    }
    f->negate = scale_a * scale_b < 0;
    int at = 6;
    if (f->a_shared) {
        why = immediate(p, at++, 0, 1, &trans);
        f->a_mn_major = !why && trans;
    }
    if (!why) why = immediate(p, at, 0, 1, &trans);
    f->b_mn_major = !why && trans;
    return why;
}

static const char *lower_mma_async(Lowering *l, const Match *m, Insn *i) {
    const PtxInstruction *p = m->ptx;
    WgmmaForm *f = kernel_alloc(l, sizeof *f);
    *f = (WgmmaForm){0};
    read_wording(p, f);
    if (p->operand_count < 4) return "wgmma.mma_async takes at least D, A, B and scale-d";
    // Integers have fewer shapes.
    int n_step = f->d == ELEMENT_S32 && f->n > 32 ? 16 : 8;
    if (f->n < 8 || f->n > 256 || f->n % n_step)
        return "N goes from 8 to 256 in steps of 8, for integers from 32 on in steps of 16";
    f->a_shared = p->operands[1].kind != OPERAND_VECTOR;
    const char *why = read_immediates(p, f);
    if (why) return why;
    f->d_count = (uint16_t)(f->n / 2 / elements_packed(f->d));
    f->a_count = f->a_shared ? 0 : 4;
    Row *rows = kernel_alloc(l, (size_t)(f->d_count + f->a_count) * sizeof *rows);
    // D is read too, and stays the same register.
    why = fragment_rows(l, &p->operands[0], f->d_count, 32, false, rows);
    if (!why) why = fragment_rows(l, &p->operands[0], f->d_count, 32, true, rows);
    if (!why && !f->a_shared)
        why = fragment_rows(l, &p->operands[1], f->a_count, 32, false, rows + f->d_count);
    if (why) return why;
    if (f->a_shared) i->a = source_row(l, &p->operands[1], 64, &why);
    if (!why) i->b = source_row(l, &p->operands[2], 64, &why);
    if (!why) i->c = source_row(l, &p->operands[3], 1, &why);
    i->rows = rows;
    i->row_count = (uint16_t)(f->d_count + f->a_count);
    i->extra = f;
    i->run = wgmma_mma_async;
    i->flops = (uint32_t)(f->n * f->k); // of each of 128 threads: 2 x 64 n k in all
    return why;
}

static const char *lower_wait(Lowering *l, const Match *m, Insn *i) {
    (void)l;
    const PtxInstruction *p = m->ptx;
    if (p->operand_count != 1 || p->operands[0].kind != OPERAND_INTEGER)
        return "wgmma.wait_group takes a number";
    if (p->operands[0].bits >= GROUPS_FOLLOWED) return "softgpu follows at most 63 pending groups";
    i->imm = p->operands[0].bits;
    i->run = wait_group;
    return NULL;
}

#define MMA(shape, types)                                                                          \
    {                                                                                              \
        .name = "wgmma", .modifiers = "mma_async sync aligned " shape " " types,                   \
        .pipe = PIPE_TENSOR, .flags = INSN_ALIGNED, .lower = lower_mma_async                       \
    }

const Form wgmma_forms[] = {
    MMA("m64n#k16", "f16|f32 f16 f16"),
    MMA("m64n#k16", "f32 bf16 bf16"),
    MMA("m64n#k8", "f32 tf32 tf32"),
    MMA("m64n#k32", "f16|f32 e4m3|e5m2 e4m3|e5m2"),
    MMA("m64n#k32", "satfinite? s32 s8|u8 s8|u8"),
    MMA("m64n#k256", "s32 b1 b1 and popc"),
    {"wgmma", "fence sync aligned", "", fence, PIPE_CONTROL, .flags = INSN_ALIGNED},
    {"wgmma", "commit_group sync aligned", "", commit_group, PIPE_CONTROL, .flags = INSN_ALIGNED},
    {"wgmma", "wait_group sync aligned", .pipe = PIPE_CONTROL, .flags = INSN_ALIGNED,
     .lower = lower_wait},
    {0},
};
