// Small kernels with tcgen05 in PTX: one block, or a cluster of two, that fills shared memory from
// `image`, allocates tensor memory, runs some text, frees it, and leaves registers in `out` and
// tensor memory in `cells`.
//
// The text finds: %t the thread's number in its block, %x0 … the registers read from `in`, %tm the
// address of the block's tensor memory (of `columns` columns), %own the same with the lane of the
// warp's quarter, %a, %b, %c (64 bits) and %i, %j (32 bits) from `operand` and `number`, %one true
// in thread 0 of each block, %lead true in thread 0 of the first one, %on and %off; mbarriers bar,
// bar + 8, bar + 16, bar + 24 for one arrival each, and the image at address SMEM.
#ifndef SOFTGPU_TEST_TENSOR_KERNEL_H
#define SOFTGPU_TEST_TENSOR_KERNEL_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "built_kernel.h"

#include "softgpu/machine/tmem.h"

enum { IMAGE = 64 << 10, SMEM = 0x800, THREADS = 128, REGISTERS_MAX = 132, BLOCKS = 2 };

static Settings options;
static KernelStats stats;
static uint8_t image[BLOCKS][IMAGE];
static uint32_t in[BLOCKS][THREADS][REGISTERS_MAX], out[BLOCKS][THREADS][REGISTERS_MAX];
static uint64_t operand[3];
static uint32_t number[2];
static int blocks;   // 1 or 2: also the .cta_group
static int clusters; // in the grid
static int columns;  // allocated; 0: the text does that itself, and frees it
static uint32_t cells[BLOCKS][TMEM_COLUMNS][TMEM_LANES];
static uint32_t written[BLOCKS][TMEM_COLUMNS][TMEM_LANES / 32];

static inline void set_up(void) {
    memset(&options, 0, sizeof options);
    options.threads = 1;
    options.report_json = true; // nothing on stderr
    options.checks = CHECK_MEM | CHECK_INIT | CHECK_SYNC | CHECK_RACE;
    options.strict = true;
    blocks = 1;
    clusters = 1;
    columns = 512;
    findings_reset();
}

// Waits for a phase of the mbarrier at bar + `at` with this parity, and orders what follows behind
// it.
#define AWAIT_ONLY(label, at, parity)                                                              \
    label ": mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p7, [bar + " at             \
          "], " parity "; @!%p7 bra " label ";\n"
#define AFTER                    "tcgen05.fence::after_thread_sync;\n"
#define BEFORE                   "tcgen05.fence::before_thread_sync;\n"
#define AWAIT(label, at, parity) AWAIT_ONLY(label, at, parity) AFTER
#define WAIT_LD                  "tcgen05.wait::ld.sync.aligned;\n"
#define WAIT_ST                  "tcgen05.wait::st.sync.aligned;\n"
#define SYNC                     BEFORE "bar.sync 0;\n" AFTER
#define COMMIT(at)                                                                                 \
    "@%one tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar + " at "];"  \
    "\n"

// Runs `body` with `count` registers. Returns the launch's error.
static inline int run_tensor(int count, const char *body) {
    char *text = NULL;
    size_t length = 0;
    FILE *f = open_memstream(&text, &length);
    fprintf(f,
            ".version 9.0\n.target sm_100a\n.address_size 64\n"
            ".visible .entry k(.param .u64 image, .param .u64 in, .param .u64 out, .param .u64 a, "
            ".param .u64 b, .param .u64 c, .param .u32 i, .param .u32 j)\n{\n"
            ".shared .align 1024 .b8 bar[1024]; .shared .align 1024 .b8 smem[%d];\n"
            ".reg .pred %%p<8>, %%on, %%off, %%one, %%lead; .reg .b32 %%t, %%tm, %%own, %%i, %%j, "
            "%%x<%d>, %%r<16>, %%rank, %%at;\n"
            ".reg .b64 %%a, %%b, %%c, %%d<16>, %%out, %%in; .reg .b16 %%h<4>;\n"
            "mov.u32 %%t, %%tid.x; ld.param.u64 %%a, [a]; ld.param.u64 %%b, [b];\n"
            "ld.param.u64 %%c, [c]; ld.param.u32 %%i, [i]; ld.param.u32 %%j, [j];\n"
            "mov.u32 %%rank, %%cluster_ctarank; setp.eq.u32 %%on, 0, 0; setp.ne.u32 %%off, 0, 0;\n"
            "setp.eq.u32 %%one, %%t, 0; setp.eq.and.u32 %%lead, %%rank, 0, %%one;\n"
            "@%%one mbarrier.init.shared::cta.b64 [bar], 1; @%%one mbarrier.init.shared::cta.b64 "
            "[bar+8], 1; @%%one mbarrier.init.shared::cta.b64 [bar+16], 1; @%%one "
            "mbarrier.init.shared::cta.b64 [bar+24], 1; fence.mbarrier_init.release.cluster;\n"
            "ld.param.u64 %%d0, [image]; mad.wide.u32 %%d0, %%rank, %d, %%d0;\n"
            "mov.u32 %%r1, smem; mul.lo.u32 %%r2, %%t, 16;\n"
            "FILL: cvt.u64.u32 %%d1, %%r2; add.u64 %%d1, %%d1, %%d0;\n"
            "ld.global.v4.u32 {%%r3, %%r5, %%r6, %%r7}, [%%d1]; add.u32 %%r4, %%r1, %%r2;\n"
            "st.shared.v4.u32 [%%r4], {%%r3, %%r5, %%r6, %%r7}; add.u32 %%r2, %%r2, 2048;\n"
            "setp.lt.u32 %%p0, %%r2, %d; @%%p0 bra FILL; fence.proxy.async;\n"
            "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"
            "mad.lo.u32 %%at, %%rank, %d, %%t; ld.param.u64 %%in, [in]; ld.param.u64 %%out, "
            "[out];\n"
            "mad.wide.u32 %%in, %%at, %d, %%in; mad.wide.u32 %%out, %%at, %d, %%out;\n",
            IMAGE, count + 1, IMAGE, IMAGE, THREADS, REGISTERS_MAX * 4, REGISTERS_MAX * 4);
    for (int k = 0; k < count; k++) fprintf(f, "ld.global.u32 %%x%d, [%%in + %d];\n", k, 4 * k);
    fprintf(f, "shr.u32 %%r8, %%t, 5; setp.eq.u32 %%p6, %%r8, 0;\n");
    if (columns)
        fprintf(f,
                "@!%%p6 bra ALLOCATED; tcgen05.alloc.cta_group::%d.sync.aligned.shared::cta.b32 "
                "[bar+64], %d;\nALLOCATED: tcgen05.fence::before_thread_sync; bar.sync 0; "
                "tcgen05.fence::after_thread_sync; ld.shared.u32 %%tm, [bar+64];\n"
                "and.b32 %%r9, %%r8, 3; shl.b32 %%r9, %%r9, 21; add.u32 %%own, %%tm, %%r9;\n",
                blocks, columns);
    if (columns && blocks == 2)
        fprintf(f, "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n");
    fprintf(f, "%s\n", body);
    for (int k = 0; k < count; k++) fprintf(f, "st.global.u32 [%%out + %d], %%x%d;\n", 4 * k, k);
    fprintf(f, "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n");
    if (columns)
        fprintf(f,
                "@!%%p6 bra FREED; tcgen05.dealloc.cta_group::%d.sync.aligned.b32 %%tm, %d;\n"
                "FREED:\n",
                blocks, columns);
    fprintf(f, "ret;\n}\n");
    fclose(f);

    BuiltKernel b = kernel_built(text, &options, figures_find("b200"), 168);
    Gpu *gpu = b.gpu;
    struct {
        uint64_t image, in, out, a, b, c;
        uint32_t i, j;
    } p = {.a = operand[0], .b = operand[1], .c = operand[2], .i = number[0], .j = number[1]};
    p.image = on_gpu(gpu, image, sizeof image);
    p.in = on_gpu(gpu, in, sizeof in);
    p.out = on_gpu(gpu, NULL, sizeof out);
    Launch launch = {.kernel = b.kernel,
                     .grid = {(uint32_t)(blocks * clusters), 1, 1},
                     .block = {THREADS, 1, 1},
                     .cluster = {(uint32_t)blocks, 1, 1},
                     .params = &p};
    int code = gpu_launch(gpu, &launch, &stats);
    memcpy(out, global_pointer(gpu->memory, p.out), sizeof out);
    for (int k = 0; k < BLOCKS && k < gpu->figures.sms; k++)
        if (gpu->sm[k].tmem) {
            memcpy(cells[k], gpu->sm[k].tmem->cell, sizeof cells[k]);
            memcpy(written[k], gpu->sm[k].tmem->written, sizeof written[k]);
        }
    built_free(b);
    free(text);
    return code;
}

static inline void expect_nothing(const char *what) {
    const Finding *f = findings_get(0);
    ck_assert_msg(f == NULL, "%s: a finding: %s (%s, %s)", what, f ? f->what : "",
                  f && f->text ? f->text : "", f && f->other ? f->other : "");
}

// One of the findings of the last run must be of this kind and say this.
static inline void expect_finding(FindingKind kind, const char *words) {
    expect_among(kind, words);
}

// ---- operands in shared memory, as the PTX ISA's canonical layouts have them

static inline int line_bytes(int code) { // of a swizzled line; 16: none
    return code == 0 ? 16 : code == 1 || code == 2 ? 128 : code == 4 ? 64 : 32;
}

static inline uint32_t swizzled(int code, uint32_t at) {
    switch (code) {
    case 1: return at ^ (at >> 7 & 3) << 5;
    case 2: return at ^ (at >> 7 & 7) << 4;
    case 4: return at ^ (at >> 7 & 3) << 4;
    case 6: return at ^ (at >> 7 & 1) << 4;
    default: return at;
    }
}

// Leading and stride byte offsets, with room for all of the operand.
static inline void offsets(int code, bool mn, int depth_bytes, uint32_t *leading,
                           uint32_t *stride) {
    uint32_t line = (uint32_t)line_bytes(code);
    (void)depth_bytes;
    if (code == 0) {
        *leading = mn ? 2048 : 128; // MN-major: of k; K-major: of 16 bytes of k
        *stride = mn ? 128 : 256;   // MN-major: of 16 bytes of rows; K-major: of 8 rows
    } else if (mn) {
        *stride = (code == 1 ? 4 : 8) * line;
        *leading = 4 * *stride;
    } else {
        *leading = 16;
        *stride = 8 * line;
    }
}

static inline uint64_t describe(uint32_t start, int code, bool mn) {
    uint32_t leading, stride;
    offsets(code, mn, 32, &leading, &stride);
    return (uint64_t)(start >> 4) | (uint64_t)(leading >> 4) << 16 | (uint64_t)(stride >> 4) << 32 |
           1ull << 46 | (uint64_t)code << 61;
}

// The byte address of element (r, k), and of elements below 8 bits the bit in it.
static inline uint32_t address_of(uint32_t start, int code, bool mn, int bits, int r, int k,
                                  int *bit) {
    uint32_t leading, stride, at, line = (uint32_t)line_bytes(code);
    offsets(code, mn, 32, &leading, &stride);
    int inner = mn ? r : k, outer = mn ? k : r;
    // A piece of 16 bytes; small elements have a place of 8 bits, packed ones of 4.
    int place = bits < 8 && bits != 4 ? 8 : bits == 4 ? 4 : bits, per = 128 / place;
    int piece = inner / per, inside = inner % per, lines = code == 1 ? 4 : 8;
    if (code == 0) {
        at = (uint32_t)(outer % 8) * 16;
        if (mn)
            at += (uint32_t)piece * stride + (uint32_t)(outer / 8) * leading;
        else
            at += (uint32_t)piece * leading + (uint32_t)(outer / 8) * stride;
    } else {
        uint32_t in_line = (uint32_t)piece * 16 % line, lines_over = (uint32_t)piece * 16 / line;
        at = (uint32_t)(outer % lines) * line + (uint32_t)(outer / lines) * stride + in_line +
             lines_over * leading;
    }
    at = swizzled(code, start + at);
    *bit = inside * bits % 8;
    return at + (uint32_t)(inside * bits / 8);
}

#endif
