// The runtime API in one process: registration, launches, copies, errors, streams, graphs. The
// kernels are PTX text in fat binaries that the tests put together, so no nvcc is needed.
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "softgpu/api/fatbin.h"
#include "softgpu/check/findings.h"
#include "softgpu/softgpu.h"
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
static void setup(void) {
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
static cudaError_t launch_add(unsigned *x, unsigned n, unsigned by, dim3 grid, dim3 block,
                              size_t shared, cudaStream_t stream) {
    void *arguments[] = {&x, &n, &by};
    cudaKernel_t kernel = NULL;
    ck_assert_uint_eq(__cudaPushCallConfiguration(grid, block, shared, stream), 0);
    OK(__cudaGetKernel(&kernel, &stub_add));
    OK(__cudaPopCallConfiguration(&grid, &block, &shared, &stream));
    return __cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}

START_TEST(launch_both_ways) {
    unsigned host[32] = {0}, *x, n = 32, by = 3;
    OK(cudaMalloc((void **)&x, sizeof host));
    OK(cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice));
    OK(launch_add(x, n, by, one, (dim3){32, 1, 1}, 0, NULL));
    void *arguments[] = {&x, &n, &by};
    OK(cudaLaunchKernel(&stub_add, one, (dim3){32, 1, 1}, arguments, 0, NULL));
    cudaLaunchConfig_t config = {.gridDim = one, .blockDim = {32, 1, 1}};
    OK(cudaLaunchKernelExC(&config, &stub_add, arguments));
    OK(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 32; i++) ck_assert_uint_eq(host[i], 9);
    OK(cudaFree(x));
}
END_TEST

START_TEST(nested_configurations) {
    dim3 g, b;
    size_t shared;
    cudaStream_t stream;
    __cudaPushCallConfiguration((dim3){1, 1, 1}, one, 10, NULL);
    __cudaPushCallConfiguration((dim3){2, 1, 1}, one, 20, NULL);
    OK(__cudaPopCallConfiguration(&g, &b, &shared, &stream));
    ck_assert_uint_eq(shared, 20);
    ck_assert_uint_eq(g.x, 2);
    OK(__cudaPopCallConfiguration(&g, &b, &shared, &stream));
    ck_assert_uint_eq(shared, 10);
    FAILS("", cudaErrorMissingConfiguration, __cudaPopCallConfiguration(&g, &b, &shared, &stream));
}
END_TEST

START_TEST(refused_launches) {
    unsigned *x = NULL;
    FAILS("a dimension is 0: grid 0 x 1 x 1", cudaErrorInvalidConfiguration,
          launch_add(x, 0, 0, (dim3){0, 1, 1}, one, 0, NULL));
    FAILS("put the largest dimension in x", cudaErrorInvalidConfiguration,
          launch_add(x, 0, 0, (dim3){1, 65536, 1}, one, 0, NULL));
    FAILS("is 1025 threads", cudaErrorInvalidConfiguration,
          launch_add(x, 0, 0, one, (dim3){1025, 1, 1}, 0, NULL));
    FAILS("is 1056 threads", cudaErrorInvalidConfiguration,
          launch_add(x, 0, 0, one, (dim3){32, 33, 1}, 0, NULL));
    FAILS("block 1 x 1 x 65", cudaErrorInvalidConfiguration,
          launch_add(x, 0, 0, one, (dim3){1, 1, 65}, 0, NULL));
    FAILS("call cudaFuncSetAttribute", cudaErrorInvalidValue,
          launch_add(x, 0, 0, one, one, (48 << 10) + 1, NULL));
    FAILS("can have at most 232448", cudaErrorInvalidValue,
          launch_add(x, 0, 0, one, one, 1 << 20, NULL));
    FAILS("", cudaErrorInvalidResourceHandle,
          launch_add(x, 0, 0, one, one, 0, (cudaStream_t)(uintptr_t)0x1234));
    void *arguments[] = {&x};
    FAILS("__launch_bounds__ promised at most 64", cudaErrorLaunchOutOfResources,
          cudaLaunchKernel(&stub_bounded, one, (dim3){65, 1, 1}, arguments, 0, NULL));
    char other;
    FAILS("it is no kernel of this program", cudaErrorInvalidDeviceFunction,
          cudaLaunchKernel(&other, one, one, arguments, 0, NULL));
}
END_TEST

START_TEST(more_shared_memory_must_be_asked_for) {
    const int bytes = 100 << 10;
    enum cudaFuncAttribute size = cudaFuncAttributeMaxDynamicSharedMemorySize;
    FAILS("at most 232448 bytes", cudaErrorInvalidValue,
          cudaFuncSetAttribute(&stub_add, size, 1 << 20));
    OK(cudaFuncSetAttribute(&stub_add, size, bytes));
    OK(launch_add(NULL, 0, 0, one, one, (size_t)bytes, NULL));
    FAILS("102401 bytes of dynamic shared", cudaErrorInvalidValue,
          launch_add(NULL, 0, 0, one, one, (size_t)bytes + 1, NULL));
    struct cudaFuncAttributes a;
    OK(cudaFuncGetAttributes(&a, &stub_add));
    ck_assert_int_eq(a.maxDynamicSharedSizeBytes, bytes);
    ck_assert_int_eq(a.maxThreadsPerBlock, 1024);
    OK(cudaFuncGetAttributes(&a, &stub_bounded));
    ck_assert_int_eq(a.maxThreadsPerBlock, 64);
    int blocks;
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, &stub_add, 1024, 0));
    ck_assert_int_eq(blocks, 2);
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, &stub_add, 32, (size_t)bytes));
    ck_assert_int_eq(blocks, 2); // of 228 KB, each with 1 KB for the system
}
END_TEST

// A kernel's fault stays until the device is reset; everything works again after that.
START_TEST(sticky_errors) {
    void *x, *none[1] = {NULL};
    SAYS("a null pointer", cudaErrorIllegalAddress,
         cudaLaunchKernel(&stub_crash, one, (dim3){32, 1, 1}, none, 0, NULL));
    ck_assert_int_eq(cudaGetLastError(), cudaErrorIllegalAddress);
    ck_assert_int_eq(cudaPeekAtLastError(), cudaErrorIllegalAddress);
    ck_assert_int_eq(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    ck_assert_int_eq(cudaMalloc(&x, 4), cudaErrorIllegalAddress);
    OK(cudaDeviceReset());
    OK(cudaGetLastError());
    unsigned host = 1, *y;
    OK(cudaMalloc((void **)&y, 4));
    OK(cudaMemcpy(y, &host, 4, cudaMemcpyHostToDevice));
    OK(launch_add(y, 1, 1, one, one, 0, NULL));
    OK(cudaMemcpy(&host, y, 4, cudaMemcpyDeviceToHost));
    ck_assert_uint_eq(host, 2);
}
END_TEST

START_TEST(variables) {
    unsigned host[2];
    OK(cudaMemcpyFromSymbol(host, &shadow_table, 8, 0, cudaMemcpyDeviceToHost));
    ck_assert_uint_eq(host[0], 1);
    ck_assert_uint_eq(host[1], 2);
    OK(cudaMemcpyFromSymbol(host, &shadow_counter, 4, 0, cudaMemcpyDeviceToHost));
    ck_assert_uint_eq(host[0], 5);
    host[0] = 77;
    OK(cudaMemcpyToSymbol(&shadow_table, host, 4, 4, cudaMemcpyHostToDevice));
    OK(cudaMemcpyFromSymbol(host, &shadow_table, 8, 0, cudaMemcpyDefault));
    ck_assert_uint_eq(host[1], 77);
    FAILS("8 bytes from byte 4 of a variable that has 8", cudaErrorInvalidValue,
          cudaMemcpyToSymbol(&shadow_table, host, 8, 4, cudaMemcpyHostToDevice));
    FAILS("is not the address of a __device__", cudaErrorInvalidSymbol,
          cudaMemcpyToSymbol(host, host, 4, 0, cudaMemcpyHostToDevice));
    size_t size;
    OK(cudaGetSymbolSize(&size, &shadow_table));
    ck_assert_uint_eq(size, 8);
    ck_assert(__cudaInitModule(handle));
    ck_assert_ptr_nonnull(managed);
    ck_assert_uint_eq(*managed, 11);
    OK(launch_add(managed, 1, 4, one, one, 0, NULL));
    ck_assert_uint_eq(*managed, 15);
}
END_TEST

START_TEST(bad_copies) {
    char host[256], *x;
    OK(cudaMalloc((void **)&x, 100));
    FAILS("reach 1 bytes past the end", cudaErrorInvalidValue,
          cudaMemcpy(x, host, 101, cudaMemcpyHostToDevice));
    FAILS("reach 1 bytes past the end", cudaErrorInvalidValue,
          cudaMemcpy(x + 50, host, 51, cudaMemcpyHostToDevice));
    FAILS("ordinary host memory", cudaErrorInvalidValue,
          cudaMemcpy(host, x, 4, cudaMemcpyHostToDevice));
    FAILS("is device memory", cudaErrorInvalidValue, cudaMemcpy(host, x, 4, cudaMemcpyHostToHost));
    FAILS("the destination is NULL", cudaErrorInvalidValue,
          cudaMemcpy(NULL, x, 4, cudaMemcpyDefault));
    FAILS("", cudaErrorInvalidMemcpyDirection, cudaMemcpy(host, x, 4, (enum cudaMemcpyKind)9));
    FAILS("reach 1 bytes past the end", cudaErrorInvalidValue, cudaMemset(x, 0, 101));
    FAILS("ordinary host memory", cudaErrorInvalidValue, cudaMemset(host, 0, 1));
    FAILS("rows of 8 bytes", cudaErrorInvalidPitchValue,
          cudaMemcpy2D(x, 4, host, 8, 8, 2, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(x, NULL, 0, cudaMemcpyHostToDevice)); // nothing to do
    OK(cudaFree(x));
    FAILS("it was freed before", cudaErrorInvalidValue, cudaFree(x));
    FAILS("memory that was freed", cudaErrorInvalidValue,
          cudaMemcpy(host, x, 4, cudaMemcpyDeviceToHost));
    FAILS("not allocated by the matching call", cudaErrorInvalidValue, cudaFree(host));
    OK(cudaFree(NULL));
    FAILS("the modelled NVIDIA H100 80GB HBM3 has", cudaErrorMemoryAllocation,
          cudaMalloc((void **)&x, (size_t)1 << 50));
}
END_TEST

START_TEST(rows_and_planes) {
    char host[60], back[60];
    for (int i = 0; i < 60; i++) host[i] = (char)i;
    struct cudaPitchedPtr p;
    struct cudaExtent extent = {5, 4, 3};
    OK(cudaMalloc3D(&p, extent));
    ck_assert_uint_ge(p.pitch, 5);
    struct cudaMemcpy3DParms in = {
        .srcPtr = {host, 5, 5, 4}, .dstPtr = p, .extent = extent, .kind = cudaMemcpyHostToDevice};
    struct cudaMemcpy3DParms out = {
        .srcPtr = p, .dstPtr = {back, 5, 5, 4}, .extent = extent, .kind = cudaMemcpyDeviceToHost};
    OK(cudaMemcpy3D(&in));
    OK(cudaMemcpy3D(&out));
    ck_assert_mem_eq(host, back, 60);
    OK(cudaMemset2D(p.ptr, p.pitch, 0x55, 5, 4)); // the first plane
    OK(cudaMemcpy3D(&out));
    for (int i = 0; i < 60; i++) ck_assert_int_eq(back[i], i < 20 ? 0x55 : i);
    OK(cudaFree(p.ptr));
}
END_TEST

START_TEST(pointers) {
    void *device, *pinned, *shared;
    char host;
    struct cudaPointerAttributes a;
    OK(cudaMalloc(&device, 16));
    OK(cudaMallocHost(&pinned, 16));
    OK(cudaMallocManaged(&shared, 16, cudaMemAttachGlobal));
    memset(pinned, 1, 16); // both are the host's to touch
    memset(shared, 1, 16);
    OK(cudaPointerGetAttributes(&a, (char *)device + 15));
    ck_assert_int_eq(a.type, cudaMemoryTypeDevice);
    OK(cudaPointerGetAttributes(&a, pinned));
    ck_assert_int_eq(a.type, cudaMemoryTypeHost);
    OK(cudaPointerGetAttributes(&a, shared));
    ck_assert_int_eq(a.type, cudaMemoryTypeManaged);
    OK(cudaPointerGetAttributes(&a, &host));
    ck_assert_int_eq(a.type, cudaMemoryTypeUnregistered);
    FAILS("not allocated by the matching call", cudaErrorInvalidValue,
          cudaFree(pinned)); // the wrong call
    OK(cudaFreeHost(pinned));
    OK(cudaFree(shared));
    OK(cudaFree(device));
}
END_TEST

START_TEST(events_follow_the_modelled_clock) {
    cudaEvent_t start, stop;
    unsigned *x;
    float ms;
    static char host[1 << 20];
    OK(cudaEventCreate(&start));
    OK(cudaEventCreate(&stop));
    FAILS("", cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&ms, start, stop));
    OK(cudaMalloc((void **)&x, sizeof host));
    OK(cudaEventRecord(start, NULL));
    OK(cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice));
    OK(cudaEventRecord(stop, NULL));
    OK(cudaEventElapsedTime(&ms, start, stop));
    ck_assert_float_gt(ms, 0.005f); // 1 MB over PCI Express: tens of microseconds
    ck_assert_float_lt(ms, 0.5f);
    OK(cudaEventDestroy(start));
    FAILS("", cudaErrorInvalidResourceHandle, cudaEventRecord(start, NULL));
    OK(cudaFree(x));
}
END_TEST

START_TEST(capture_and_replay) {
    cudaStream_t a, b;
    cudaEvent_t fork, join;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    unsigned *x, host = 0;
    size_t count = 0;
    OK(cudaMalloc((void **)&x, 8));
    OK(cudaMemset(x, 0, 8));
    OK(cudaStreamCreate(&a));
    OK(cudaStreamCreate(&b));
    OK(cudaEventCreate(&fork));
    OK(cudaEventCreate(&join));
    FAILS("make one with cudaStreamCreate", cudaErrorStreamCaptureUnsupported,
          cudaStreamBeginCapture(NULL, cudaStreamCaptureModeGlobal));
    OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
    OK(launch_add(x, 1, 1, one, one, 0, a));
    OK(cudaEventRecord(fork, a));
    OK(cudaStreamWaitEvent(b, fork, 0));
    OK(cudaMemcpyAsync(x + 1, x, 4, cudaMemcpyDeviceToDevice, b));
    OK(cudaEventRecord(join, b));
    OK(cudaStreamWaitEvent(a, join, 0));
    OK(launch_add(x, 1, 10, one, one, 0, a));
    FAILS("", cudaErrorStreamCaptureUnsupported, cudaStreamSynchronize(a));
    FAILS("", cudaErrorStreamCaptureUnmatched, cudaStreamEndCapture(b, &graph));
    OK(cudaStreamEndCapture(a, &graph));
    OK(cudaMemcpy(&host, x, 4, cudaMemcpyDeviceToHost));
    ck_assert_uint_eq(host, 0); // recorded, not run
    OK(cudaGraphGetNodes(graph, NULL, &count));
    ck_assert_uint_eq(count, 3);
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph)); // the executable graph is a copy
    OK(cudaGraphLaunch(exec, a));
    OK(cudaGraphLaunch(exec, a));
    OK(cudaMemcpy(&host, x, 4, cudaMemcpyDeviceToHost));
    ck_assert_uint_eq(host, 22);
    OK(cudaMemcpy(&host, x + 1, 4, cudaMemcpyDeviceToHost));
    ck_assert_uint_eq(host, 12); // copied before the second addition
    OK(cudaGraphExecDestroy(exec));
    FAILS("", cudaErrorInvalidValue, cudaGraphLaunch(exec, a));
    OK(cudaStreamDestroy(a));
    OK(cudaStreamDestroy(b));
    FAILS("", cudaErrorInvalidResourceHandle, cudaStreamSynchronize(a));
}
END_TEST

// Nodes added in an order that is not the order of their dependencies.
START_TEST(graph_order) {
    cudaGraph_t graph;
    cudaGraphNode_t add, fill;
    cudaGraphExec_t exec;
    unsigned *x, n = 1, by = 5, host;
    OK(cudaMalloc((void **)&x, 4));
    void *arguments[] = {&x, &n, &by};
    struct cudaKernelNodeParams kernel = {
        .func = &stub_add, .gridDim = one, .blockDim = one, .kernelParams = arguments};
    struct cudaMemsetParams zero = {
        .dst = x, .elementSize = 4, .width = 1, .height = 1, .value = 2};
    OK(cudaGraphCreate(&graph, 0));
    OK(cudaGraphAddKernelNode(&add, graph, NULL, 0, &kernel));
    OK(cudaGraphAddMemsetNode(&fill, graph, NULL, 0, &zero));
    OK(cudaGraphAddDependencies(graph, &fill, &add, NULL, 1));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphLaunch(exec, NULL));
    OK(cudaMemcpy(&host, x, 4, cudaMemcpyDeviceToHost));
    ck_assert_uint_eq(host, 7);
    by = 6;
    OK(cudaGraphExecKernelNodeSetParams(exec, add, &kernel));
    OK(cudaGraphLaunch(exec, NULL));
    OK(cudaMemcpy(&host, x, 4, cudaMemcpyDeviceToHost));
    ck_assert_uint_eq(host, 8);
    OK(cudaGraphAddDependencies(graph, &add, &fill, NULL, 1)); // a cycle
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    FAILS("form a cycle", cudaErrorInvalidValue, cudaGraphLaunch(exec, NULL));
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    OK(cudaFree(x));
}
END_TEST

START_TEST(driver_api) {
    CUmodule module;
    CUfunction function;
    CUdeviceptr x, table;
    unsigned host = 0, n = 1, by = 8;
    size_t size;
    ck_assert_int_eq(cuInit(0), CUDA_SUCCESS);
    ck_assert_int_eq(cuModuleLoadData(&module, text), CUDA_SUCCESS);
    ck_assert_int_eq(cuModuleGetFunction(&function, module, "add"), CUDA_SUCCESS);
    SAYS("the library has no kernel named no", CUDA_ERROR_NOT_FOUND,
         cuModuleGetFunction(&function, module, "no"));
    OK(cudaGetLastError()); // the driver's errors are not the runtime's
    ck_assert_int_eq(cuModuleGetFunction(&function, module, "add"), CUDA_SUCCESS);
    ck_assert_int_eq(cuModuleGetGlobal(&table, &size, module, "table"), CUDA_SUCCESS);
    ck_assert_uint_eq(size, 8);
    ck_assert_int_eq(cuMemAlloc(&x, 4), CUDA_SUCCESS);
    ck_assert_int_eq(cuMemsetD32(x, 100, 1), CUDA_SUCCESS);
    void *arguments[] = {&x, &n, &by};
    ck_assert_int_eq(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL),
                     CUDA_SUCCESS);
    struct {
        CUdeviceptr x;
        unsigned n, by;
    } block = {x, 1, 20};
    size = sizeof block;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &block, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    ck_assert_int_eq(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra),
                     CUDA_SUCCESS);
    ck_assert_int_eq(cuMemcpyDtoH(&host, x, 4), CUDA_SUCCESS);
    ck_assert_uint_eq(host, 128);
    const char *name;
    ck_assert_int_eq(cuGetErrorName(CUDA_ERROR_INVALID_VALUE, &name), CUDA_SUCCESS);
    ck_assert_str_eq(name, "CUDA_ERROR_INVALID_VALUE");
    SAYS("PTX begins with .version", CUDA_ERROR_INVALID_PTX,
         cuModuleLoadData(&module, "this is no PTX"));
    SAYS("PTX for sm_999", CUDA_ERROR_INVALID_PTX,
         cuModuleLoadData(&module, ".version 8.0\n.target sm_999\n"));
    ck_assert_int_eq(cuMemFree(x), CUDA_SUCCESS);
}
END_TEST

START_TEST(names_of_errors) {
    ck_assert_str_eq(cudaGetErrorName(cudaSuccess), "cudaSuccess");
    ck_assert_str_eq(cudaGetErrorName(cudaErrorInvalidValue), "cudaErrorInvalidValue");
    ck_assert_str_eq(cudaGetErrorString(cudaErrorInvalidValue), "invalid argument");
    ck_assert_str_eq(cudaGetErrorString((cudaError_t)12345), "unrecognized error code");
}
END_TEST

// A measurement begins with an empty L2: the same launch reads the same bytes from memory, whatever
// ran before, and pays for nobody's dirty lines.
START_TEST(measurements_begin_alike) {
    extern const SoftgpuInterface *softgpu_interface(void);
    const SoftgpuInterface *softgpu = softgpu_interface();
    SoftgpuStats first, again, warm;
    unsigned *x;
    OK(cudaMalloc((void **)&x, 128));
    OK(cudaMemset(x, 0, 128));
    softgpu->stats_reset();
    OK(launch_add(x, 32, 1, one, (dim3){32, 1, 1}, 0, NULL));
    softgpu->stats(&first);
    OK(launch_add(x, 32, 1, one, (dim3){32, 1, 1}, 0, NULL));
    softgpu->stats(&warm);
    softgpu->stats_reset();
    OK(launch_add(x, 32, 1, one, (dim3){32, 1, 1}, 0, NULL));
    softgpu->stats(&again);
    ck_assert_double_eq(first.hbm_read_bytes, 128);
    ck_assert_double_eq(warm.hbm_read_bytes, 128); // the second launch found the line in L2
    ck_assert_double_eq(again.hbm_read_bytes, 128);
    ck_assert_double_eq(again.hbm_write_bytes, 0);
    OK(cudaFree(x));
}
END_TEST

// PTX linked at run time, as a driver program does: a kernel in one text, what it calls in another.
START_TEST(driver_linker) {
    static char kernel[] = ".version 9.0\n.target sm_80\n.address_size 64\n"
                           ".extern .func (.param .b32 r) twice(.param .b32 x);\n"
                           ".visible .entry k(.param .u64 out) {\n"
                           ".reg .b32 %v; .reg .b64 %p; mov.b32 %v, 21;\n"
                           "{ .param .b32 a; .param .b32 b; st.param.b32 [a], %v;\n"
                           "call (b), twice, (a); ld.param.b32 %v, [b]; }\n"
                           "ld.param.u64 %p, [out]; st.global.b32 [%p], %v; ret; }";
    static char callee[] = ".version 9.0\n.target sm_80\n.address_size 64\n"
                           ".visible .func (.param .b32 r) twice(.param .b32 x) {\n"
                           ".reg .b32 %v; ld.param.b32 %v, [x]; add.u32 %v, %v, %v;\n"
                           "st.param.b32 [r], %v; ret; }";
    char log[100] = "noise";
    CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)sizeof log};
    CUlinkState link;
    void *image;
    size_t size;
    OK((cudaError_t)cuLinkCreate(2, options, values, &link));
    ck_assert_str_eq(log, "");
    ck_assert_int_eq(cuLinkComplete(link, &image, &size), CUDA_ERROR_INVALID_VALUE); // empty
    ck_assert_int_eq(cuLinkAddData(link, CU_JIT_INPUT_PTX, "no PTX", 7, "x", 0, NULL, NULL),
                     CUDA_ERROR_INVALID_PTX);
    SAYS("only PTX", CUDA_ERROR_NO_BINARY_FOR_GPU,
         cuLinkAddData(link, CU_JIT_INPUT_CUBIN, kernel, 9, "x", 0, NULL, NULL));
    ck_assert_int_eq(cuLinkAddFile(link, CU_JIT_INPUT_PTX, "/no/such", 0, NULL, NULL),
                     CUDA_ERROR_FILE_NOT_FOUND);
    OK((cudaError_t)cuLinkAddData(link, CU_JIT_INPUT_PTX, kernel, sizeof kernel, "k", 0, 0, 0));
    OK((cudaError_t)cuLinkAddData(link, CU_JIT_INPUT_PTX, callee, sizeof callee, "c", 0, 0, 0));
    OK((cudaError_t)cuLinkComplete(link, &image, &size));
    CUmodule module;
    CUfunction function;
    OK((cudaError_t)cuModuleLoadData(&module, image));
    OK((cudaError_t)cuLinkDestroy(link));
    ck_assert_int_eq(cuLinkDestroy(link), CUDA_ERROR_INVALID_HANDLE);
    OK((cudaError_t)cuModuleGetFunction(&function, module, "k"));
    unsigned *out;
    OK(cudaMallocManaged((void **)&out, 4, cudaMemAttachGlobal));
    void *arguments[] = {&out};
    OK((cudaError_t)cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    OK(cudaDeviceSynchronize());
    ck_assert_uint_eq(*out, 42);
}
END_TEST

// A program may free the image of a module that it has loaded.
START_TEST(images_are_copied) {
    char *text = strdup(".version 9.0\n.target sm_80\n.address_size 64\n"
                        ".visible .entry k() { ret; }");
    CUmodule module;
    CUfunction function;
    OK((cudaError_t)cuModuleLoadData(&module, text));
    memset(text, 'x', strlen(text));
    free(text);
    OK((cudaError_t)cuModuleGetFunction(&function, module, "k"));
    OK((cudaError_t)cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
    OK(cudaDeviceReset());
    OK((cudaError_t)cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
}
END_TEST

// Findings beyond those that are kept count once, like the others.
START_TEST(findings_count_once) {
    extern const SoftgpuInterface *softgpu_interface(void);
    SoftgpuStats stats;
    softgpu_interface()->stats_reset();
    findings_configure(&(Settings){.report_json = true});
    for (int k = 0; k < 2 * FINDINGS_KEPT; k++)
        finding_global(FINDING_LAUNCH, "k", NULL, "finding number %d", k);
    softgpu_interface()->stats(&stats);
    ck_assert_int_eq(stats.findings, 2 * FINDINGS_KEPT);
}
END_TEST

// Host memory that the program has registered: a kernel works on it in place.
START_TEST(kernels_reach_registered_memory) {
    static unsigned buffer[32];
    unsigned *device = NULL;
    for (unsigned k = 0; k < 32; k++) buffer[k] = k;
    ck_assert_int_eq(cudaHostGetDevicePointer((void **)&device, buffer, 0), cudaErrorInvalidValue);
    OK(cudaHostRegister(buffer, sizeof buffer, cudaHostRegisterMapped));
    ck_assert_int_eq(cudaHostRegister(buffer + 4, 8, 0), cudaErrorHostMemoryAlreadyRegistered);
    OK(cudaHostGetDevicePointer((void **)&device, buffer, 0));
    struct cudaPointerAttributes attributes;
    OK(cudaPointerGetAttributes(&attributes, buffer + 3));
    ck_assert_int_eq(attributes.type, cudaMemoryTypeHost);
    OK(launch_add(device, 32, 5, one, (dim3){32, 1, 1}, 0, NULL));
    for (unsigned k = 0; k < 32; k++) ck_assert_uint_eq(buffer[k], k + 5);
    SAYS("not allocated by the matching call", cudaErrorInvalidValue, cudaFreeHost(buffer));
    SAYS("not allocated by the matching call", cudaErrorInvalidValue, cudaFree(buffer));
    OK(cudaHostUnregister(buffer));
    ck_assert_int_eq(cudaHostUnregister(buffer), cudaErrorHostMemoryNotRegistered);
    // And plain pinned memory.
    unsigned *pinned;
    OK(cudaHostAlloc((void **)&pinned, sizeof buffer, cudaHostAllocDefault));
    for (unsigned k = 0; k < 32; k++) pinned[k] = k;
    OK(launch_add(pinned, 32, 7, one, (dim3){32, 1, 1}, 0, NULL));
    for (unsigned k = 0; k < 32; k++) ck_assert_uint_eq(pinned[k], k + 7);
    OK(cudaFreeHost(pinned));
    // Without being registered, host memory is out of reach.
    SAYS("use after free", cudaErrorIllegalAddress,
         launch_add(buffer, 32, 5, one, (dim3){32, 1, 1}, 0, NULL));
}
END_TEST

START_TEST(stats_interface) {
    // Looked up as the harness does it, but the function is in this program too.
    extern const SoftgpuInterface *softgpu_interface(void);
    const SoftgpuInterface *softgpu = softgpu_interface();
    SoftgpuStats stats;
    unsigned *x;
    OK(cudaMalloc((void **)&x, 128));
    OK(cudaMemset(x, 0, 128));
    softgpu->stats_reset();
    OK(launch_add(x, 32, 1, one, (dim3){32, 1, 1}, 0, NULL));
    softgpu->stats(&stats);
    ck_assert_uint_eq(stats.kernels, 1);
    ck_assert_double_ge(stats.thread_instructions, 32 * 10);
    ck_assert_double_gt(stats.time_us, 0);
    ck_assert_int_eq(softgpu->set("gpu", "a100"), -1); // too late
    ck_assert_int_eq(softgpu->set("schedule", "not a number"), -1);
    ck_assert_int_eq(softgpu->set("schedule", "3"), 0);
    OK(launch_add(x, 32, 1, one, (dim3){32, 1, 1}, 0, NULL));
    ck_assert_int_eq(softgpu->set("schedule", "0"), 0);
    OK(cudaFree(x));
}
END_TEST

Suite *suite_api(void) {
    Suite *suite = suite_create("api");
    TCase *tests = tcase_create("runtime");
    tcase_add_checked_fixture(tests, setup, said_end); // in the test's own process
    tcase_add_test(tests, launch_both_ways);
    tcase_add_test(tests, nested_configurations);
    tcase_add_test(tests, refused_launches);
    tcase_add_test(tests, more_shared_memory_must_be_asked_for);
    tcase_add_test(tests, sticky_errors);
    tcase_add_test(tests, variables);
    tcase_add_test(tests, bad_copies);
    tcase_add_test(tests, rows_and_planes);
    tcase_add_test(tests, pointers);
    tcase_add_test(tests, events_follow_the_modelled_clock);
    tcase_add_test(tests, capture_and_replay);
    tcase_add_test(tests, graph_order);
    tcase_add_test(tests, driver_api);
    tcase_add_test(tests, names_of_errors);
    tcase_add_test(tests, measurements_begin_alike);
    tcase_add_test(tests, stats_interface);
    tcase_add_test(tests, findings_count_once);
    tcase_add_test(tests, driver_linker);
    tcase_add_test(tests, images_are_copied);
    tcase_add_test(tests, kernels_reach_registered_memory);
    suite_add_tcase(suite, tests);
    return suite;
}
