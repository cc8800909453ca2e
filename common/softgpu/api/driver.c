// The driver API, first part: device, contexts, modules, kernels, launches, functions by name. The
// functions live in libcudart.so.13; libcuda.so.1 is an empty library that needs it, so both APIs
// share one state whichever a program links.
#include "softgpu/api/driver.h"

#include <stdio.h>
#include <string.h>

struct CUctx_st {
    char unused;
};
static struct CUctx_st primary;
static _Thread_local CUcontext current;

// ---- start, versions, errors

EXPORT CUresult cuInit(unsigned flags) {
    return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

EXPORT CUresult cuDriverGetVersion(int *version) {
    DRIVER(cudaDriverGetVersion(version));
}

EXPORT CUresult cuGetErrorName(CUresult error, const char **name) {
    if (name == NULL) return CUDA_ERROR_INVALID_VALUE;
    *name = api_error_name((int)error, true);
    return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGetErrorString(CUresult error, const char **text) {
    if (text == NULL) return CUDA_ERROR_INVALID_VALUE;
    *text = api_error_text((int)error);
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// ---- the device

EXPORT CUresult cuDeviceGetCount(int *count) {
    DRIVER(cudaGetDeviceCount(count));
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    if (device == NULL) return CUDA_ERROR_INVALID_VALUE;
    *device = 0;
    return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORT CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
    API_ENTER();
    if (name == NULL || size < 1 || device != 0)
        return device ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
    snprintf(name, (size_t)size, "%s", api_gpu()->figures.full_name);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
    if (uuid == NULL || device != 0)
        return device ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
    memcpy(uuid->bytes, "softgpu device 0", sizeof uuid->bytes);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device) {
    API_ENTER();
    if (bytes == NULL || device != 0)
        return device ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
    *bytes = api_gpu()->figures.memory_bytes;
    return CUDA_SUCCESS;
}

// The attributes of both APIs have the same numbers, but for one that only the driver knows.
EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    if (value && device == 0 && attribute == CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED) {
        API_ENTER();
        *value = api_capability() >= 90;
        return CUDA_SUCCESS;
    }
    DRIVER(cudaDeviceGetAttribute(value, (enum cudaDeviceAttr)attribute, device));
}

EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
    DRIVER(cudaDeviceCanAccessPeer(can, device, peer));
}

EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device) {
    DRIVER(cudaDeviceGetDefaultMemPool((cudaMemPool_t *)pool, device));
}

// ---- contexts: there is one device, so all of them mean the same

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    API_ENTER();
    if (context == NULL || device != 0)
        return device ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
    api_gpu();
    *context = &primary;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device) {
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    DRIVER(cudaDeviceReset());
}

EXPORT CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags) {
    (void)flags;
    return cuDevicePrimaryCtxRelease(device);
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    if (device != 0 || flags == NULL || active == NULL) return CUDA_ERROR_INVALID_VALUE;
    *flags = 0;
    *active = api.gpu != NULL;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxCreate(CUcontext *context, CUctxCreateParams *params, unsigned flags,
                            CUdevice device) {
    (void)params, (void)flags;
    CUresult error = cuDevicePrimaryCtxRetain(context, device);
    if (error == CUDA_SUCCESS) current = *context;
    return error;
}

EXPORT CUresult cuCtxDestroy(CUcontext context) {
    if (context != &primary) return CUDA_ERROR_INVALID_CONTEXT;
    current = NULL;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
    if (context != NULL && context != &primary) return CUDA_ERROR_INVALID_CONTEXT;
    current = context;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *context) {
    if (context == NULL) return CUDA_ERROR_INVALID_VALUE;
    // A runtime call makes the primary context current.
    *context = current ? current : api.gpu ? &primary : NULL;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPushCurrent(CUcontext context) {
    return cuCtxSetCurrent(context);
}

EXPORT CUresult cuCtxPopCurrent(CUcontext *context) {
    if (context) *context = &primary;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetDevice(CUdevice *device) {
    return cuDeviceGet(device, 0);
}

EXPORT CUresult cuCtxGetApiVersion(CUcontext context, unsigned *version) {
    (void)context;
    if (version == NULL) return CUDA_ERROR_INVALID_VALUE;
    *version = 13000;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetFlags(unsigned *flags) {
    DRIVER(cudaGetDeviceFlags(flags));
}

EXPORT CUresult cuCtxSynchronize(void) {
    DRIVER(cudaDeviceSynchronize());
}

EXPORT CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
    DRIVER(cudaDeviceSetLimit((enum cudaLimit)limit, value));
}

EXPORT CUresult cuCtxGetLimit(size_t *value, CUlimit limit) {
    DRIVER(cudaDeviceGetLimit(value, (enum cudaLimit)limit));
}

EXPORT CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
    DRIVER(cudaDeviceSetCacheConfig((enum cudaFuncCache)config));
}

EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    DRIVER(cudaDeviceGetStreamPriorityRange(least, greatest));
}

// ---- modules and libraries: the same thing here

EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    DRIVER(cudaLibraryLoadData((cudaLibrary_t *)module, image, NULL, NULL, 0, NULL, NULL, 0));
}

EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count,
                                   CUjit_option *options, void **values) {
    (void)count, (void)options, (void)values; // options of a compiler that isn't there
    return cuModuleLoadData(module, image);
}

EXPORT CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image) {
    return cuModuleLoadData(module, image);
}

EXPORT CUresult cuModuleLoad(CUmodule *module, const char *path) {
    DRIVER(cudaLibraryLoadFromFile((cudaLibrary_t *)module, path, NULL, NULL, 0, NULL, NULL, 0));
}

EXPORT CUresult cuModuleUnload(CUmodule module) {
    DRIVER(cudaLibraryUnload((cudaLibrary_t)module));
}

EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    DRIVER(cudaLibraryGetKernel((cudaKernel_t *)function, (cudaLibrary_t)module, name));
}

EXPORT CUresult cuModuleGetGlobal(CUdeviceptr *address, size_t *size, CUmodule module,
                                  const char *name) {
    DRIVER(cudaLibraryGetGlobal((void **)address, size, (cudaLibrary_t)module, name));
}

EXPORT CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *options,
                                  void **values, unsigned count, CUlibraryOption *library_options,
                                  void **library_values, unsigned library_count) {
    (void)options, (void)values, (void)count;
    (void)library_options, (void)library_values, (void)library_count;
    return cuModuleLoadData((CUmodule *)library, code);
}

EXPORT CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *options,
                                      void **values, unsigned count,
                                      CUlibraryOption *library_options, void **library_values,
                                      unsigned library_count) {
    (void)options, (void)values, (void)count;
    (void)library_options, (void)library_values, (void)library_count;
    return cuModuleLoad((CUmodule *)library, path);
}

EXPORT CUresult cuLibraryUnload(CUlibrary library) {
    return cuModuleUnload((CUmodule)library);
}

EXPORT CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
    return cuModuleGetFunction((CUfunction *)kernel, (CUmodule)library, name);
}

EXPORT CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library) {
    if (module == NULL) return CUDA_ERROR_INVALID_VALUE;
    *module = (CUmodule)library;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *size, CUlibrary library,
                                   const char *name) {
    return cuModuleGetGlobal(address, size, (CUmodule)library, name);
}

EXPORT CUresult cuLibraryGetManaged(CUdeviceptr *address, size_t *size, CUlibrary library,
                                    const char *name) {
    return cuModuleGetGlobal(address, size, (CUmodule)library, name);
}

// ---- kernels

EXPORT CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
    DRIVER(cudaGetKernel((cudaKernel_t *)function, kernel));
}

EXPORT CUresult cuFuncGetName(const char **name, CUfunction function) {
    DRIVER(cudaFuncGetName(name, function));
}

EXPORT CUresult cuKernelGetName(const char **name, CUkernel kernel) {
    DRIVER(cudaFuncGetName(name, kernel));
}

EXPORT CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset,
                                   size_t *size) {
    DRIVER(cudaFuncGetParamInfo(function, index, offset, size));
}

EXPORT CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *size) {
    DRIVER(cudaFuncGetParamInfo(kernel, index, offset, size));
}

EXPORT CUresult cuFuncGetModule(CUmodule *module, CUfunction function) {
    API_ENTER();
    ApiKernel *kernel = kernel_of(function);
    if (kernel == NULL || module == NULL)
        return kernel ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    *module = (CUmodule)kernel->module;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncLoad(CUfunction function) {
    API_ENTER();
    ApiKernel *kernel = kernel_of(function);
    if (kernel == NULL) return CUDA_ERROR_INVALID_HANDLE;
    DRIVER(kernel_prepare(kernel));
}

EXPORT CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute,
                                   CUfunction function) {
    struct cudaFuncAttributes a;
    cudaError_t kept = api_keep_error();
    cudaError_t error = value ? cudaFuncGetAttributes(&a, function) : cudaErrorInvalidValue;
    api_restore_error(kept);
    if (error) return (CUresult)error;
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = a.maxThreadsPerBlock; break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = (int)a.sharedSizeBytes; break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: *value = (int)a.constSizeBytes; break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = (int)a.localSizeBytes; break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = a.numRegs; break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION: *value = a.ptxVersion; break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = a.binaryVersion; break;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA: *value = a.cacheModeCA; break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = a.maxDynamicSharedSizeBytes;
        break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        *value = a.preferredShmemCarveout;
        break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET: *value = a.clusterDimMustBeSet; break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH: *value = a.requiredClusterWidth; break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT: *value = a.requiredClusterHeight; break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH: *value = a.requiredClusterDepth; break;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        *value = a.nonPortableClusterSizeAllowed;
        break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        *value = a.clusterSchedulingPolicyPreference;
        break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    DRIVER(cudaFuncSetAttribute(function, (enum cudaFuncAttribute)attribute, value));
}

EXPORT CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel,
                                     CUdevice device) {
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    return cuFuncGetAttribute(value, attribute, (CUfunction)kernel);
}

EXPORT CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
                                     CUdevice device) {
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    return cuFuncSetAttribute((CUfunction)kernel, attribute, value);
}

EXPORT CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) {
    DRIVER(cudaFuncSetCacheConfig(function, (enum cudaFuncCache)config));
}

// ---- launches

// The parameter block of a launch's `extra` list, or NULL.
static const void *extra_block(void **extra, size_t *size) {
    const void *block = NULL;
    *size = 0;
    for (; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
            block = extra[1];
        else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
            *size = *(const size_t *)extra[1];
        else
            return NULL;
    }
    return block;
}

static cudaError_t driver_launch(LaunchRequest *request, CUfunction function,
                                 const CUlaunchConfig *config, void **arguments, void **extra) {
    API_BEGIN();
    request->kernel = kernel_of(function);
    if (request->kernel == NULL) return api_result(cudaErrorInvalidResourceHandle);
    if (config) {
        // Both APIs lay out launch attributes in the same way.
        cudaError_t error = launch_attributes(request, (const cudaLaunchAttribute *)config->attrs,
                                              config->numAttrs);
        if (error) return error;
    }
    size_t size;
    const void *block = arguments ? NULL : extra_block(extra, &size);
    return launch(request, arguments, block, arguments ? 0 : size);
}

EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz,
                               unsigned bx, unsigned by, unsigned bz, unsigned dynamic_shared,
                               CUstream stream, void **arguments, void **extra) {
    LaunchRequest request = {.grid = {gx, gy, gz},
                             .block = {bx, by, bz},
                             .dynamic_shared = dynamic_shared,
                             .stream = stream};
    DRIVER(driver_launch(&request, function, NULL, arguments, extra));
}
TWIN(cuLaunchKernel, ptsz);

EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction function, void **arguments,
                                 void **extra) {
    if (c == NULL) return CUDA_ERROR_INVALID_VALUE;
    LaunchRequest request = {.grid = {c->gridDimX, c->gridDimY, c->gridDimZ},
                             .block = {c->blockDimX, c->blockDimY, c->blockDimZ},
                             .dynamic_shared = c->sharedMemBytes,
                             .stream = c->hStream};
    DRIVER(driver_launch(&request, function, c, arguments, extra));
}
TWIN(cuLaunchKernelEx, ptsz);

EXPORT CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned gx, unsigned gy,
                                          unsigned gz, unsigned bx, unsigned by, unsigned bz,
                                          unsigned dynamic_shared, CUstream stream,
                                          void **arguments) {
    LaunchRequest request = {.grid = {gx, gy, gz},
                             .block = {bx, by, bz},
                             .dynamic_shared = dynamic_shared,
                             .stream = stream,
                             .cooperative = true};
    DRIVER(driver_launch(&request, function, NULL, arguments, NULL));
}
TWIN(cuLaunchCooperativeKernel, ptsz);

EXPORT CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data) {
    DRIVER(cudaLaunchHostFunc(stream, function, data));
}
TWIN(cuLaunchHostFunc, ptsz);

// A driver's launch configuration as the runtime has it; both lay out attributes in the same way.
static cudaLaunchConfig_t runtime_config(const CUlaunchConfig *c) {
    return (cudaLaunchConfig_t){.gridDim = {c->gridDimX, c->gridDimY, c->gridDimZ},
                                .blockDim = {c->blockDimX, c->blockDimY, c->blockDimZ},
                                .dynamicSmemBytes = c->sharedMemBytes,
                                .stream = c->hStream,
                                .attrs = (cudaLaunchAttribute *)c->attrs,
                                .numAttrs = c->numAttrs};
}

EXPORT CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction function,
                                             const CUlaunchConfig *c) {
    if (c == NULL) return CUDA_ERROR_INVALID_VALUE;
    cudaLaunchConfig_t config = runtime_config(c);
    DRIVER(cudaOccupancyMaxActiveClusters(clusters, function, &config));
}

EXPORT CUresult cuOccupancyMaxPotentialClusterSize(int *size, CUfunction function,
                                                   const CUlaunchConfig *c) {
    if (c == NULL) return CUDA_ERROR_INVALID_VALUE;
    cudaLaunchConfig_t config = runtime_config(c);
    DRIVER(cudaOccupancyMaxPotentialClusterSize(size, function, &config));
}

EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function,
                                                            int threads, size_t dynamic_shared) {
    DRIVER(
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, dynamic_shared));
}

EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *blocks, CUfunction function, int threads, size_t dynamic_shared, unsigned flags) {
    DRIVER(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads,
                                                                  dynamic_shared, flags));
}

EXPORT CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction function,
                                                        int blocks, int threads) {
    DRIVER(cudaOccupancyAvailableDynamicSMemPerBlock(bytes, function, blocks, threads));
}

// The block size with the most resident threads, the largest of equals.
EXPORT CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction function,
                                                 CUoccupancyB2DSize shared_of_block,
                                                 size_t dynamic_shared, int limit) {
    int most = 0, best = 0, best_per_sm = 0;
    if (grid == NULL || block == NULL) return CUDA_ERROR_INVALID_VALUE;
    CUresult error = cuFuncGetAttribute(&most, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function);
    if (error) return error;
    if (limit > 0 && limit < most) most = limit;
    for (int threads = most; threads > 0; threads = (threads - 1) / WARP_SIZE * WARP_SIZE) {
        size_t shared = shared_of_block ? shared_of_block(threads) : dynamic_shared;
        int per_sm = 0;
        cuOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, function, threads, shared);
        if (per_sm * threads > best_per_sm * best) {
            best = threads;
            best_per_sm = per_sm;
        }
    }
    *block = best;
    API_ENTER();
    *grid = best_per_sm * api_gpu()->figures.sms;
    return best ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block,
                                                          CUfunction function,
                                                          CUoccupancyB2DSize shared_of_block,
                                                          size_t dynamic_shared, int limit,
                                                          unsigned flags) {
    (void)flags;
    return cuOccupancyMaxPotentialBlockSize(grid, block, function, shared_of_block, dynamic_shared,
                                            limit);
}

// ---- functions by name

EXPORT CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags,
                                 CUdriverProcAddressQueryResult *status) {
    API_ENTER();
    (void)version, (void)flags;
    if (name == NULL || function == NULL) return CUDA_ERROR_INVALID_VALUE;
    *function = driver_function(name);
    if (status)
        *status = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

// A runtime that is linked statically asks for the driver's private tables, first of all.
EXPORT CUresult cuGetExportTable(const void **table, const CUuuid *id) {
    (void)table, (void)id;
    api_note("this program has the CUDA runtime linked into it, so softgpu can't take its place: "
             "rebuild it with nvcc -cudart shared");
    return CUDA_ERROR_NOT_SUPPORTED;
}

EXPORT CUresult cuProfilerStart(void) {
    return CUDA_SUCCESS;
}
EXPORT CUresult cuProfilerStop(void) {
    return CUDA_SUCCESS;
}
