// Small kernels, built by hand, for tests of the machine: instructions with handlers of this file
// and of execute/control.c. What a kernel does is seen in `memory` and in a log of masks.
//
// Rows of 32 bits are R(0) to R(15), predicates P(0) and so on. Targets and joins of branches are
// numbers of instructions.
#ifndef SMALL_KERNEL_H
#define SMALL_KERNEL_H

#include <check.h>
#include <string.h>

#include "softgpu/check/findings.h"
#include "softgpu/execute/control.h"
#include "softgpu/execute/form.h"
#include "softgpu/machine/machine.h"

// ---- building kernels

enum { CODE_MAX = 64, ROWS = 16, PREDICATES = 2048, FRAME = 4096 };

// Row n of 32 bits, and predicate n.
#define R(n) ((Row)(128 * (n)))
#define P(n) ((Row)(PREDICATES + 4 * (n)))

static Insn code[CODE_MAX];
static Branch branches[CODE_MAX];
static Call calls[CODE_MAX];
static const char *texts[CODE_MAX];
static CodeFunction functions[4];
static Kernel kernel;
static uint8_t constants[64] __attribute__((aligned(64)));

static inline void kernel_begin(void) {
    memset(code, 0, sizeof code);
    memset(branches, 0, sizeof branches);
    memset(calls, 0, sizeof calls);
    memset(functions, 0, sizeof functions);
    kernel = (Kernel){.name = "test",
                      .code = code,
                      .texts = texts,
                      .constants = constants,
                      .functions = functions,
                      .function_count = 1,
                      .registers = 32,
                      .shared_dynamic = SHARED_RESERVED};
    functions[0] = (CodeFunction){.entry = code, .frame_size = FRAME};
}

static inline Insn *emit(Handler *run, Row d, Row a, uint64_t imm) {
    uint32_t k = kernel.code_count++;
    ck_assert_uint_lt(k, CODE_MAX);
    texts[k] = "test.instruction";
    code[k] = (Insn){.run = run,
                     .d = d,
                     .a = a,
                     .b = ROW_NONE,
                     .c = ROW_NONE,
                     .e = ROW_NONE,
                     .guard = ROW_NONE,
                     .imm = imm,
                     .index = k,
                     .pipe = PIPE_ALU};
    return &code[k];
}

static inline Insn *guarded(Insn *i, Row guard, bool negated) {
    i->guard = guard;
    i->guard_negated = negated;
    return i;
}

static inline Handler *control(const char *name) {
    for (const Form *f = control_forms; f->name; f++)
        if (!strcmp(f->name, name)) return f->run;
    ck_abort_msg("no form %s", name);
    return NULL;
}

// A branch; targets and joins are numbers of instructions, -1 for no join.
static inline Insn *emit_branch(int target, int join) {
    Insn *i = emit(control("bra"), ROW_NONE, ROW_NONE, 0);
    Branch *b = &branches[i->index];
    b->target = &code[target];
    b->join = join < 0 ? NULL : &code[join];
    i->extra = b;
    if (target <= (int)i->index) i->flags |= INSN_BACKWARD;
    return i;
}

static inline void emit_exit(void) {
    emit(control("exit"), ROW_NONE, ROW_NONE, 0);
}

// ---- handlers

typedef uint32_t __attribute__((may_alias)) Lane;

#define EACH(mask)                                                                                 \
    for (uint32_t m_ = (mask), l = 0; m_ && (l = (uint32_t)__builtin_ctz(m_), 1); m_ &= m_ - 1)

static inline Flow set_lane(Warp *w, const Insn *i, uint32_t mask) {
    Lane *d = row(w, i->d);
    EACH(mask) d[l] = l;
    return FLOW_NEXT;
}
static inline Flow set_warp(Warp *w, const Insn *i, uint32_t mask) {
    Lane *d = row(w, i->d);
    EACH(mask) d[l] = (uint32_t)w->cta->linear * 1000 + (uint32_t)w->id;
    return FLOW_NEXT;
}
static inline Flow set(Warp *w, const Insn *i, uint32_t mask) {
    Lane *d = row(w, i->d);
    EACH(mask) d[l] = (uint32_t)i->imm;
    return FLOW_NEXT;
}
// d = a + imm
static inline Flow add(Warp *w, const Insn *i, uint32_t mask) {
    Lane *d = row(w, i->d), *a = row(w, i->a);
    EACH(mask) d[l] = a[l] + (uint32_t)i->imm;
    return FLOW_NEXT;
}
// d = d + a
static inline Flow add_row(Warp *w, const Insn *i, uint32_t mask) {
    Lane *d = row(w, i->d), *a = row(w, i->a);
    EACH(mask) d[l] += a[l];
    return FLOW_NEXT;
}
static inline void put(Warp *w, Row p, uint32_t value, uint32_t mask) {
    Lane *to = row(w, p);
    *to = (*to & ~mask) | (value & mask);
}
// predicate d = a < imm, unsigned
static inline Flow less(Warp *w, const Insn *i, uint32_t mask) {
    Lane *a = row(w, i->a);
    uint32_t value = 0;
    EACH(mask) value |= (uint32_t)(a[l] < (uint32_t)i->imm) << l;
    put(w, i->d, value, mask);
    return FLOW_NEXT;
}
// predicate d = a < b
static inline Flow less_row(Warp *w, const Insn *i, uint32_t mask) {
    Lane *a = row(w, i->a), *b = row(w, i->b);
    uint32_t value = 0;
    EACH(mask) value |= (uint32_t)(a[l] < b[l]) << l;
    put(w, i->d, value, mask);
    return FLOW_NEXT;
}

// What the kernel tells the test: masks in the order met, and words of memory.
static uint32_t log_mask[4096], log_tag[4096];
static int logged;
static uint32_t memory[1 << 16];

static inline Flow note(Warp *w, const Insn *i, uint32_t mask) {
    (void)w;
    ck_assert_int_lt(logged, 4096);
    log_mask[logged] = mask;
    log_tag[logged++] = (uint32_t)i->imm;
    return FLOW_NEXT;
}
// memory[thread] = a
static inline Flow store(Warp *w, const Insn *i, uint32_t mask) {
    Lane *a = row(w, i->a);
    EACH(mask) memory[w->cta->linear * w->cta->thread_count + (uint32_t)w->id * 32 + l] = a[l];
    w->stores++;
    w->sm->changes++;
    return FLOW_NEXT;
}
// memory[imm] = a of one lane of the mask
static inline Flow store_at(Warp *w, const Insn *i, uint32_t mask) {
    if (must_defer(w)) return FLOW_DEFER;
    Lane *a = row(w, i->a);
    EACH(mask) memory[i->imm] = a[l];
    w->stores++;
    w->sm->changes++;
    return FLOW_NEXT;
}
static inline Flow load_at(Warp *w, const Insn *i, uint32_t mask) {
    if (must_defer(w)) return FLOW_DEFER;
    Lane *d = row(w, i->d);
    EACH(mask) d[l] = memory[i->imm];
    return FLOW_NEXT;
}
// d = compare-and-swap(memory[imm], 0, 1), lane after lane
static inline Flow take_lock(Warp *w, const Insn *i, uint32_t mask) {
    if (must_defer(w)) return FLOW_DEFER;
    Lane *d = row(w, i->d);
    EACH(mask) {
        d[l] = memory[i->imm];
        if (d[l]) continue;
        memory[i->imm] = 1;
        w->stores++;
        w->sm->changes++;
    }
    return FLOW_NEXT;
}
// A collective of the lanes imm: notes who executed it, in d.
static inline Flow gather(Warp *w, const Insn *i, uint32_t mask) {
    uint32_t all;
    if (!warp_gather(w, i, mask, (uint32_t)i->imm, &all)) return FLOW_RETRY;
    Lane *d = row(w, i->d);
    EACH(all) d[l] = all;
    return FLOW_NEXT;
}
// A plain barrier of the whole block, of this file's own making (generation counting).
static inline Flow wait_all(Warp *w, const Insn *i, uint32_t mask) {
    uint32_t all;
    if (!warp_gather(w, i, mask, FULL_MASK, &all)) return FLOW_RETRY;
    Barrier *b = &w->cta->barriers[15];
    b->expected = (uint32_t)w->cta->warp_count;
    if (++b->arrived < b->expected) {
        warp_block(w, BLOCK_BARRIER, 15, 0);
        return FLOW_WAIT;
    }
    b->expected = b->arrived = 0;
    w->sm->changes++;
    for (int k = 0; k < w->cta->warp_count; k++) warp_wake(&w->cta->warps[k], BLOCK_BARRIER, 15);
    return FLOW_NEXT;
}
static inline Flow sleep_for(Warp *w, const Insn *i, uint32_t mask) {
    (void)mask;
    warp_block(w, BLOCK_SLEEP, 0, w->sm->time + i->imm);
    return FLOW_WAIT;
}

// ---- running

static Settings options;
static GpuFigures figures;

static inline void set_up(void) {
    memset(memory, 0, sizeof memory);
    logged = 0;
    // Findings are looked at here, not printed.
    options = (Settings){.threads = 1, .report_json = true};
    figures = (GpuFigures){.name = "test",
                           .full_name = "test",
                           .sms = 4,
                           .gpc_sizes = {4},
                           .gpcs = 1,
                           .clock_ghz = 1,
                           .boost_ghz = 1,
                           .memory_bytes = 1 << 24,
                           .hbm_bytes_per_s = 1e12,
                           .l2_bytes = 1 << 20,
                           .l2_bytes_per_clk = 1000,
                           .l1_bytes = 256 << 10,
                           .shared_per_sm = 228 << 10,
                           .shared_per_cta = 227 << 10,
                           .shared_reserved = 1024,
                           .registers_per_sm = 65536,
                           .threads_per_sm = 2048,
                           .ctas_per_sm = 32,
                           .fma_lanes = 128,
                           .alu_lanes = 64,
                           .imad_lanes = 64,
                           .fp64_lanes = 64,
                           .mufu_lanes = 16,
                           .convert_lanes = 16,
                           .lsu_lanes = 32,
                           .shared_bytes_per_clk = 128,
                           .tensor_flops_f16 = 4096,
                           .tensor_flops_tf32 = 2048,
                           .tensor_flops_fp8 = 8192,
                           .tensor_flops_f64 = 128,
                           .launch_us = 1,
                           .pcie_bytes_per_s = 1e10};
    findings_reset();
}

static KernelStats stats;

static inline int run(uint32_t blocks, uint32_t threads) {
    Gpu *gpu = gpu_new(&options, &figures);
    Launch launch = {
        .kernel = &kernel, .grid = {blocks, 1, 1}, .block = {threads, 1, 1}, .cluster = {1, 1, 1}};
    int error = gpu_launch(gpu, &launch, &stats);
    gpu_delete(gpu);
    return error;
}

#endif
