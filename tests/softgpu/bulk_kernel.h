// Kernels of bulk copies: one block (or cluster) around a tensor in global memory and an image of
// shared memory that it dumps at its end.
//
// A body finds: %t its thread's number, %p7 true in thread 0, %r7 the shared address of `s` (IMAGE
// bytes, aligned to 1024, byte k holds k * 37 + k / 256), bar[4] with bar[0] initialised for one
// arrival, %d5 the generic address of the tensor map, %d7 the address of the tensor, %d6 the dump.
#ifndef SOFTGPU_TEST_BULK_KERNEL_H
#define SOFTGPU_TEST_BULK_KERNEL_H

#include <stdlib.h>
#include <string.h>

#include "built_kernel.h"
#include "lanes.h"

#include "softgpu/machine/tensor_map.h"

enum { IMAGE = 32768, TENSOR_MAX = 1 << 18, THREADS = 64, CTAS_MAX = 4 };

static Settings options;
static KernelStats stats;
static uint8_t tensor[TENSOR_MAX];       // before the run and after it
static uint32_t tensor_size;             // that is allocated
static uint8_t dumped[CTAS_MAX * IMAGE]; // shared memory of each CTA at the end
static bool encode;                      // make a map of `map`, with its address in the tensor
static TensorMapArguments map;
static uint64_t map_offset; // of the map's address in the tensor
static uint8_t map_bytes[TENSOR_MAP_BYTES];
static uint32_t cluster = 1; // CTAs; the grid is one cluster
static uint32_t blocks = 1;  // clusters

static inline uint8_t image_byte(uint32_t k) {
    return (uint8_t)(k * 37 + k / 256);
}

static inline void set_up(void) {
    memset(&options, 0, sizeof options);
    options.threads = 1;
    options.report_json = true; // nothing on stderr
    options.checks = CHECK_MEM | CHECK_INIT | CHECK_SYNC | CHECK_RACE;
    options.strict = true;
    encode = false;
    map_offset = 0;
    cluster = blocks = 1;
    tensor_size = 4096;
    for (uint32_t k = 0; k < TENSOR_MAX; k++) tensor[k] = (uint8_t)(k * 101 + k / 251);
    findings_reset();
}

static const char prelude[] =
    ".reg .b32 %t, %z<4>; .reg .pred %y; .shared .align 1024 .b8 s[32768];\n"
    ".shared .align 8 .b8 bar[32];\n"
    "mov.u32 %t, %tid.x; setp.eq.u32 %p7, %t, 0; ld.param.u64 %d6, [dump]; ld.param.u64 %d7, "
    "[tensor];\n"
    "mov.b64 %d5, map; cvta.param.u64 %d5, %d5; mov.u32 %r7, s; mov.u32 %z0, %t;\n"
    "FILL: mul.lo.u32 %z1, %z0, 37; shr.u32 %z2, %z0, 8; add.u32 %z1, %z1, %z2; add.u32 %z3, %r7, "
    "%z0; st.shared.u8 [%z3], %z1; add.u32 %z0, %z0, 64; setp.lt.u32 %y, %z0, 32768;\n"
    "@%y bra FILL;\n"
    "@%p7 mbarrier.init.shared::cta.b64 [bar], 1;\n"
    "fence.mbarrier_init.release.cluster; fence.proxy.async;\n"
    "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n";
static const char postlude[] =
    "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"
    "mov.u32 %z0, %cluster_ctarank; mul.lo.u32 %z0, %z0, 32768; cvt.u64.u32 %d0, %z0;\n"
    "add.u64 %d6, %d6, %d0; shl.b32 %z0, %t, 2;\n"
    "DUMP: add.u32 %z3, %r7, %z0; ld.shared.u32 %z1, [%z3]; cvt.u64.u32 %d0, %z0;\n"
    "add.u64 %d0, %d0, %d6; st.global.u32 [%d0], %z1; add.u32 %z0, %z0, 256;\n"
    "setp.lt.u32 %y, %z0, 32768; @%y bra DUMP;\n ret;\n";

// Waits for the phase of bar[0] with this parity.
#define WAIT(parity)                                                                               \
    "W" parity ": mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p0, [bar], " parity    \
    "; @!%p0 bra W" parity ";\n"
#define EXPECT(bytes) "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [bar], " bytes ";\n"
// Thread 0 alone.
#define ONE(text) "@!%p7 bra NOT_ONE; " text " NOT_ONE:\n"

// Runs `body`; returns the launch's error.
static inline int run(const char *body) {
    static char text[1 << 16];
    int length =
        snprintf(text, sizeof text,
                 ".version 9.0\n.target sm_100a\n.address_size 64\n"
                 ".visible .entry k(.param .u64 dump, .param .u64 tensor, .param .align 64 .b8 "
                 "map[128])\n{\n%s%s%s%s}\n",
                 REGISTERS, prelude, body, postlude);
    ck_assert_int_lt(length, (int)sizeof text);
    BuiltKernel b = kernel_built(text, &options, figures_find("h100"), 32);
    Gpu *gpu = b.gpu;
    struct {
        uint64_t dump, tensor;
        _Alignas(64) uint8_t map[TENSOR_MAP_BYTES];
    } params;
    params.dump = on_gpu(gpu, NULL, sizeof dumped);
    params.tensor = on_gpu(gpu, tensor, tensor_size);
    if (encode) {
        char why[200];
        map.address = params.tensor + map_offset;
        TensorMapVerdict verdict = tensor_map_encode(&map, map_bytes, why, sizeof why);
        ck_assert_msg(verdict == TENSOR_MAP_FINE, "%s", why);
    }
    memcpy(params.map, map_bytes, TENSOR_MAP_BYTES);
    Launch launch = {.kernel = b.kernel,
                     .grid = {cluster * blocks, 1, 1},
                     .block = {THREADS, 1, 1},
                     .cluster = {cluster, 1, 1},
                     .params = &params};
    int code = gpu_launch(gpu, &launch, &stats);
    memcpy(tensor, global_pointer(gpu->memory, params.tensor), tensor_size);
    memcpy(dumped, global_pointer(gpu->memory, params.dump), sizeof dumped);
    built_free(b);
    return code;
}

static inline void expect_right(int code) {
    const Finding *f = NULL;
    for (int k = 0; (f = findings_get(k)) && f->kind == FINDING_NOTE; k++) continue;
    ck_assert_msg(f == NULL, "a finding: %s (%s)", f ? f->what : "", f && f->text ? f->text : "");
    ck_assert_int_eq(code, 0);
}

// One of the findings of the last run must be of this kind and say this.
static inline void expect_finding(FindingKind kind, const char *words) {
    expect_among(kind, words);
}

#endif
