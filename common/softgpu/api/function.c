// Questions about kernels: attributes, occupancy; and libraries that a program loads itself.
#include "softgpu/api/api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/machine/cluster.h"

// The kernel of a function argument, lowered.
static cudaError_t find_kernel(const void *function, ApiKernel **kernel) {
    *kernel = kernel_of(function);
    if (*kernel == NULL) return api_result(cudaErrorInvalidDeviceFunction);
    return kernel_prepare(*kernel);
}

// The most threads that a block of a kernel can have.
static int threads_max(const Kernel *code) {
    const uint32_t *n = code->ptx->reqntid[0] ? code->ptx->reqntid : code->ptx->maxntid;
    uint32_t most = n[0] ? n[0] * (n[1] ? n[1] : 1) * (n[2] ? n[2] : 1) : 1024;
    const GpuFigures *f = &api_gpu()->figures;
    while (most > WARP_SIZE && gpu_occupancy(f, code, most, 0, (char[160]){0}, 160) == 0)
        most = (most - 1) / WARP_SIZE * WARP_SIZE;
    return (int)(most < 1024 ? most : 1024);
}

// Dynamic shared memory that a launch may ask for now.
static uint32_t dynamic_max(const ApiKernel *kernel) {
    enum { FREE = 48 << 10 };
    uint32_t unasked = kernel->code->shared_static < FREE ? FREE - kernel->code->shared_static : 0;
    return kernel->dynamic_limit > unasked ? kernel->dynamic_limit : unasked;
}

EXPORT cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *function) {
    API_BEGIN();
    ApiKernel *kernel = NULL;
    cudaError_t error = a ? find_kernel(function, &kernel) : api_result(cudaErrorInvalidValue);
    if (error) return error;
    const Kernel *code = kernel->code;
    const uint32_t *cluster = code->ptx->reqnctapercluster;
    memset(a, 0, sizeof *a);
    a->sharedSizeBytes = code->shared_static;
    a->localSizeBytes = code->local_size;
    a->maxThreadsPerBlock = threads_max(code);
    a->numRegs = (int)code->registers;
    a->ptxVersion = code->ptx->module->target_sm;
    a->binaryVersion = api_capability();
    a->maxDynamicSharedSizeBytes = (int)dynamic_max(kernel);
    a->preferredShmemCarveout = kernel->carveout;
    a->clusterDimMustBeSet = kernel->cluster_must_be_set || code->ptx->explicit_cluster;
    const uint32_t *own = cluster[0] ? cluster : kernel->required_cluster;
    a->requiredClusterWidth = (int)own[0];
    a->requiredClusterHeight = own[0] ? (int)(own[1] ? own[1] : 1) : 0;
    a->requiredClusterDepth = own[0] ? (int)(own[2] ? own[2] : 1) : 0;
    a->clusterSchedulingPolicyPreference = kernel->cluster_policy;
    a->nonPortableClusterSizeAllowed = kernel->non_portable_cluster;
    return cudaSuccess;
}

// Opts in to dynamic shared memory over 48 KB.
static cudaError_t set_dynamic_limit(ApiKernel *kernel, int value) {
    uint32_t most = api_gpu()->figures.shared_per_cta - kernel->code->shared_static;
    if (value < 0 || (uint32_t)value > most)
        return api_explain(cudaErrorInvalidValue,
                           "cudaFuncSetAttribute(%s, MaxDynamicSharedMemorySize, %d): at most %u "
                           "bytes (%u on %s, less %u static)",
                           kernel->name, value, most, api_gpu()->figures.shared_per_cta,
                           api_gpu()->figures.full_name, kernel->code->shared_static);
    kernel->dynamic_limit = (uint32_t)value;
    return cudaSuccess;
}

EXPORT cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute,
                                        int value) {
    API_BEGIN();
    ApiKernel *kernel = NULL;
    cudaError_t error = find_kernel(function, &kernel);
    if (error) return error;
    switch (attribute) {
    case cudaFuncAttributeMaxDynamicSharedMemorySize: return set_dynamic_limit(kernel, value);
    case cudaFuncAttributePreferredSharedMemoryCarveout:
        if (value < -1 || value > 100) return api_result(cudaErrorInvalidValue);
        kernel->carveout = value;
        return cudaSuccess;
    case cudaFuncAttributeClusterDimMustBeSet:
        kernel->cluster_must_be_set = value;
        return cudaSuccess;
    case cudaFuncAttributeRequiredClusterWidth:
    case cudaFuncAttributeRequiredClusterHeight:
    case cudaFuncAttributeRequiredClusterDepth:
        if (value < 0 || kernel->code->ptx->reqnctapercluster[0])
            return api_result(cudaErrorInvalidValue);
        kernel->required_cluster[attribute - cudaFuncAttributeRequiredClusterWidth] =
            (uint32_t)value;
        return cudaSuccess;
    case cudaFuncAttributeNonPortableClusterSizeAllowed:
        kernel->non_portable_cluster = value;
        return cudaSuccess;
    case cudaFuncAttributeClusterSchedulingPolicyPreference:
        kernel->cluster_policy = value;
        return cudaSuccess;
    default: return api_result(cudaErrorInvalidValue);
    }
}

EXPORT cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel,
                                                   enum cudaFuncAttribute attribute, int value,
                                                   int device) {
    if (device != 0) return api_result(cudaErrorInvalidDevice);
    return cudaFuncSetAttribute(kernel, attribute, value);
}

EXPORT cudaError_t cudaFuncSetCacheConfig(const void *function, enum cudaFuncCache config) {
    API_BEGIN();
    ApiKernel *kernel = kernel_of(function);
    if (kernel == NULL) return api_result(cudaErrorInvalidDeviceFunction);
    kernel->cache_config = config; // kept, without effect: the split follows the launch
    return cudaSuccess;
}

EXPORT cudaError_t cudaFuncSetSharedMemConfig(const void *function,
                                              enum cudaSharedMemConfig config) {
    API_BEGIN();
    (void)config;
    return kernel_of(function) ? cudaSuccess : api_result(cudaErrorInvalidDeviceFunction);
}

// ---- occupancy

EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *blocks, const void *function, int threads, size_t dynamic_shared, unsigned flags) {
    API_BEGIN();
    (void)flags;
    ApiKernel *kernel = NULL;
    cudaError_t error =
        blocks && threads > 0 ? find_kernel(function, &kernel) : api_result(cudaErrorInvalidValue);
    if (error) return error;
    char why[160];
    *blocks = 0;
    if (threads <= threads_max(kernel->code) && dynamic_shared <= UINT32_MAX)
        *blocks = gpu_occupancy(&api_gpu()->figures, kernel->code, (uint32_t)threads,
                                (uint32_t)dynamic_shared, why, sizeof why);
    return cudaSuccess;
}

EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function,
                                                                 int threads,
                                                                 size_t dynamic_shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads,
                                                                  dynamic_shared, 0);
}

EXPORT cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, const void *function,
                                                             int blocks, int threads) {
    API_BEGIN();
    ApiKernel *kernel = NULL;
    cudaError_t error = bytes && blocks > 0 && threads > 0 ? find_kernel(function, &kernel)
                                                           : api_result(cudaErrorInvalidValue);
    if (error) return error;
    // The largest size with which that many blocks fit, by bisection in steps of 128 bytes.
    const GpuFigures *f = &api_gpu()->figures;
    char why[160];
    uint32_t low = 0, high = f->shared_per_cta / 128;
    while (low < high) {
        uint32_t middle = (low + high + 1) / 2;
        if (gpu_occupancy(f, kernel->code, (uint32_t)threads, middle * 128, why, sizeof why) >=
            blocks)
            low = middle;
        else
            high = middle - 1;
    }
    *bytes = (size_t)low * 128;
    return cudaSuccess;
}

// The shape of the cluster that a launch configuration asks for.
static cudaError_t config_request(const cudaLaunchConfig_t *config, const void *function,
                                  LaunchRequest *request) {
    ApiKernel *kernel = NULL;
    cudaError_t error = config ? find_kernel(function, &kernel) : api_result(cudaErrorInvalidValue);
    if (error) return error;
    *request = (LaunchRequest){
        .kernel = kernel,
        .grid = config->gridDim,
        .block = config->blockDim,
        .cluster = {1, 1, 1},
        .dynamic_shared = config->dynamicSmemBytes,
    };
    return launch_attributes(request, config->attrs, config->numAttrs);
}

// Clusters of `size` blocks that the GPU holds at once: a cluster lives inside one GPC.
static int active_clusters(const LaunchRequest *r, uint32_t size) {
    const GpuFigures *f = &api_gpu()->figures;
    char why[160];
    int per_sm = gpu_occupancy(f, r->kernel->code, r->block.x * r->block.y * r->block.z,
                               (uint32_t)r->dynamic_shared, why, sizeof why);
    return per_sm ? cluster_capacity(f, (int)size, per_sm) : 0;
}

EXPORT cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, const void *function,
                                                  const cudaLaunchConfig_t *config) {
    API_BEGIN();
    LaunchRequest r;
    cudaError_t error =
        clusters ? config_request(config, function, &r) : api_result(cudaErrorInvalidValue);
    if (error) return error;
    launch_complete(&r);
    uint32_t size = r.cluster.x * r.cluster.y * r.cluster.z;
    if (size == 0 || size > CLUSTER_MAX) return api_result(cudaErrorInvalidClusterSize);
    *clusters = active_clusters(&r, size);
    return cudaSuccess;
}

EXPORT cudaError_t cudaOccupancyMaxPotentialClusterSize(int *size, const void *function,
                                                        const cudaLaunchConfig_t *config) {
    API_BEGIN();
    LaunchRequest r;
    cudaError_t error =
        size ? config_request(config, function, &r) : api_result(cudaErrorInvalidValue);
    if (error) return error;
    bool hopper = api_gpu()->figures.capability_major >= 9;
    uint32_t most = !hopper ? 1 : r.kernel->non_portable_cluster ? CLUSTER_MAX : 8;
    uint32_t limit = r.kernel->code->ptx->maxclusterrank;
    while (limit && most > limit) most /= 2;
    while (most > 1 && active_clusters(&r, most) == 0) most /= 2;
    *size = (int)most;
    return cudaSuccess;
}

// ---- libraries

EXPORT cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code,
                                       enum cudaJitOption *jit_options, void **jit_values,
                                       unsigned jit_count, enum cudaLibraryOption *options,
                                       void **values, unsigned count) {
    API_BEGIN();
    (void)jit_options, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    cudaError_t error;
    Module *module = library ? module_from_image(code, SIZE_MAX, false, &error) : NULL;
    if (module == NULL) return api_result(cudaErrorInvalidValue);
    *library = error ? NULL : (cudaLibrary_t)module;
    return error;
}

// Reads a whole file; NULL if that can't be done.
static char *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) return NULL;
    char *bytes = NULL;
    size_t capacity = 0, n = 0, got;
    do {
        capacity = capacity ? 2 * capacity : 1 << 16;
        char *more = realloc(bytes, capacity);
        if (more == NULL) abort();
        bytes = more;
        got = fread(bytes + n, 1, capacity - n, file);
        n += got;
    } while (got > 0);
    fclose(file);
    *size = n;
    return bytes;
}

EXPORT cudaError_t cudaLibraryLoadFromFile(cudaLibrary_t *library, const char *path,
                                           enum cudaJitOption *jit_options, void **jit_values,
                                           unsigned jit_count, enum cudaLibraryOption *options,
                                           void **values, unsigned count) {
    API_BEGIN();
    (void)jit_options, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    if (library == NULL || path == NULL) return api_result(cudaErrorInvalidValue);
    size_t size;
    char *bytes = read_file(path, &size);
    if (bytes == NULL) return api_explain(cudaErrorFileNotFound, "%s can't be read", path);
    cudaError_t error;
    Module *module = module_from_image(bytes, size, true, &error);
    free(bytes);
    *library = error ? NULL : (cudaLibrary_t)module;
    return error;
}

EXPORT cudaError_t cudaLibraryUnload(cudaLibrary_t library) {
    API_BEGIN();
    if (!handle_is(library, HANDLE_MODULE)) return api_result(cudaErrorInvalidResourceHandle);
    module_free((Module *)library);
    return cudaSuccess;
}

EXPORT cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library,
                                        const char *name) {
    API_BEGIN();
    if (kernel == NULL || name == NULL || !handle_is(library, HANDLE_MODULE))
        return api_result(cudaErrorInvalidValue);
    cudaError_t error = module_load((Module *)library);
    ApiKernel *found = error ? NULL : module_kernel((Module *)library, name);
    if (found == NULL)
        return error
                   ? error
                   : api_explain(cudaErrorSymbolNotFound,
                                 "the library has no kernel named %s (names are mangled, as after "
                                 ".entry in the PTX)",
                                 name);
    *kernel = (cudaKernel_t)found;
    return cudaSuccess;
}

static cudaError_t library_variable(void **pointer, size_t *size, cudaLibrary_t library,
                                    const char *name) {
    if (name == NULL || !handle_is(library, HANDLE_MODULE))
        return api_result(cudaErrorInvalidValue);
    Module *module = (Module *)library;
    cudaError_t error = module_load(module);
    if (error) return error;
    uint64_t bytes = 0, address = program_variable_address(module->program, name, &bytes);
    if (address == 0) return api_result(cudaErrorSymbolNotFound);
    if (pointer) *pointer = (void *)(uintptr_t)address;
    if (size) *size = bytes;
    return cudaSuccess;
}

EXPORT cudaError_t cudaLibraryGetGlobal(void **pointer, size_t *size, cudaLibrary_t library,
                                        const char *name) {
    API_BEGIN();
    return library_variable(pointer, size, library, name);
}

EXPORT cudaError_t cudaLibraryGetManaged(void **pointer, size_t *size, cudaLibrary_t library,
                                         const char *name) {
    API_BEGIN();
    return library_variable(pointer, size, library, name);
}
