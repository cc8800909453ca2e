// Allocations: device, managed, pinned, pitched, stream-ordered. All of them are allocations of
// machine/global.h; what a pointer is, is found by its address.
#include "softgpu/api/api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PITCH_ALIGN = 512, PAGE = 4096 };

static PointerMap owned; // what the program has allocated and not freed

// The live allocation that holds an address, or NULL.
static const Allocation *allocation_of(uint64_t address) {
    const Allocation *a = api.gpu ? global_find(api.gpu->memory, address) : NULL;
    if (a == NULL || a->freed || address < a->address) return NULL;
    return address - a->address < (a->size ? a->size : 1) ? a : NULL;
}

// Does an address lie where only device (or managed, pinned) memory can be?
static bool in_device_space(uint64_t address) {
    if (api.gpu == NULL) return false;
    const struct GlobalMemory *m = api.gpu->memory;
    return address - m->device_base < m->device_size || address - m->host_base < m->host_size;
}

Place memory_place(const void *address, size_t size) {
    uint64_t a = (uint64_t)(uintptr_t)address;
    const Allocation *found = allocation_of(a);
    if (found) {
        bool leaves = size > found->size - (a - found->address);
        if (leaves) return found->kind == MEMORY_REGISTERED ? PLACE_HOST : PLACE_NOWHERE;
        switch (found->kind) {
        case MEMORY_MANAGED: return PLACE_MANAGED;
        case MEMORY_PINNED:
        case MEMORY_REGISTERED: return PLACE_PINNED;
        default: return PLACE_DEVICE;
        }
    }
    return in_device_space(a) ? PLACE_NOWHERE : PLACE_HOST;
}

cudaError_t memory_complain(const char *call, const char *what, const void *address, size_t size) {
    uint64_t a = (uint64_t)(uintptr_t)address;
    const Allocation *near = api.gpu ? global_nearest(api.gpu->memory, a) : NULL;
    if (near == NULL)
        return api_explain(cudaErrorInvalidValue, "%s: %s %p is no device memory", call, what,
                           address);
    const char *name = near->name ? near->name : "the allocation";
    if (near->freed)
        return api_explain(
            cudaErrorInvalidValue, "%s: %s %p lies in memory that was freed (%llu bytes at %#llx)",
            call, what, address, (unsigned long long)near->size, (unsigned long long)near->address);
    if (a >= near->address && a - near->address <= near->size)
        return api_explain(cudaErrorInvalidValue,
                           "%s: %zu bytes at %s %p reach %llu bytes past the end of %s of %llu "
                           "bytes at %#llx",
                           call, size, what, address,
                           (unsigned long long)(a - near->address + size - near->size), name,
                           (unsigned long long)near->size, (unsigned long long)near->address);
    return api_explain(
        cudaErrorInvalidValue, "%s: %s %p is in no allocation; the nearest has %llu bytes at %#llx",
        call, what, address, (unsigned long long)near->size, (unsigned long long)near->address);
}

// Allocates, or explains that the modelled GPU's memory is used up.
static cudaError_t allocate(void **pointer, size_t size, MemoryKind kind, const char *call) {
    if (pointer == NULL) return api_result(cudaErrorInvalidValue);
    *pointer = NULL;
    if (size == 0) return cudaSuccess;
    Gpu *gpu = api_gpu();
    uint64_t address = global_alloc(gpu->memory, size, kind, NULL);
    if (address == 0) {
        uint64_t used, peak, total;
        global_usage(gpu->memory, &used, &peak, &total);
        return api_explain(cudaErrorMemoryAllocation,
                           "%s of %zu bytes: the modelled %s has %llu MB, %llu MB of them in use",
                           call, size, gpu->figures.full_name, (unsigned long long)(total >> 20),
                           (unsigned long long)(used >> 20));
    }
    *pointer = (void *)(uintptr_t)address;
    pointer_map_put(&owned, *pointer, *pointer);
    return cudaSuccess;
}

void memory_free_all(void) {
    for (size_t i = 0; i < owned.capacity; i++) {
        if (!owned.entries[i].key || owned.entries[i].deleted) continue;
        uint64_t address = (uint64_t)(uintptr_t)owned.entries[i].key;
        if (!global_free(api.gpu->memory, address)) global_unregister(api.gpu->memory, address);
    }
    free(owned.entries);
    owned = (PointerMap){0};
}

// Frees an allocation of the right kind.
static cudaError_t release(void *pointer, bool pinned, const char *call) {
    if (pointer == NULL) return cudaSuccess;
    uint64_t address = (uint64_t)(uintptr_t)pointer;
    const Allocation *a = allocation_of(address);
    bool right = a && a->address == address && (a->kind == MEMORY_PINNED) == pinned &&
                 a->kind != MEMORY_MODULE && a->kind != MEMORY_CONSTANT && a->kind != MEMORY_HEAP;
    if (right && global_free(api.gpu->memory, address)) {
        pointer_map_take(&owned, pointer);
        return cudaSuccess;
    }
    const Allocation *near = api.gpu ? global_nearest(api.gpu->memory, address) : NULL;
    bool twice = near && near->freed && near->address == address;
    return api_explain(cudaErrorInvalidValue, "%s(%p): %s", call, pointer,
                       twice                        ? "it was freed before"
                       : a && a->address != address ? "the pointer is inside an allocation, not at "
                                                      "its start"
                                                    : "it was not allocated by the matching call");
}

EXPORT cudaError_t cudaMalloc(void **pointer, size_t size) {
    API_BEGIN();
    return allocate(pointer, size, MEMORY_DEVICE, "cudaMalloc");
}

EXPORT cudaError_t cudaFree(void *pointer) {
    API_BEGIN();
    api_gpu(); // cudaFree(0) is the classic way to wake the device
    return release(pointer, false, "cudaFree");
}

EXPORT cudaError_t cudaMallocManaged(void **pointer, size_t size, unsigned flags) {
    API_BEGIN();
    if (size == 0 || (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost))
        return api_result(cudaErrorInvalidValue);
    return allocate(pointer, size, MEMORY_MANAGED, "cudaMallocManaged");
}

EXPORT cudaError_t cudaMallocHost(void **pointer, size_t size) {
    API_BEGIN();
    return allocate(pointer, size, MEMORY_PINNED, "cudaMallocHost");
}

EXPORT cudaError_t cudaHostAlloc(void **pointer, size_t size, unsigned flags) {
    API_BEGIN();
    (void)flags; // portable, mapped, write-combined: pinned memory here is all of it
    return allocate(pointer, size, MEMORY_PINNED, "cudaHostAlloc");
}

EXPORT cudaError_t cudaFreeHost(void *pointer) {
    API_BEGIN();
    return release(pointer, true, "cudaFreeHost");
}

EXPORT cudaError_t cudaHostRegister(void *pointer, size_t size, unsigned flags) {
    API_BEGIN();
    (void)flags; // mapped, portable: registered memory here is all of it
    if (pointer == NULL || size == 0) return api_result(cudaErrorInvalidValue);
    if (!global_register(api_gpu()->memory, (uint64_t)(uintptr_t)pointer, size))
        return api_result(cudaErrorHostMemoryAlreadyRegistered);
    pointer_map_put(&owned, pointer, pointer);
    return cudaSuccess;
}

EXPORT cudaError_t cudaHostUnregister(void *pointer) {
    API_BEGIN();
    if (!global_unregister(api_gpu()->memory, (uint64_t)(uintptr_t)pointer))
        return api_result(cudaErrorHostMemoryNotRegistered);
    pointer_map_take(&owned, pointer);
    return cudaSuccess;
}

EXPORT cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags) {
    API_BEGIN();
    if (device == NULL || flags != 0) return api_result(cudaErrorInvalidValue);
    Place place = memory_place(host, 1);
    if (place == PLACE_PINNED || place == PLACE_MANAGED) {
        *device = host;
        return cudaSuccess;
    }
    return api_result(cudaErrorInvalidValue);
}

EXPORT cudaError_t cudaHostGetFlags(unsigned *flags, void *host) {
    API_BEGIN();
    if (flags == NULL || memory_place(host, 1) != PLACE_PINNED)
        return api_result(cudaErrorInvalidValue);
    *flags = cudaHostAllocMapped;
    return cudaSuccess;
}

static size_t round_up(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}

EXPORT cudaError_t cudaMallocPitch(void **pointer, size_t *pitch, size_t width, size_t height) {
    API_BEGIN();
    if (pitch == NULL || width > SIZE_MAX / 2) return api_result(cudaErrorInvalidValue);
    *pitch = round_up(width, PITCH_ALIGN);
    size_t size;
    if (__builtin_mul_overflow(*pitch, height, &size)) return api_result(cudaErrorMemoryAllocation);
    return allocate(pointer, size, MEMORY_DEVICE, "cudaMallocPitch");
}

EXPORT cudaError_t cudaMalloc3D(struct cudaPitchedPtr *pitched, struct cudaExtent extent) {
    API_BEGIN();
    if (pitched == NULL || extent.width > SIZE_MAX / 2) return api_result(cudaErrorInvalidValue);
    size_t size, pitch = round_up(extent.width, PITCH_ALIGN);
    if (__builtin_mul_overflow(pitch, extent.height, &size) ||
        __builtin_mul_overflow(size, extent.depth, &size))
        return api_result(cudaErrorMemoryAllocation);
    *pitched =
        (struct cudaPitchedPtr){.pitch = pitch, .xsize = extent.width, .ysize = extent.height};
    return allocate(&pitched->ptr, size, MEMORY_DEVICE, "cudaMalloc3D");
}

EXPORT cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
    API_BEGIN();
    uint64_t used, peak, all;
    global_usage(api_gpu()->memory, &used, &peak, &all);
    if (available) *available = all - used;
    if (total) *total = all;
    return cudaSuccess;
}

EXPORT cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes,
                                            const void *pointer) {
    API_BEGIN();
    if (attributes == NULL) return api_result(cudaErrorInvalidValue);
    memset(attributes, 0, sizeof *attributes);
    void *p = (void *)pointer;
    switch (memory_place(pointer, 1)) {
    case PLACE_DEVICE:
        attributes->type = cudaMemoryTypeDevice;
        attributes->devicePointer = p;
        break;
    case PLACE_MANAGED:
        attributes->type = cudaMemoryTypeManaged;
        attributes->devicePointer = attributes->hostPointer = p;
        break;
    case PLACE_PINNED:
        attributes->type = cudaMemoryTypeHost;
        attributes->devicePointer = attributes->hostPointer = p;
        break;
    case PLACE_HOST:
        attributes->type = cudaMemoryTypeUnregistered;
        attributes->device = cudaInvalidDeviceId;
        attributes->hostPointer = p;
        break;
    case PLACE_NOWHERE:
        attributes->type = cudaMemoryTypeUnregistered;
        attributes->device = cudaInvalidDeviceId;
        break;
    }
    return cudaSuccess;
}

// ---- managed memory: hints, checked and otherwise without effect

// Is a range managed memory?
static cudaError_t check_managed(const void *pointer, size_t size, const char *call) {
    if (memory_place(pointer, size) != PLACE_MANAGED)
        return api_explain(cudaErrorInvalidValue, "%s: %zu bytes at %p are no managed memory", call,
                           size, pointer);
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemPrefetchAsync(const void *pointer, size_t size,
                                        struct cudaMemLocation location, unsigned flags,
                                        cudaStream_t stream) {
    API_BEGIN();
    (void)location, (void)flags;
    if (stream_of(stream) == NULL) return api_result(cudaErrorInvalidResourceHandle);
    return check_managed(pointer, size, "cudaMemPrefetchAsync");
}
TWIN(cudaMemPrefetchAsync, ptsz);

EXPORT cudaError_t cudaMemAdvise(const void *pointer, size_t size, enum cudaMemoryAdvise advice,
                                 struct cudaMemLocation location) {
    API_BEGIN();
    (void)advice, (void)location;
    return check_managed(pointer, size, "cudaMemAdvise");
}

EXPORT cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, void *pointer, size_t size,
                                            unsigned flags) {
    API_BEGIN();
    (void)flags;
    if (stream_of(stream) == NULL) return api_result(cudaErrorInvalidResourceHandle);
    return check_managed(pointer, size ? size : 1, "cudaStreamAttachMemAsync");
}
TWIN(cudaStreamAttachMemAsync, ptsz);

// ---- stream-ordered allocation: work is done in order, so it is plain allocation

typedef struct {
    uint64_t attributes[16];
} Pool;
static Pool default_pool;

// The default pool, made known as a handle.
static cudaMemPool_t the_default_pool(void) {
    handle_add(&default_pool, HANDLE_POOL);
    return (cudaMemPool_t)&default_pool;
}

// Stream-ordered allocation can't be captured here: the graph would have to own the memory.
static cudaError_t check_uncaptured(cudaStream_t stream, const char *call) {
    struct CUstream_st *s = stream_of(stream);
    if (s == NULL) return api_result(cudaErrorInvalidResourceHandle);
    if (s->capture)
        return api_explain(cudaErrorStreamCaptureUnsupported,
                           "%s in a stream that is being captured is not implemented", call);
    return cudaSuccess;
}

EXPORT cudaError_t cudaMallocAsync(void **pointer, size_t size, cudaStream_t stream) {
    API_BEGIN();
    cudaError_t error = check_uncaptured(stream, "cudaMallocAsync");
    return error ? error : allocate(pointer, size, MEMORY_DEVICE, "cudaMallocAsync");
}
TWIN(cudaMallocAsync, ptsz);

EXPORT cudaError_t cudaMallocFromPoolAsync(void **pointer, size_t size, cudaMemPool_t pool,
                                           cudaStream_t stream) {
    API_BEGIN();
    if (!handle_is(pool, HANDLE_POOL)) return api_result(cudaErrorInvalidValue);
    cudaError_t error = check_uncaptured(stream, "cudaMallocFromPoolAsync");
    return error ? error : allocate(pointer, size, MEMORY_DEVICE, "cudaMallocFromPoolAsync");
}
TWIN(cudaMallocFromPoolAsync, ptsz);

EXPORT cudaError_t cudaFreeAsync(void *pointer, cudaStream_t stream) {
    API_BEGIN();
    cudaError_t error = check_uncaptured(stream, "cudaFreeAsync");
    return error ? error : release(pointer, false, "cudaFreeAsync");
}
TWIN(cudaFreeAsync, ptsz);

EXPORT cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
    API_BEGIN();
    if (pool == NULL || device != 0)
        return api_result(device ? cudaErrorInvalidDevice : cudaErrorInvalidValue);
    *pool = the_default_pool();
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int device) {
    return cudaDeviceGetDefaultMemPool(pool, device);
}

EXPORT cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
    API_BEGIN();
    if (device != 0) return api_result(cudaErrorInvalidDevice);
    return handle_is(pool, HANDLE_POOL) ? cudaSuccess : api_result(cudaErrorInvalidValue);
}

EXPORT cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const struct cudaMemPoolProps *props) {
    API_BEGIN();
    if (pool == NULL || props == NULL) return api_result(cudaErrorInvalidValue);
    Pool *p = calloc(1, sizeof *p);
    if (p == NULL) return api_result(cudaErrorMemoryAllocation);
    handle_add(p, HANDLE_POOL);
    *pool = (cudaMemPool_t)p;
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
    API_BEGIN();
    if (!handle_is(pool, HANDLE_POOL) || (Pool *)pool == &default_pool)
        return api_result(cudaErrorInvalidValue);
    handle_remove(pool);
    free(pool);
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep) {
    API_BEGIN();
    (void)keep;
    return handle_is(pool, HANDLE_POOL) ? cudaSuccess : api_result(cudaErrorInvalidValue);
}

// Does an attribute hold an int (the reuse switches) rather than 64 bits?
static bool pool_attribute_is_int(enum cudaMemPoolAttr attribute) {
    return attribute == cudaMemPoolReuseFollowEventDependencies ||
           attribute == cudaMemPoolReuseAllowOpportunistic ||
           attribute == cudaMemPoolReuseAllowInternalDependencies;
}

EXPORT cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute,
                                           void *value) {
    API_BEGIN();
    if (!handle_is(pool, HANDLE_POOL) || value == NULL || (unsigned)attribute >= 16)
        return api_result(cudaErrorInvalidValue);
    uint64_t *slot = &((Pool *)pool)->attributes[attribute];
    *slot = 0;
    memcpy(slot, value, pool_attribute_is_int(attribute) ? sizeof(int) : sizeof(uint64_t));
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute,
                                           void *value) {
    API_BEGIN();
    if (!handle_is(pool, HANDLE_POOL) || value == NULL || (unsigned)attribute >= 16)
        return api_result(cudaErrorInvalidValue);
    uint64_t used, peak, total, number = ((Pool *)pool)->attributes[attribute];
    global_usage(api_gpu()->memory, &used, &peak, &total);
    if (attribute == cudaMemPoolAttrUsedMemCurrent ||
        attribute == cudaMemPoolAttrReservedMemCurrent)
        number = used;
    if (attribute == cudaMemPoolAttrUsedMemHigh || attribute == cudaMemPoolAttrReservedMemHigh)
        number = peak;
    memcpy(value, &number, pool_attribute_is_int(attribute) ? sizeof(int) : sizeof number);
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *list,
                                        size_t count) {
    API_BEGIN();
    (void)list, (void)count;
    return handle_is(pool, HANDLE_POOL) ? cudaSuccess : api_result(cudaErrorInvalidValue);
}

EXPORT cudaError_t cudaMemPoolGetAccess(enum cudaMemAccessFlags *flags, cudaMemPool_t pool,
                                        struct cudaMemLocation *location) {
    API_BEGIN();
    if (flags == NULL || location == NULL || !handle_is(pool, HANDLE_POOL))
        return api_result(cudaErrorInvalidValue);
    *flags = cudaMemAccessFlagsProtReadWrite;
    return cudaSuccess;
}
