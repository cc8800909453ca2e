// The device: its properties, attributes and limits, as the modelled GPU has them. There is one, 0.
#define _GNU_SOURCE // dladdr
#include "softgpu/api/api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CUDA_VERSION_ANSWERED = 13000 };

EXPORT cudaError_t cudaDriverGetVersion(int *version) {
    if (version == NULL) return api_result(cudaErrorInvalidValue);
    *version = CUDA_VERSION_ANSWERED;
    return cudaSuccess;
}

EXPORT cudaError_t cudaRuntimeGetVersion(int *version) {
    return cudaDriverGetVersion(version);
}

EXPORT cudaError_t cudaGetDeviceCount(int *count) {
    if (count == NULL) return api_result(cudaErrorInvalidValue);
    *count = 1;
    return cudaSuccess;
}

EXPORT cudaError_t cudaGetDevice(int *device) {
    if (device == NULL) return api_result(cudaErrorInvalidValue);
    *device = 0;
    return cudaSuccess;
}

EXPORT cudaError_t cudaSetDevice(int device) {
    return device == 0 ? cudaSuccess : api_result(cudaErrorInvalidDevice);
}

EXPORT cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags) {
    (void)device_flags, (void)flags;
    return cudaSetDevice(device);
}

EXPORT cudaError_t cudaSetValidDevices(int *devices, int count) {
    if (devices == NULL || count < 1) return api_result(cudaErrorInvalidValue);
    return cudaSetDevice(devices[0]);
}

EXPORT cudaError_t cudaChooseDevice(int *device, const struct cudaDeviceProp *wanted) {
    (void)wanted;
    return cudaGetDevice(device);
}

static unsigned device_flags;

EXPORT cudaError_t cudaSetDeviceFlags(unsigned flags) {
    device_flags = flags;
    return cudaSuccess;
}

EXPORT cudaError_t cudaGetDeviceFlags(unsigned *flags) {
    if (flags == NULL) return api_result(cudaErrorInvalidValue);
    *flags = device_flags;
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceSynchronize(void) {
    API_BEGIN();
    api_gpu();
    return cudaSuccess;
}

// Starts afresh: memory is freed, modules are loaded anew, and a kernel's fault is forgotten.
void device_reset(void) {
    api.sticky = cudaSuccess;
    api_forget_error();
    if (api.gpu == NULL) return;
    memory_free_all();
    modules_reset();
}

EXPORT cudaError_t cudaDeviceReset(void) {
    API_ENTER();
    device_reset();
    return cudaSuccess;
}

EXPORT cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
    API_ENTER();
    if (p == NULL || device != 0)
        return api_result(p ? cudaErrorInvalidDevice : cudaErrorInvalidValue);
    const GpuFigures *f = &api_gpu()->figures;
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "%s", f->full_name);
    memcpy(p->uuid.bytes, "softgpu device 0", sizeof p->uuid.bytes);
    p->totalGlobalMem = f->memory_bytes;
    p->sharedMemPerBlock = 48 << 10;
    p->regsPerBlock = (int)f->registers_per_sm;
    p->warpSize = WARP_SIZE;
    p->memPitch = INT32_MAX;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = INT32_MAX;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->totalConstMem = 64 << 10;
    p->major = f->capability_major;
    p->minor = f->capability_minor;
    p->textureAlignment = 512;
    p->texturePitchAlignment = 32;
    p->multiProcessorCount = f->sms;
    p->canMapHostMemory = 1;
    p->surfaceAlignment = 512;
    p->concurrentKernels = 1;
    p->ECCEnabled = 1;
    p->asyncEngineCount = 3;
    p->unifiedAddressing = 1;
    p->memoryBusWidth = f->capability_major >= 10 ? 8192 : 5120;
    p->l2CacheSize = (int)f->l2_bytes;
    p->persistingL2CacheMaxSize = (int)(f->l2_bytes / 2);
    p->maxThreadsPerMultiProcessor = (int)f->threads_per_sm;
    p->streamPrioritiesSupported = 1;
    p->globalL1CacheSupported = p->localL1CacheSupported = 1;
    p->sharedMemPerMultiprocessor = f->shared_per_sm;
    p->regsPerMultiprocessor = (int)f->registers_per_sm;
    p->managedMemory = 1;
    p->concurrentManagedAccess = 1;
    p->hostNativeAtomicSupported = 0;
    p->pageableMemoryAccess = 0;
    p->cooperativeLaunch = 1;
    p->sharedMemPerBlockOptin = f->shared_per_cta;
    p->accessPolicyMaxWindowSize = 128 << 20;
    p->maxBlocksPerMultiProcessor = (int)f->ctas_per_sm;
    p->reservedSharedMemPerBlock = f->shared_reserved;
    p->memoryPoolsSupported = 1;
    p->clusterLaunch = f->capability_major >= 9;
    p->unifiedFunctionPointers = 0;
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    API_ENTER();
    if (value == NULL || device != 0)
        return api_result(value ? cudaErrorInvalidDevice : cudaErrorInvalidValue);
    const GpuFigures *f = &api_gpu()->figures;
    bool hopper = f->capability_major >= 9;
    switch ((int)attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY: *value = 1024; break;
    case cudaDevAttrMaxBlockDimZ: *value = 64; break;
    case cudaDevAttrMaxGridDimX:
    case cudaDevAttrMaxPitch: *value = INT32_MAX; break;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ: *value = 65535; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 << 10; break;
    case cudaDevAttrTotalConstantMemory: *value = 64 << 10; break;
    case cudaDevAttrWarpSize: *value = WARP_SIZE; break;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = (int)f->registers_per_sm; break;
    case cudaDevAttrClockRate: *value = (int)(f->boost_ghz * 1e6); break;
    case cudaDevAttrTextureAlignment: *value = 512; break;
    case cudaDevAttrMultiProcessorCount: *value = f->sms; break;
    case cudaDevAttrMemoryClockRate: // kHz, from the bandwidth of a double-data-rate bus
        *value =
            (int)(f->hbm_bytes_per_s / 1e3 / 2 / ((f->capability_major >= 10 ? 8192 : 5120) / 8));
        break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = f->capability_major >= 10 ? 8192 : 5120; break;
    case cudaDevAttrL2CacheSize: *value = (int)f->l2_bytes; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = (int)f->threads_per_sm; break;
    case cudaDevAttrAsyncEngineCount: *value = 3; break;
    case cudaDevAttrComputeCapabilityMajor: *value = f->capability_major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = f->capability_minor; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = (int)f->shared_per_sm; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)f->shared_per_cta; break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = (int)f->shared_reserved; break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = (int)f->ctas_per_sm; break;
    case cudaDevAttrMaxPersistingL2CacheSize: *value = (int)(f->l2_bytes / 2); break;
    case cudaDevAttrMaxAccessPolicyWindowSize: *value = 128 << 20; break;
    case cudaDevAttrGpuOverlap:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrEccEnabled:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrGlobalL1CacheSupported:
    case cudaDevAttrLocalL1CacheSupported:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrComputePreemptionSupported:
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrMemoryPoolsSupported: *value = 1; break;
    case 120: *value = hopper; break; // cluster launch
    case cudaDevAttrSingleToDoublePrecisionPerfRatio:
        *value = f->fp64_lanes > 0 ? (int)(f->fma_lanes / f->fp64_lanes) : 64;
        break;
    // What the modelled GPU is not, or softgpu doesn't have: integrated, watchdog, exclusive modes,
    // PCI position, host atomics, pageable access, sparse arrays, IPC.
    default:
        if ((int)attribute < 1 || attribute >= cudaDevAttrMax)
            return api_result(cudaErrorInvalidValue);
        *value = 0;
    }
    return cudaSuccess;
}

// ---- limits and preferences

// The variable that keeps a limit, or NULL.
static size_t *limit_of(enum cudaLimit limit) {
    switch (limit) {
    case cudaLimitStackSize: return &api.stack_limit;
    case cudaLimitMallocHeapSize: return &api.heap_limit;
    case cudaLimitPrintfFifoSize: return &api.printf_limit;
    default: return NULL;
    }
}

EXPORT cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value) {
    API_BEGIN();
    size_t *kept = limit_of(limit);
    if (kept == NULL) // L2 fetch granularity, persisting L2, nested launches: hints
        return limit == cudaLimitMaxL2FetchGranularity || limit == cudaLimitPersistingL2CacheSize
                   ? cudaSuccess
                   : api_result(cudaErrorUnsupportedLimit);
    *kept = value;
    if (limit == cudaLimitStackSize) api_gpu()->stack_limit = value;
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetLimit(size_t *value, enum cudaLimit limit) {
    API_BEGIN();
    const size_t *kept = limit_of(limit);
    if (value == NULL) return api_result(cudaErrorInvalidValue);
    if (kept == NULL) return api_result(cudaErrorUnsupportedLimit);
    *value = *kept;
    return cudaSuccess;
}

static enum cudaFuncCache cache_config;
static enum cudaSharedMemConfig bank_config = cudaSharedMemBankSizeFourByte;

EXPORT cudaError_t cudaDeviceSetCacheConfig(enum cudaFuncCache config) {
    cache_config = config;
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetCacheConfig(enum cudaFuncCache *config) {
    if (config == NULL) return api_result(cudaErrorInvalidValue);
    *config = cache_config;
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceSetSharedMemConfig(enum cudaSharedMemConfig config) {
    (void)config; // GPUs since Maxwell have banks of four bytes, whatever is asked for
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetSharedMemConfig(enum cudaSharedMemConfig *config) {
    if (config == NULL) return api_result(cudaErrorInvalidValue);
    *config = bank_config;
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return cudaSuccess;
}

EXPORT cudaError_t cudaCtxResetPersistingL2Cache(void) {
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetPCIBusId(char *id, int size, int device) {
    if (id == NULL || size < 13 || device != 0)
        return api_result(device ? cudaErrorInvalidDevice : cudaErrorInvalidValue);
    snprintf(id, (size_t)size, "0000:00:00.0");
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *id) {
    if (device == NULL || id == NULL) return api_result(cudaErrorInvalidValue);
    *device = 0;
    return strcmp(id, "0000:00:00.0") ? api_result(cudaErrorInvalidDevice) : cudaSuccess;
}

// ---- peers: there is one device, and it is no peer of itself

EXPORT cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    if (can == NULL) return api_result(cudaErrorInvalidValue);
    *can = 0;
    return device == 0 && peer == 0 ? cudaSuccess : api_result(cudaErrorInvalidDevice);
}

EXPORT cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    (void)peer, (void)flags;
    return api_result(cudaErrorInvalidDevice);
}

EXPORT cudaError_t cudaDeviceDisablePeerAccess(int peer) {
    (void)peer;
    return api_result(cudaErrorPeerAccessNotEnabled);
}

EXPORT cudaError_t cudaProfilerStart(void) {
    return cudaSuccess;
}
EXPORT cudaError_t cudaProfilerStop(void) {
    return cudaSuccess;
}

EXPORT struct cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w,
                                                          enum cudaChannelFormatKind kind) {
    return (struct cudaChannelFormatDesc){.x = x, .y = y, .z = z, .w = w, .f = kind};
}

// ---- driver functions by name

// This library: the driver's functions are in it too (libcuda.so.1 only leads here).
static void *own_library(void) {
    static void *library;
    Dl_info self;
    if (library == NULL && dladdr((void *)&own_library, &self) && self.dli_fname)
        library = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    return library;
}

void *driver_function(const char *name) {
    void *library = own_library();
    if (library == NULL || strncmp(name, "cu", 2) || !strncmp(name, "cuda", 4)) return NULL;
    // The newest variant wins, as the driver answers to a program of this version.
    static const char *const variants[] = {"_v4", "_v3", "_v2", ""};
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        char full[256];
        snprintf(full, sizeof full, "%s%s", name, variants[i]);
        void *function = dlsym(library, full);
        if (function) return function;
    }
    return NULL;
}

EXPORT cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function,
                                                    unsigned version, unsigned long long flags,
                                                    enum cudaDriverEntryPointQueryResult *result) {
    API_ENTER();
    (void)version, (void)flags;
    if (name == NULL || function == NULL) return api_result(cudaErrorInvalidValue);
    *function = driver_function(name);
    if (result)
        *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    if (*function == NULL)
        api_note("the program asks for the driver function %s, which doesn't exist", name);
    return cudaSuccess;
}
TWIN(cudaGetDriverEntryPointByVersion, ptsz);

EXPORT cudaError_t cudaGetDriverEntryPoint(const char *name, void **function,
                                           unsigned long long flags,
                                           enum cudaDriverEntryPointQueryResult *result) {
    return cudaGetDriverEntryPointByVersion(name, function, CUDA_VERSION_ANSWERED, flags, result);
}
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
TWIN(cudaGetDriverEntryPoint, ptsz);
