// What the headers of small kernels in PTX share (thread_kernel.h, bulk_kernel.h, wgmma_kernel.h,
// tensor_kernel.h): from the text to a kernel on a GPU, and what its findings must be.
#ifndef SOFTGPU_TEST_BUILT_KERNEL_H
#define SOFTGPU_TEST_BUILT_KERNEL_H

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "softgpu/check/findings.h"
#include "softgpu/machine/global.h"
#include "softgpu/machine/machine.h"
#include "softgpu/ptx/link.h"

typedef struct {
    Program *program;
    Gpu *gpu;
    Kernel *kernel;
} BuiltKernel;

// The entry `k` of a PTX module, on a new GPU of these figures; `registers`: of a thread.
static inline BuiltKernel kernel_built(const char *text, const Settings *settings,
                                       const GpuFigures *figures, uint32_t registers) {
    PtxError error = {0};
    PtxModule *module = ptx_index(text, strlen(text), &error);
    ck_assert_msg(module != NULL, "line %u: %s", error.line, error.message);
    BuiltKernel b = {.program = program_new()};
    ck_assert(program_add(b.program, module, &error));
    b.gpu = gpu_new(settings, figures);
    ck_assert(program_place(b.program, b.gpu->memory, &error));
    b.kernel = kernel_lower(program_function(b.program, "k"), program_linker(b.program), registers,
                            &error);
    ck_assert_msg(b.kernel != NULL, "line %u: %s\n%s", error.line, error.message, text);
    return b;
}

static inline void built_free(BuiltKernel b) {
    kernel_free(b.kernel);
    program_free(b.program);
    gpu_delete(b.gpu);
}

// An allocation on the GPU that holds these bytes; without any, one that nothing has written.
static inline uint64_t on_gpu(const Gpu *gpu, const void *bytes, size_t size) {
    uint64_t address = global_alloc(gpu->memory, size, MEMORY_DEVICE, NULL);
    if (!bytes) return address;
    memcpy(global_pointer(gpu->memory, address), bytes, size);
    global_mark_written(gpu->memory, address, size);
    return address;
}

// "{%x3, %x4, …}"; the last four stay.
static inline const char *registers(int first, int count) {
    enum { LONGEST = 256 * 8 };
    static char text[4][LONGEST];
    static int next;
    ck_assert_int_le(count, 256);
    char *to = text[next = (next + 1) % 4];
    int length = sprintf(to, "{");
    for (int k = first; k < first + count; k++)
        length += sprintf(to + length, "%s%%x%d", k == first ? "" : ", ", k);
    sprintf(to + length, "}");
    return to;
}

// The first finding of the last run is of this kind and says this.
static inline void expect_first(FindingKind kind, const char *words) {
    const Finding *f = findings_get(0);
    ck_assert_msg(f != NULL, "no finding that says: %s", words);
    ck_assert_msg(f->kind == kind && strstr(f->what, words), "another finding: %s", f->what);
}

// … or one of them is.
static inline void expect_among(FindingKind kind, const char *words) {
    const Finding *f = findings_get(0);
    ck_assert_msg(f != NULL, "no finding that says: %s", words);
    for (int k = 0; (f = findings_get(k)); k++)
        if (f->kind == kind && strstr(f->what, words)) return;
    f = findings_get(0);
    ck_assert_msg(false, "expected: %s\nanother finding (%d): %s", words, (int)f->kind, f->what);
}

#endif
