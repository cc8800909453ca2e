// The runtime API in one process: registration, launches, copies, errors, streams (api_program.h).
// Graphs are in test_graph.c, the driver API in test_driver.c.
#include "api_program.h"

#include "softgpu/check/findings.h"
#include "softgpu/softgpu.h"

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
    tcase_add_test(tests, names_of_errors);
    tcase_add_test(tests, measurements_begin_alike);
    tcase_add_test(tests, stats_interface);
    tcase_add_test(tests, findings_count_once);
    tcase_add_test(tests, kernels_reach_registered_memory);
    suite_add_tcase(suite, tests);
    return suite;
}
