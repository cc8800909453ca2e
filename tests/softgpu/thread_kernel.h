// Small kernels in PTX, run on the machine: each thread of a block leaves one 32-bit result. There
// is one block, or as many as `blocks` says, in a cluster.
#ifndef SOFTGPU_TEST_THREAD_KERNEL_H
#define SOFTGPU_TEST_THREAD_KERNEL_H

#include <string.h>

#include "built_kernel.h"
#include "lanes.h"

enum { MAX_THREADS = 1024 };
static Settings options;
static uint32_t results[MAX_THREADS];
static KernelStats stats;   // of the last run
static uint32_t blocks = 1; // of the one cluster
// Results lie apart from what the body does to the memory at `result`, each block's from the
// others': for the race check.
enum { APART = 32768 };
static bool apart;

static inline void set_up(void) {
    memset(&options, 0, sizeof options);
    options.threads = 1;
    blocks = 1;
    apart = false;
    options.report_json = true; // nothing on stderr
    options.checks = CHECK_MEM | CHECK_SYNC;
    findings_reset();
}

// Runs `body` in one block; the thread's number is in %tid, its result goes to %out. Returns
// the launch's error.
static inline int run(uint32_t threads, const char *body) {
    char text[8192];
    int length =
        snprintf(text, sizeof text,
                 ".version 9.0\n.target sm_100a\n.address_size 64\n"
                 ".visible .entry k(.param .u64 result)\n{\n"
                 ".reg .b32 %%t, %%out; .reg .b64 %%to<3>;\n%smov.u32 %%t, %%tid.x;\n%s\n"
                 "STORE:\nld.param.u64 %%to0, [result]; mad.wide.u32 %%to1, %%t, 4, %%to0;\n"
                 "%s st.global.u32 [%%to1], %%out;\nret;\n}\n",
                 REGISTERS, body,
                 apart ? "mov.u32 %t, %ctaid.x; mad.wide.u32 %to1, %t, 4096, %to1; "
                         "add.u64 %to1, %to1, 32768;"
                       : "");
    ck_assert_int_lt(length, (int)sizeof text);
    BuiltKernel b = kernel_built(text, &options, figures_find("h100"), 32);
    Gpu *gpu = b.gpu;
    uint64_t out =
        global_alloc(gpu->memory, apart ? 2 * APART : sizeof results, MEMORY_DEVICE, NULL);
    memset(results, 0xee, sizeof results);
    memcpy(global_pointer(gpu->memory, out), results, sizeof results);
    Launch launch = {.kernel = b.kernel,
                     .grid = {blocks, 1, 1},
                     .block = {threads, 1, 1},
                     .cluster = {blocks, 1, 1},
                     .params = &out};
    int code = gpu_launch(gpu, &launch, &stats);
    memcpy(results, global_pointer(gpu->memory, apart ? out + APART : out), sizeof results);
    built_free(b);
    return code;
}

// The first finding of the last run must be of this kind and say this.
static inline void expect_finding(FindingKind kind, const char *words) {
    expect_first(kind, words);
}

#endif
