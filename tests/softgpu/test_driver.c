// The driver API: modules, launches, PTX linked at run time.
#include "api_program.h"

Suite *suite_driver(void);

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

Suite *suite_driver(void) {
    Suite *suite = suite_create("driver api");
    TCase *tests = tcase_create("driver");
    tcase_add_checked_fixture(tests, setup, said_end); // in the test's own process
    tcase_add_test(tests, driver_api);
    tcase_add_test(tests, driver_linker);
    tcase_add_test(tests, images_are_copied);
    suite_add_tcase(suite, tests);
    return suite;
}
