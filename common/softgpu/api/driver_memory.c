// The driver API, second part: memory, streams, events, graphs.
#include "softgpu/api/driver.h"

#include <string.h>

// ---- allocation

EXPORT CUresult cuMemAlloc(CUdeviceptr *address, size_t size) {
    if (size == 0) return CUDA_ERROR_INVALID_VALUE;
    DRIVER(cudaMalloc((void **)address, size));
}

EXPORT CUresult cuMemFree(CUdeviceptr address) {
    DRIVER(cudaFree(pointer_of(address)));
}

EXPORT CUresult cuMemAllocPitch(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                                unsigned element) {
    (void)element;
    DRIVER(cudaMallocPitch((void **)address, pitch, width, height));
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *address, size_t size, unsigned flags) {
    DRIVER(cudaMallocManaged((void **)address, size, flags));
}

EXPORT CUresult cuMemAllocHost(void **pointer, size_t size) {
    DRIVER(cudaMallocHost(pointer, size));
}

EXPORT CUresult cuMemHostAlloc(void **pointer, size_t size, unsigned flags) {
    DRIVER(cudaHostAlloc(pointer, size, flags));
}

EXPORT CUresult cuMemFreeHost(void *pointer) {
    DRIVER(cudaFreeHost(pointer));
}

EXPORT CUresult cuMemHostRegister(void *pointer, size_t size, unsigned flags) {
    DRIVER(cudaHostRegister(pointer, size, flags));
}

EXPORT CUresult cuMemHostUnregister(void *pointer) {
    DRIVER(cudaHostUnregister(pointer));
}

EXPORT CUresult cuMemHostGetDevicePointer(CUdeviceptr *address, void *host, unsigned flags) {
    DRIVER(cudaHostGetDevicePointer((void **)address, host, flags));
}

EXPORT CUresult cuMemHostGetFlags(unsigned *flags, void *host) {
    DRIVER(cudaHostGetFlags(flags, host));
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *address, size_t size, CUstream stream) {
    DRIVER(cudaMallocAsync((void **)address, size, stream));
}
TWIN(cuMemAllocAsync, ptsz);

EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    DRIVER(cudaFreeAsync(pointer_of(address), stream));
}
TWIN(cuMemFreeAsync, ptsz);

EXPORT CUresult cuMemGetInfo(size_t *available, size_t *total) {
    DRIVER(cudaMemGetInfo(available, total));
}

EXPORT CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *size, CUdeviceptr address) {
    API_ENTER();
    const Allocation *a = global_find(api_gpu()->memory, address);
    if (a == NULL || a->freed || memory_place(pointer_of(address), 1) == PLACE_NOWHERE)
        return CUDA_ERROR_NOT_FOUND;
    if (base) *base = a->address;
    if (size) *size = a->size;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute,
                                      CUdeviceptr address) {
    struct cudaPointerAttributes a;
    if (data == NULL || cudaPointerGetAttributes(&a, pointer_of(address)) != cudaSuccess)
        return CUDA_ERROR_INVALID_VALUE;
    if (a.type == cudaMemoryTypeUnregistered) return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: return cuDevicePrimaryCtxRetain(data, 0);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data =
            a.type == cudaMemoryTypeHost ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *(void **)data = a.devicePointer; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER: *(void **)data = a.hostPointer; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)data = a.type == cudaMemoryTypeManaged;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)data = 0; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: return cuMemGetAddressRange(data, NULL, address);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: return cuMemGetAddressRange(NULL, data, address);
    default: return CUDA_ERROR_NOT_SUPPORTED;
    }
}

EXPORT CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t size, CUmemLocation location,
                                   unsigned flags, CUstream stream) {
    struct cudaMemLocation same = {.type = (enum cudaMemLocationType)location.type,
                                   .id = location.id};
    DRIVER(cudaMemPrefetchAsync(pointer_of(address), size, same, flags, stream));
}

EXPORT CUresult cuMemAdvise(CUdeviceptr address, size_t size, CUmem_advise advice,
                            CUmemLocation location) {
    struct cudaMemLocation same = {.type = (enum cudaMemLocationType)location.type,
                                   .id = location.id};
    DRIVER(cudaMemAdvise(pointer_of(address), size, (enum cudaMemoryAdvise)advice, same));
}

// ---- copies

EXPORT CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size) {
    DRIVER(cudaMemcpy(pointer_of(to), pointer_of(from), size, cudaMemcpyDefault));
}

EXPORT CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t size) {
    DRIVER(cudaMemcpy(pointer_of(to), from, size, cudaMemcpyHostToDevice));
}

EXPORT CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t size) {
    DRIVER(cudaMemcpy(to, pointer_of(from), size, cudaMemcpyDeviceToHost));
}

EXPORT CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t size) {
    DRIVER(cudaMemcpy(pointer_of(to), pointer_of(from), size, cudaMemcpyDeviceToDevice));
}

EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
    DRIVER(cudaMemcpyAsync(pointer_of(to), pointer_of(from), size, cudaMemcpyDefault, stream));
}
TWIN(cuMemcpyAsync, ptsz);

EXPORT CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t size, CUstream stream) {
    DRIVER(cudaMemcpyAsync(pointer_of(to), from, size, cudaMemcpyHostToDevice, stream));
}

EXPORT CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t size, CUstream stream) {
    DRIVER(cudaMemcpyAsync(to, pointer_of(from), size, cudaMemcpyDeviceToHost, stream));
}

EXPORT CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
    DRIVER(
        cudaMemcpyAsync(pointer_of(to), pointer_of(from), size, cudaMemcpyDeviceToDevice, stream));
}

// ---- fills

// A fill of rows of elements of 1, 2 or 4 bytes.
static cudaError_t fill(const char *call, CUdeviceptr to, size_t pitch, unsigned element,
                        unsigned value, size_t width, size_t height, CUstream stream) {
    API_BEGIN();
    Fill f = {.to = pointer_of(to),
              .width = width,
              .height = height,
              .depth = 1,
              .pitch = pitch,
              .element = element,
              .value = value};
    return fill_on_stream(call, &f, stream);
}

EXPORT CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, size_t count) {
    DRIVER(fill("cuMemsetD8", to, 0, 1, value, count, 1, NULL));
}

EXPORT CUresult cuMemsetD16(CUdeviceptr to, unsigned short value, size_t count) {
    DRIVER(fill("cuMemsetD16", to, 0, 2, value, count, 1, NULL));
}

EXPORT CUresult cuMemsetD32(CUdeviceptr to, unsigned value, size_t count) {
    DRIVER(fill("cuMemsetD32", to, 0, 4, value, count, 1, NULL));
}

EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count,
                                CUstream stream) {
    DRIVER(fill("cuMemsetD8Async", to, 0, 1, value, count, 1, stream));
}
TWIN(cuMemsetD8Async, ptsz);

EXPORT CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count,
                                 CUstream stream) {
    DRIVER(fill("cuMemsetD16Async", to, 0, 2, value, count, 1, stream));
}
TWIN(cuMemsetD16Async, ptsz);

EXPORT CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
    DRIVER(fill("cuMemsetD32Async", to, 0, 4, value, count, 1, stream));
}
TWIN(cuMemsetD32Async, ptsz);

EXPORT CUresult cuMemsetD2D8(CUdeviceptr to, size_t pitch, unsigned char value, size_t width,
                             size_t height) {
    DRIVER(fill("cuMemsetD2D8", to, pitch, 1, value, width, height, NULL));
}

EXPORT CUresult cuMemsetD2D32(CUdeviceptr to, size_t pitch, unsigned value, size_t width,
                              size_t height) {
    DRIVER(fill("cuMemsetD2D32", to, pitch, 4, value, width, height, NULL));
}

// ---- streams and events

EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    DRIVER(cudaStreamCreateWithFlags(stream, flags));
}

EXPORT CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
    DRIVER(cudaStreamCreateWithPriority(stream, flags, priority));
}

EXPORT CUresult cuStreamDestroy(CUstream stream) {
    DRIVER(cudaStreamDestroy(stream));
}

EXPORT CUresult cuStreamSynchronize(CUstream stream) {
    DRIVER(cudaStreamSynchronize(stream));
}
TWIN(cuStreamSynchronize, ptsz);

EXPORT CUresult cuStreamQuery(CUstream stream) {
    DRIVER(cudaStreamQuery(stream));
}
TWIN(cuStreamQuery, ptsz);

EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    DRIVER(cudaStreamWaitEvent(stream, event, flags));
}
TWIN(cuStreamWaitEvent, ptsz);

EXPORT CUresult cuStreamGetFlags(CUstream stream, unsigned *flags) {
    DRIVER(cudaStreamGetFlags(stream, flags));
}

EXPORT CUresult cuStreamGetPriority(CUstream stream, int *priority) {
    DRIVER(cudaStreamGetPriority(stream, priority));
}

EXPORT CUresult cuStreamGetCtx(CUstream stream, CUcontext *context) {
    API_ENTER();
    if (stream_of(stream) == NULL) return CUDA_ERROR_INVALID_HANDLE;
    return cuDevicePrimaryCtxRetain(context, 0);
}

EXPORT CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
    DRIVER(cudaStreamBeginCapture(stream, (enum cudaStreamCaptureMode)mode));
}

EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    DRIVER(cudaStreamEndCapture(stream, graph));
}

EXPORT CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
    DRIVER(cudaStreamIsCapturing(stream, (enum cudaStreamCaptureStatus *)status));
}

EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    DRIVER(cudaThreadExchangeStreamCaptureMode((enum cudaStreamCaptureMode *)mode));
}

EXPORT CUresult cuEventCreate(CUevent *event, unsigned flags) {
    DRIVER(cudaEventCreateWithFlags(event, flags));
}

EXPORT CUresult cuEventDestroy(CUevent event) {
    DRIVER(cudaEventDestroy(event));
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) {
    DRIVER(cudaEventRecord(event, stream));
}
TWIN(cuEventRecord, ptsz);

EXPORT CUresult cuEventQuery(CUevent event) {
    DRIVER(cudaEventQuery(event));
}

EXPORT CUresult cuEventSynchronize(CUevent event) {
    DRIVER(cudaEventSynchronize(event));
}

EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    DRIVER(cudaEventElapsedTime(milliseconds, start, end));
}

// ---- graphs

EXPORT CUresult cuGraphCreate(CUgraph *graph, unsigned flags) {
    DRIVER(cudaGraphCreate(graph, flags));
}

EXPORT CUresult cuGraphDestroy(CUgraph graph) {
    DRIVER(cudaGraphDestroy(graph));
}

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
                                            unsigned long long flags) {
    DRIVER(cudaGraphInstantiate(exec, graph, flags));
}

EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    DRIVER(cudaGraphLaunch(exec, stream));
}
TWIN(cuGraphLaunch, ptsz);

EXPORT CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
    DRIVER(cudaGraphUpload(exec, stream));
}
TWIN(cuGraphUpload, ptsz);

EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec) {
    DRIVER(cudaGraphExecDestroy(exec));
}
