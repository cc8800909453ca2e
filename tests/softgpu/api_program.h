// For tests of the API: a program of three kernels in PTX, put together and registered as nvcc's
// start-up code does (so no nvcc is needed), and what a call returns and softgpu says.
#ifndef SOFTGPU_TEST_API_PROGRAM_H
#define SOFTGPU_TEST_API_PROGRAM_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "softgpu/api/fatbin.h"
#include "said.h"

// What nvcc's start-up code calls; they are in no header.
void **__cudaRegisterFatBinary(void *wrapper);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
                            int limit, uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *warp);
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext,
                       size_t size, int constant, int global);
void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name, int ext,
                              size_t size, int constant, int global);
char __cudaInitModule(void **handle);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream);
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                               size_t shared, cudaStream_t stream);

// The call works, and softgpu says nothing.
#define OK(call)                                                                                   \
    do {                                                                                           \
        ck_assert_int_eq((call), cudaSuccess);                                                     \
        ck_assert_str_eq(said(), "");                                                              \
    } while (0)
// The call returns this error, and softgpu says these words of it ("": nothing).
#define SAYS(words, code, call)                                                                    \
    do {                                                                                           \
        ck_assert_int_eq((call), code);                                                            \
        const char *text = said();                                                                 \
        ck_assert_msg(*(words) ? strstr(text, words) != NULL : *text == 0, "softgpu says: %s",     \
                      text);                                                                       \
    } while (0)
// The same, and cudaGetLastError tells the code once.
#define FAILS(words, code, call)                                                                   \
    do {                                                                                           \
        SAYS(words, code, call);                                                                   \
        ck_assert_int_eq(cudaGetLastError(), code);                                                \
        ck_assert_int_eq(cudaGetLastError(), cudaSuccess);                                         \
    } while (0)

// add(x, n, by): x[tid] += by while tid < n; bounded: at most 64 threads; crash: writes to 16.
static const char text[] =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .const .align 4 .b8 table[8] = {1, 0, 0, 0, 2};\n"
    ".visible .global .align 4 .u32 counter = 5;\n"
    ".visible .global .attribute(.managed) .align 4 .u32 both = 11;\n"
    ".extern .shared .align 16 .b8 dynamic[];\n"
    ".visible .entry add(.param .u64 x, .param .u32 n, .param .u32 by)\n{\n"
    " .reg .pred %p<2>; .reg .b32 %r<5>; .reg .b64 %rd<4>;\n"
    " ld.param.u64 %rd1, [x]; ld.param.u32 %r1, [n]; ld.param.u32 %r2, [by];\n"
    " mov.u32 %r3, %tid.x; setp.ge.u32 %p1, %r3, %r1; @%p1 bra $done;\n"
    " cvta.to.global.u64 %rd1, %rd1; mul.wide.u32 %rd2, %r3, 4; add.s64 %rd3, %rd1, %rd2;\n"
    " ld.global.u32 %r4, [%rd3]; add.u32 %r4, %r4, %r2; st.global.u32 [%rd3], %r4;\n"
    "$done: ret;\n}\n"
    ".visible .entry bounded(.param .u64 x)\n.maxntid 64, 1, 1\n{\n ret;\n}\n"
    ".visible .entry crash()\n{\n .reg .b32 %r<2>; .reg .b64 %rd<2>;\n"
    " mov.u32 %r1, 1; mov.u64 %rd1, 16; st.global.u32 [%rd1], %r1; ret;\n}\n";

static char stub_add, stub_bounded, stub_crash, shadow_table, shadow_counter;
static unsigned *managed;
static void **handle;

// Puts the text into a fat binary and registers it as nvcc's constructors do.
static inline void setup(void) {
    static uint8_t fatbin[16 + 64 + sizeof text + 8] __attribute__((aligned(8)));
    static FatbinWrapper wrapper = {FATBIN_WRAPPER_MAGIC, 1, fatbin, NULL};
    uint64_t padded = (sizeof text + 7) / 8 * 8, all = 64 + padded;
    uint32_t magic = FATBIN_MAGIC;
    uint16_t one = 1, header = 16, kind = FATBIN_PTX;
    uint32_t entry_header = 64, sm = 80;
    memcpy(fatbin, &magic, 4);
    memcpy(fatbin + 4, &one, 2);
    memcpy(fatbin + 6, &header, 2);
    memcpy(fatbin + 8, &all, 8);
    memcpy(fatbin + 16, &kind, 2);
    memcpy(fatbin + 20, &entry_header, 4);
    memcpy(fatbin + 24, &padded, 8);
    memcpy(fatbin + 16 + 0x1c, &sm, 4);
    memcpy(fatbin + 16 + 64, text, sizeof text);
    said_begin();
    handle = __cudaRegisterFatBinary(&wrapper);
    __cudaRegisterFunction(handle, &stub_add, "add", "add", -1, 0, 0, 0, 0, 0);
    __cudaRegisterFunction(handle, &stub_bounded, "bounded", "bounded", 64, 0, 0, 0, 0, 0);
    __cudaRegisterFunction(handle, &stub_crash, "crash", "crash", -1, 0, 0, 0, 0, 0);
    __cudaRegisterVar(handle, &shadow_table, "table", "table", 0, 8, 1, 0);
    __cudaRegisterVar(handle, &shadow_counter, "counter", "counter", 0, 4, 0, 0);
    __cudaRegisterManagedVar(handle, (void **)&managed, "both", "both", 0, 4, 0, 0);
    __cudaRegisterFatBinaryEnd(handle);
}

static const dim3 one = {1, 1, 1};

// Launches `add` on 32 threads, as <<<>>> does.
static inline cudaError_t launch_add(unsigned *x, unsigned n, unsigned by, dim3 grid, dim3 block,
                                     size_t shared, cudaStream_t stream) {
    void *arguments[] = {&x, &n, &by};
    cudaKernel_t kernel = NULL;
    ck_assert_uint_eq(__cudaPushCallConfiguration(grid, block, shared, stream), 0);
    OK(__cudaGetKernel(&kernel, &stub_add));
    OK(__cudaPopCallConfiguration(&grid, &block, &shared, &stream));
    return __cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}

#endif
