// The bench for instruction handlers (bench.h).
#include "bench.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/check/definedness.h"
#include "softgpu/report/findings.h"

// The kernels of the bench know no variables or functions outside themselves.
static const PtxVariable *no_variable(Linker *l, const PtxModule *m, const char *name) {
    (void)l, (void)m, (void)name;
    return NULL;
}

static PtxFunction *no_function(Linker *l, const PtxModule *m, const char *name) {
    (void)l, (void)m, (void)name;
    return NULL;
}

static uint64_t no_address(Linker *l, const PtxVariable *v) {
    (void)l, (void)v;
    return 0;
}

static uint64_t no_id(Linker *l, const PtxFunction *f) {
    (void)l, (void)f;
    return 0;
}

static void none_taken(Linker *l, void (*visit)(void *, PtxFunction *), void *context) {
    (void)l, (void)visit, (void)context;
}

static void *zeroed(size_t size) {
    void *memory = aligned_alloc(64, (size + 63) & ~(size_t)63);
    ck_assert_ptr_nonnull(memory);
    return memset(memory, 0, (size + 63) & ~(size_t)63);
}

Bench *bench_open(const char *body, unsigned checks) {
    static Linker linker = {no_variable, no_function, no_address, no_id, none_taken, 0, false};
    char text[8192];
    int length = snprintf(text, sizeof text,
                          ".version 9.0\n.target sm_100a\n.address_size 64\n"
                          ".visible .entry bench(.param .align 16 .b8 bench_param_0[%d])\n{\n%s\n"
                          "ret;\n}\n",
                          BENCH_PARAMS, body);
    ck_assert_int_lt(length, (int)sizeof text);
    Bench *b = zeroed(sizeof *b);
    PtxError error = {0};
    b->module = ptx_index(text, (size_t)length, &error);
    ck_assert_msg(b->module != NULL, "line %u: %s", error.line, error.message);
    PtxFunction *entry = ptx_find_function(b->module, "bench");
    b->kernel = kernel_lower(entry, &linker, 0, &error);
    ck_assert_msg(b->kernel != NULL, "line %u: %s", error.line, error.message);

    b->settings.checks = checks;
    b->gpu.settings = &b->settings;
    b->gpu.memory = global_new(64 << 20, checks & CHECK_INIT);
    b->sm.gpu = &b->gpu;
    b->sm.launch = &b->state;
    random_seed(&b->sm.random, 1, 1);
    b->launch.kernel = b->kernel;
    b->launch.grid[0] = b->launch.grid[1] = b->launch.grid[2] = 1;
    b->launch.block[0] = 8, b->launch.block[1] = 4, b->launch.block[2] = 1;
    b->state.launch = &b->launch;
    b->state.gpu = &b->gpu;
    b->state.params = b->params;
    b->cta.launch = &b->state;
    b->cta.sm = &b->sm;
    b->cluster = (Cluster){.ctas = {&b->cta}, .size = 1, .running = 1};
    b->cta.cluster = &b->cluster;
    b->cta.index[0] = 3;
    b->cta.shared = zeroed(SHARED_RESERVED + BENCH_SHARED);
    b->cta.shared_size = SHARED_RESERVED + BENCH_SHARED;
    b->cta.shared_written = checks & CHECK_INIT ? zeroed(b->cta.shared_size) : NULL;
    Warp *w = &b->warp;
    w->cta = &b->cta;
    w->sm = &b->sm;
    w->kernel = b->kernel;
    w->constants = b->kernel->constants;
    w->stack_size = b->kernel->functions[0].frame_size + 64;
    w->frame = w->stack = zeroed(w->stack_size);
    w->live = w->active = w->exists = FULL_MASK;
    w->local = zeroed(32 * BENCH_LOCAL);
    w->local_stride = BENCH_LOCAL;
    w->local_written = checks & CHECK_INIT ? zeroed(32 * BENCH_LOCAL / 8) : NULL;
    findings_reset();
    findings_configure(&b->settings);
    findings_begin_launch();
    return b;
}

void bench_close(Bench *b) {
    findings_merge(&b->sm);
    findings_reset();
    global_delete(b->gpu.memory);
    kernel_free(b->kernel);
    ptx_free(b->module);
    free(b->cta.shared);
    free(b->cta.shared_written);
    definedness_free(&b->warp);
    free(b->warp.frame);
    free(b->warp.local);
    free(b->warp.local_written);
    free(b);
}

const Insn *bench_insn(Bench *b, const char *text) {
    for (uint32_t k = 0; k < b->kernel->code_count; k++)
        if (b->kernel->texts[k] && !strcmp(b->kernel->texts[k], text) &&
            b->kernel->code[k].run != read_special)
            return &b->kernel->code[k];
    ck_abort_msg("no instruction '%s'", text);
    return NULL;
}

Flow bench_run(Bench *b, const Insn *i, uint32_t mask) {
    b->warp.pc = i;
    return i->run(&b->warp, i, mask);
}

void bench_addresses(Bench *b, const Insn *i, const uint64_t address[32]) {
    void *base = row(&b->warp, i->a);
    for (int l = 0; l < WARP_SIZE; l++) {
        if (i->flags & INSN_WIDE_BASE)
            ((uint64_t *)base)[l] = address[l];
        else
            ((uint32_t *)base)[l] = (uint32_t)address[l];
    }
}

void bench_stride(Bench *b, const Insn *i, uint64_t first, int64_t stride) {
    uint64_t address[32];
    for (int l = 0; l < WARP_SIZE; l++) address[l] = first + (uint64_t)(l * stride);
    bench_addresses(b, i, address);
}

int bench_findings(Bench *b, const Finding **last) {
    findings_merge(&b->sm);
    int count = 0;
    while (findings_get(count)) count++;
    if (last) *last = findings_get(count - 1);
    return count;
}
