// Small kernels with wgmma in PTX: blocks of 128 threads that fill shared memory from `image`, read
// registers from `in`, run some text, and leave registers in `out`.
//
// The text finds, per thread: %x0 … the registers read (as many as asked for), %desc_a, %desc_b,
// %on and %off (predicates); it is followed by stores of %x0 ….
#ifndef SOFTGPU_TEST_WGMMA_KERNEL_H
#define SOFTGPU_TEST_WGMMA_KERNEL_H

#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "built_kernel.h"

#include "softgpu/machine/tensor_map.h"

enum { IMAGE = 64 << 10, THREADS = 128, REGISTERS_MAX = 140, SMEM = 0x400 };

static Settings options;
static KernelStats stats;
static uint8_t image[IMAGE];                 // of dynamic shared memory, which begins at SMEM
static uint32_t in[THREADS][REGISTERS_MAX];  // registers before
static uint32_t out[THREADS][REGISTERS_MAX]; // and after
static uint64_t desc_a, desc_b;
static uint32_t image_bytes = IMAGE; // that are written
static bool encode;                  // a tensor map of `map` takes the image's last bytes, and its
static TensorMapArguments map;       // tensor is the image in global memory
enum { MAP_AT = IMAGE - TENSOR_MAP_BYTES };
static uint32_t block_threads = THREADS;

static inline void set_up(void) {
    memset(&options, 0, sizeof options);
    options.threads = 1;
    options.report_json = true; // nothing on stderr
    options.checks = CHECK_MEM | CHECK_INIT | CHECK_SYNC;
    options.strict = true;
    image_bytes = IMAGE;
    encode = false;
    block_threads = THREADS;
    findings_reset();
}

static inline uint64_t descriptor(uint32_t start, uint32_t leading, uint32_t stride, int code) {
    return (uint64_t)(start >> 4) | (uint64_t)(leading >> 4) << 16 | (uint64_t)(stride >> 4) << 32 |
           (uint64_t)code << 62;
}

// Runs `body` with `count` registers. Returns the launch's error.
static inline int run_wgmma(int count, const char *body) {
    char *text = NULL;
    size_t length = 0;
    FILE *f = open_memstream(&text, &length);
    fprintf(f,
            ".version 9.0\n.target sm_90a\n.address_size 64\n"
            ".extern .shared .align 1024 .b8 smem[];\n"
            ".visible .entry k(.param .u64 image, .param .u64 in, .param .u64 out, .param .u64 a, "
            ".param .u64 b, .param .u32 bytes)\n{\n"
            ".reg .pred %%p<8>, %%on, %%off; .reg .b32 %%t, %%x<%d>, %%r<16>;\n"
            ".reg .b64 %%desc_a, %%desc_b, %%d<16>;\n"
            "mov.u32 %%t, %%tid.x; ld.param.u64 %%desc_a, [a]; ld.param.u64 %%desc_b, [b];\n"
            "setp.eq.u32 %%on, 0, 0; setp.ne.u32 %%off, 0, 0;\n"
            "ld.param.u64 %%d0, [image]; ld.param.u32 %%r0, [bytes]; mov.u32 %%r1, smem;\n"
            "mul.lo.u32 %%r2, %%t, 4;\n"
            "FILL: setp.ge.u32 %%p0, %%r2, %%r0; @%%p0 bra FILLED;\n"
            "cvt.u64.u32 %%d1, %%r2; add.u64 %%d1, %%d1, %%d0; ld.global.u32 %%r3, [%%d1];\n"
            "add.u32 %%r4, %%r1, %%r2; st.shared.u32 [%%r4], %%r3; add.u32 %%r2, %%r2, 512;\n"
            "bra FILL;\nFILLED: fence.proxy.async; bar.sync 0;\n"
            "ld.param.u64 %%d0, [in]; ld.param.u64 %%d1, [out];\n"
            "mad.wide.u32 %%d2, %%t, %d, %%d0; mad.wide.u32 %%d3, %%t, %d, %%d1;\n",
            count + 1, REGISTERS_MAX * 4, REGISTERS_MAX * 4);
    for (int k = 0; k < count; k++) fprintf(f, "ld.global.u32 %%x%d, [%%d2 + %d];\n", k, 4 * k);
    fprintf(f, "%s\n", body);
    for (int k = 0; k < count; k++) fprintf(f, "st.global.u32 [%%d3 + %d], %%x%d;\n", 4 * k, k);
    fprintf(f, "ret;\n}\n");
    fclose(f);

    BuiltKernel b = kernel_built(text, &options, figures_find("h100"), 168);
    Gpu *gpu = b.gpu;
    struct {
        uint64_t image, in, out, a, b;
        uint32_t bytes, unused;
    } p = {.a = desc_a, .b = desc_b, .bytes = image_bytes};
    p.image = on_gpu(gpu, image, sizeof image);
    p.in = on_gpu(gpu, in, sizeof in);
    p.out = on_gpu(gpu, NULL, sizeof out);
    if (encode) {
        char why[200];
        map.address = p.image;
        ck_assert_msg(tensor_map_encode(&map, global_pointer(gpu->memory, p.image + MAP_AT), why,
                                        sizeof why) == TENSOR_MAP_FINE,
                      "%s", why);
    }
    Launch launch = {.kernel = b.kernel,
                     .grid = {1, 1, 1},
                     .block = {block_threads, 1, 1},
                     .cluster = {1, 1, 1},
                     .dynamic_shared = IMAGE,
                     .params = &p};
    int code = gpu_launch(gpu, &launch, &stats);
    memcpy(out, global_pointer(gpu->memory, p.out), sizeof out);
    built_free(b);
    free(text);
    return code;
}

static inline void expect_nothing(void) {
    const Finding *f = findings_get(0);
    ck_assert_msg(f == NULL, "a finding: %s", f ? f->what : "");
}

// The first finding of the last run must be of this kind and say this.
static inline void expect_finding(FindingKind kind, const char *words) {
    expect_first(kind, words);
}

#endif
