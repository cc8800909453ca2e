// tcgen05.mma: forms, lowering, and what is checked at an issue (PTX ISA 9.7.16.10). One thread
// issues; each that does issues an operation of its own. What they do: tcgen05_multiply.c.
#include "softgpu/check/findings.h"
#include "softgpu/check/tmem_race.h"
#include "softgpu/execute/tcgen05.h"
#include "softgpu/timing/latencies.h"

static const MmaForm *mma_form(const Insn *i) {
    return i->extra;
}

// ---- checks at the issue

// One issue of one lane.
typedef struct {
    Warp *w;
    const Insn *i;
    int lane;
    const MmaForm *form;
    MmaShape shape;
    Cta *ctas[2]; // own, peer
    TensorOp op;
} Issue;

// The lanes, by groups of 16, that an accumulator takes.
static uint32_t lane_groups(const Accumulator *d, const MmaShape *s) {
    uint32_t groups = 0;
    for (int block = 0; block < d->rows / 16; block++)
        for (int n = 0; n < s->n; n += d->fold)
            groups |= 1u << (d->first + block * d->row_lanes + n / d->fold * d->fold_lanes) / 16;
    return groups;
}

static bool check_start(const Issue *s, uint32_t address, const Accumulator *d, const char *what) {
    uint32_t lane = tmem_lane(address);
    if (d->row_lanes == 32 && lane != (uint32_t)d->first && (lane == 0 || lane == 16)) {
        finding(s->w, s->i, s->lane, FINDING_TENSOR,
                "Let all begin at lane 0, or all at lane 16 (bits 16-31 of the address).",
                "%s begins at lane %u of tensor memory and D at lane %d: with M = %d they take the "
                "same half of the lanes",
                what, lane, d->first, s->shape.m);
        return false;
    }
    if (lane == 0 || (lane == 16 && d->row_lanes == 32)) return true;
    finding(s->w, s->i, s->lane, FINDING_TENSOR,
            "Pass the address of the first lane: bits 16-31 are 0 (or 16 for M = 64).",
            "%s begins at lane %u of tensor memory (address 0x%08x); with M = %d it begins at "
            "lane 0%s",
            what, lane, address, s->shape.m, d->row_lanes == 32 ? " or 16" : "");
    return false;
}

// The metadata's address names a pair of columns, and so is even.
static bool check_metadata(const Issue *s, const Accumulator *d) {
    uint32_t address = s->op.mma.metadata;
    if (!check_start(s, address, d, "the metadata")) return false;
    if (tmem_column(address) % 2 == 0) return true;
    finding(s->w, s->i, s->lane, FINDING_TENSOR,
            "Pass an even column; f16 and tf32 choose the odd one by bits 0-1 of the instruction "
            "descriptor.",
            "takes its metadata from column %u: the address names a pair of columns, which begins "
            "at an even one",
            tmem_column(address));
    return false;
}

// A range of columns that a product reads.
typedef struct {
    uint32_t column, count;
    const char *what;
} Range;

// Those beside D, of which A and the metadata lie in lanes as D does; how many there are of each.
static int ranges_of(const Issue *s, const Accumulator *d, Range ranges[4], int *as_d) {
    const MmaForm *f = s->form;
    const TensorMma *o = &s->op.mma;
    int n = 0;
    if (f->a_tensor) ranges[n++] = (Range){tmem_column((uint32_t)o->a), 8, "takes A from"};
    if (f->sparse)
        ranges[n++] = (Range){metadata_first(&s->shape, tmem_column(o->metadata)),
                              (uint32_t)metadata_columns(f), "takes metadata from"};
    *as_d = n;
    if (!f->block) return n;
    uint32_t rows = (uint32_t)(d->rows + 31) / 32, columns = (uint32_t)(s->shape.n + 31) / 32;
    ranges[n++] = (Range){tmem_column(o->scale_a), rows, "takes scales from"};
    ranges[n++] = (Range){tmem_column(o->scale_b), columns, "takes scales from"};
    return n;
}

// Tensor memory that is read or written, in each CTA of the group.
static bool check_tensor(Issue *s) {
    const MmaForm *f = s->form;
    const TensorMma *o = &s->op.mma;
    Accumulator d = mma_accumulator(f, &s->shape, o->d);
    Range ranges[4];
    int as_d, count = ranges_of(s, &d, ranges, &as_d);
    if (!check_start(s, o->d, &d, "D")) return false;
    if (f->a_tensor && !check_start(s, (uint32_t)o->a, &d, "A")) return false;
    if (f->sparse && !check_metadata(s, &d)) return false;
    if (f->block && (!check_start(s, o->scale_a, &d, "the scales of A") ||
                     !check_start(s, o->scale_b, &d, "the scales of B")))
        return false;
    for (int k = 0; k < f->group; k++) {
        Cta *c = s->ctas[k];
        if (!tcgen05_columns(s->w, s->i, s->lane, c, o->d, (uint32_t)d.fold, "has D in"))
            return false;
        for (int r = 0; r < count; r++)
            if (!tcgen05_columns(s->w, s->i, s->lane, c, ranges[r].column, ranges[r].count,
                                 ranges[r].what))
                return false;
    }
    return true;
}

// Do the 64 bytes of k that a sparse product takes of B lie in its swizzle's lines?
static bool check_depth(const Issue *s, const SharedOperand *o) {
    unsigned line = o->descriptor.swizzle == SWIZZLE_32B ? 32 : 64;
    if (!o->descriptor.swizzle || o->mn_major || (unsigned)o->depth * o->element <= line)
        return true;
    finding(s->w, s->i, s->lane, FINDING_TENSOR,
            "Give B a wider swizzle (bits 61-63), none, or its other major-ness.",
            "takes %u bytes of k of each column of B, K-major, whose swizzle has lines of 32",
            (unsigned)o->depth * o->element);
    return false;
}

static bool check_shared_operands(Issue *s) {
    for (int k = 0; k < s->form->group; k++) {
        SharedOperand a = mma_operand(s->form, &s->shape, true, s->op.mma.a);
        SharedOperand b = mma_operand(s->form, &s->shape, false, s->op.mma.b);
        if (!s->form->a_tensor &&
            !tcgen05_descriptor(s->w, s->i, s->lane, s->ctas[k], &a, s->op.mma.a, "A"))
            return false;
        if (!tcgen05_descriptor(s->w, s->i, s->lane, s->ctas[k], &b, s->op.mma.b, "B") ||
            !check_depth(s, &b))
            return false;
    }
    return true;
}

static void enter_shared(Issue *s, TensorIssuer *issuer, bool is_a) {
    SharedOperand o = mma_operand(s->form, &s->shape, is_a, is_a ? s->op.mma.a : s->op.mma.b);
    Chunks chunks;
    descriptor_chunks(&o, &chunks);
    for (int k = 0; k < s->form->group; k++)
        tmem_race_operand(issuer, s->i, k, chunks.at, chunks.count);
}

// Tells the race check.
static void enter(Issue *s) {
    const MmaForm *f = s->form;
    const TensorMma *o = &s->op.mma;
    TensorIssuer *issuer = tcgen05_issuer(s->w, s->lane);
    Accumulator d = mma_accumulator(f, &s->shape, o->d);
    uint32_t groups = lane_groups(&d, &s->shape);
    Range ranges[4];
    int as_d, count = ranges_of(s, &d, ranges, &as_d);
    if (!race_on(s->w)) return;
    if (!f->a_tensor) enter_shared(s, issuer, true);
    enter_shared(s, issuer, false);
    // Two products on the same D with the same shape follow each other.
    uint64_t chain = o->d | (uint64_t)s->shape.m << 32 | (uint64_t)s->shape.n << 42 |
                     (uint64_t)s->shape.d << 52 | (uint64_t)f->sparse << 54 | 1ull << 63;
    for (int k = 0; k < f->group; k++) {
        for (int r = 0; r < count; r++)
            tmem_race_issue(issuer, s->i, s->ctas[k], ranges[r].column, ranges[r].count,
                            r < as_d ? groups : 0xff, TMEM_OPERAND, chain);
        if (f->shifts_a)
            tmem_race_issue(issuer, s->i, s->ctas[k], ranges[0].column, SHIFT_COLUMNS, groups,
                            TMEM_SHIFT_A, chain);
        tmem_race_issue(issuer, s->i, s->ctas[k], tmem_column(o->d), (uint32_t)d.fold, groups,
                        TMEM_ACCUMULATE, chain);
    }
}

// What it takes: work by the rows and columns, operands at 128 bytes a clock, and a tail that
// timing/latencies.c has. All kinds take the same for 32 bytes of A's rows. So, by assumption, does
// a sparse A, of twice the K: data sheets give it twice the rate. B then brings twice the bytes. Of
// its operations those count that are done, half of 2 M N K. That .ashift moves A is taken to cost
// as much as tcgen05.shift, all quarters at once.
static TensorCost cost_of(const Issue *s) {
    const MmaForm *f = s->form;
    const GpuTiming *t = timing_of(s->w->sm->gpu->figures.name);
    int n = s->shape.n, rows = s->shape.m / f->group, pair = f->group - 1;
    bool half = rows < 128;
    int work = pair && half ? n / 4 : n / 2;
    int b_bytes = (f->sparse ? 64 : 32) * n / f->group;
    int bytes = b_bytes + (f->a_tensor ? 0 : 32 * rows);
    int from_issue = t->tcgen05_tail[pair][f->a_tensor ? 2 : half] + work - t->tcgen05_ends;
    int wavefronts = bytes / 128, cycles = work > wavefronts ? work : wavefronts;
    int latency = from_issue - cycles - t->tcgen05_commit;
    if (f->shifts_a) work += SHIFT_LANES * SHIFT_COLUMNS * 4 / 128;
    return (TensorCost){.work = (uint64_t)work,
                        .latency = latency > 0 ? (uint64_t)latency : 0,
                        .flops = 2ull * (uint64_t)s->shape.m * (uint64_t)n * (uint64_t)s->shape.a_k,
                        .bytes = (uint64_t)bytes};
}

static bool issue(Issue *s) {
    const MmaForm *f = s->form;
    Warp *w = s->w;
    TensorMma *o = &s->op.mma;
    o->d = tcgen05_address_at(w, &f->d, s->lane);
    o->a = f->a_tensor ? tcgen05_address_at(w, &f->a, s->lane)
                       : ((const Lane64 *)row(w, f->a_descriptor))[s->lane];
    o->b = ((const Lane64 *)row(w, f->b_descriptor))[s->lane];
    o->idesc = ((const Lane32 *)row(w, f->instruction))[s->lane];
    if (f->sparse) o->metadata = tcgen05_address_at(w, &f->metadata, s->lane);
    if (f->block) {
        o->scale_a = tcgen05_address_at(w, &f->scale_a, s->lane);
        o->scale_b = tcgen05_address_at(w, &f->scale_b, s->lane);
    }
    for (int k = 0; k < f->disabled_count; k++)
        o->disabled[k] = ((const Lane32 *)row(w, f->disabled[k]))[s->lane];
    o->accumulates = predicate(w, f->enable) >> s->lane & 1;
    char why[200];
    if (!mma_shape(f, o->idesc, &s->shape, why, sizeof why)) {
        finding(w, s->i, s->lane, FINDING_TENSOR,
                "See the table of the instruction descriptor of this kind.",
                "the instruction descriptor 0x%08x can't be: %s", o->idesc, why);
        return false;
    }
    if (f->zero_mask != ROW_NONE && ((const Lane64 *)row(w, f->zero_mask))[s->lane] >> 39 & 1) {
        finding(w, s->i, s->lane, FINDING_UNSUPPORTED, NULL,
                "masks columns of B (bit 39 of the zero-column mask): that is not built");
        return false;
    }
    if (f->group == 1 && !f->stationary && s->shape.m == 128 && s->shape.n % 16 &&
        !finding_again(w, s->i, FINDING_LINT))
        finding(w, s->i, s->lane, FINDING_LINT, "Use a multiple of 16.",
                "N = %d with M = 128: not all of PTX's texts allow steps of 8", s->shape.n);
    if (!check_tensor(s) || !check_shared_operands(s)) return false;
    enter(s);
    s->op.cost = cost_of(s);
    tcgen05_issue(&s->op);
    return !w->sm->faulted;
}

static Flow multiply(Warp *w, const Insn *i, uint32_t mask) {
    Issue s = {.w = w, .i = i, .form = mma_form(i)};
    if (!tcgen05_ctas(w, i, s.form->group, s.ctas)) return FLOW_FAULT;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        s.lane = __builtin_ctz(rest);
        s.op = (TensorOp){.kind = TENSOR_MMA, .insn = i, .warp = w, .lane = s.lane};
        if (!issue(&s)) return FLOW_FAULT;
    }
    return FLOW_NEXT;
}

// ---- lowering

static MmaKind kind_of(const PtxInstruction *p) {
    static const char *const kinds[] = {"kind::f16",      "kind::tf32", "kind::f8f6f4",  "kind::i8",
                                        "kind::mxf8f6f4", "kind::mxf4", "kind::mxf4nvf4"};
    int k = 0;
    while (!ptx_has_modifier(p, kinds[k])) k++; // the form has one of them
    return (MmaKind)k;
}

// Elements of K that share a scale. 0: this kind has no such.
static uint8_t block_of(const PtxInstruction *p, MmaKind kind) {
    bool by16 = ptx_has_modifier(p, "scale_vec::4X") || ptx_has_modifier(p, "block16");
    bool one = ptx_has_modifier(p, "scale_vec::1X"), two = ptx_has_modifier(p, "scale_vec::2X");
    bool by32 = ptx_has_modifier(p, "block32");
    if (kind == KIND_MXF8F6F4) return by16 || two ? 0 : 32;
    if (kind == KIND_MXF4) return by16 || one ? 0 : 32;
    return by16 ? 16 : two || by32 ? 32 : 0;
}

// What stands behind the instruction descriptor (and the scales): lanes of D to leave alone, the
// predicate, and a scale for D or, with .ws, a mask.
static const char *lower_rest(Lowering *l, const PtxInstruction *p, int at, MmaForm *f) {
    const char *why = NULL;
    const PtxOperand *o = &p->operands[at];
    if (at < p->operand_count && o->kind == OPERAND_VECTOR) {
        if (f->stationary || f->block) return "disable-output-lane is for plain products";
        f->disabled_count = (uint8_t)(4 * f->group);
        if (o->count != f->disabled_count)
            return "disable-output-lane takes 4 registers, with .cta_group::2 8";
        for (int k = 0; k < o->count && !why; k++)
            f->disabled[k] = source_row(l, &o->elements[k], 32, &why);
        if (why) return why;
        at++;
        o++;
    }
    if (at >= p->operand_count) return "tcgen05.mma takes a predicate, enable-input-d";
    if (o->kind == OPERAND_INTEGER)
        f->enable = constant_row(l, o->bits != 0, 1);
    else
        f->enable = source_row(l, o, 1, &why);
    if (why || ++at == p->operand_count) return why;
    o++;
    if (f->stationary) {
        f->zero_mask = source_row(l, o, 64, &why);
        return why;
    }
    if (f->kind > KIND_TF32) return "scale-input-d is for f16 and tf32";
    if (o->kind != OPERAND_INTEGER || o->bits > 15) return "scale-input-d is a number up to 15";
    f->scale = (uint8_t)o->bits;
    return at + 1 == p->operand_count ? NULL : "too many operands";
}

static const char *lower_mma(Lowering *l, const Match *m, Insn *i) {
    const PtxInstruction *p = m->ptx;
    MmaForm *f = kernel_alloc(l, sizeof *f);
    *f = (MmaForm){.kind = kind_of(p),
                   .group = ptx_has_modifier(p, "cta_group::2") ? 2 : 1,
                   .stationary = ptx_has_modifier(p, "ws"),
                   .sparse = ptx_has_modifier(p, "sp"),
                   .shifts_a = ptx_has_modifier(p, "ashift"),
                   .zero_mask = ROW_NONE,
                   .a = {ROW_NONE, 0},
                   .a_descriptor = ROW_NONE};
    bool scaled = f->kind >= KIND_MXF8F6F4;
    int next = f->sparse ? 4 : 3; // operand: the instruction descriptor
    if (p->operand_count < next + 1 + (scaled ? 3 : 1))
        return "tcgen05.mma takes D, A, B, with .sp metadata, an instruction descriptor, with "
               ".block_scale two addresses of scales, and a predicate";
    f->block = scaled ? block_of(p, f->kind) : 0;
    if (scaled && !f->block) return "this kind has no scales for such blocks";
    const char *why = tcgen05_address(l, &p->operands[0], &f->d);
    f->a_tensor = p->operands[1].kind == OPERAND_ADDRESS;
    if (f->shifts_a && !f->a_tensor) return ".ashift is for A in tensor memory";
    if (!why && f->a_tensor) why = tcgen05_address(l, &p->operands[1], &f->a);
    if (!why && !f->a_tensor) f->a_descriptor = source_row(l, &p->operands[1], 64, &why);
    if (!why) f->b_descriptor = source_row(l, &p->operands[2], 64, &why);
    if (!why && f->sparse) why = tcgen05_address(l, &p->operands[3], &f->metadata);
    if (!why) f->instruction = source_row(l, &p->operands[next++], 32, &why);
    if (!why && scaled) why = tcgen05_address(l, &p->operands[next++], &f->scale_a);
    if (!why && scaled) why = tcgen05_address(l, &p->operands[next++], &f->scale_b);
    if (!why) why = lower_rest(l, p, next, f);
    i->extra = f;
    i->run = multiply;
    return why;
}

#define GROUP "cta_group::1|cta_group::2 "
#define COLLECT(m)                                                                                 \
    "collector::" m "::fill|collector::" m "::use|collector::" m "::lastuse|collector::" m         \
    "::discard"
#define MMA(mods)                                                                                  \
    { .name = "tcgen05", .modifiers = "mma " mods, .pipe = PIPE_TENSOR, .lower = lower_mma }
#define COPY(mods)                                                                                 \
    {                                                                                              \
        .name = "tcgen05", .modifiers = "cp " GROUP mods, .operands = "m b64",                     \
        .pipe = PIPE_TENSOR, .lower = lower_copy                                                   \
    }

#define PLAIN     "kind::f16|kind::tf32|kind::f8f6f4|kind::i8 "
#define COLLECT_B COLLECT("b0") "|" COLLECT("b1") "|" COLLECT("b2") "|" COLLECT("b3") "?"

const Form tcgen05_mma_forms[] = {
    MMA("sp? " GROUP PLAIN COLLECT("a") "?"),
    MMA("sp? " GROUP PLAIN "ashift collector::a::lastuse|collector::a::discard?"),
    MMA("sp? " GROUP "kind::mxf8f6f4 block_scale scale_vec::1X|block32? " COLLECT("a") "?"),
    MMA("sp? " GROUP "kind::mxf4 block_scale scale_vec::2X|block32? " COLLECT("a") "?"),
    MMA("sp? " GROUP
        "kind::mxf4nvf4 block_scale scale_vec::2X|scale_vec::4X|block16|block32 " COLLECT("a") "?"),
    MMA("ws sp? cta_group::1 " PLAIN COLLECT_B),
    {0},
};
