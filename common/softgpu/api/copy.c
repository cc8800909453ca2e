// Copies and fills. Every function comes down to Copy or Fill: rows in planes, checked against the
// allocations that they touch, then done at once. The modelled clock moves on by bytes / bandwidth.
#include "softgpu/api/api.h"

#include <string.h>

// Bytes from the first to one past the last that rows in planes touch; 0 for an empty shape.
static size_t extent(size_t width, size_t height, size_t depth, size_t pitch, size_t slice) {
    if (width == 0 || height == 0 || depth == 0) return 0;
    return (depth - 1) * slice + (height - 1) * pitch + width;
}

// Checks one end of a copy: `on_device` is what the direction claims (-1: either).
static cudaError_t check_end(const char *call, const char *what, const void *address, size_t size,
                             int on_device) {
    Place place = memory_place(address, size);
    if (address == NULL) return api_explain(cudaErrorInvalidValue, "%s: %s is NULL", call, what);
    if (place == PLACE_NOWHERE) return memory_complain(call, what, address, size);
    if (on_device == 1 && place == PLACE_HOST)
        return api_explain(cudaErrorInvalidValue,
                           "%s: %s %p is ordinary host memory, but the copy's direction says it is "
                           "on the device",
                           call, what, address);
    if (on_device == 0 && place == PLACE_DEVICE)
        return api_explain(cudaErrorInvalidValue,
                           "%s: %s %p is device memory, but the copy's direction says it is on the "
                           "host",
                           call, what, address);
    return cudaSuccess;
}

cudaError_t copy_check(const char *call, const Copy *c) {
    static const int to_device[] = {0, 1, 0, 1, -1}, from_device[] = {0, 0, 1, 1, -1};
    if ((unsigned)c->kind > cudaMemcpyDefault) return api_result(cudaErrorInvalidMemcpyDirection);
    size_t to = extent(c->width, c->height, c->depth, c->to_pitch, c->to_slice);
    size_t from = extent(c->width, c->height, c->depth, c->from_pitch, c->from_slice);
    if (to == 0) return cudaSuccess;
    if (c->height * c->depth > 1 && (c->to_pitch < c->width || c->from_pitch < c->width))
        return api_explain(cudaErrorInvalidPitchValue,
                           "%s: rows of %zu bytes, but the pitches are %zu (destination) and %zu "
                           "(source)",
                           call, c->width, c->to_pitch, c->from_pitch);
    api_gpu();
    cudaError_t error = check_end(call, "the destination", c->to, to, to_device[c->kind]);
    return error ? error : check_end(call, "the source", c->from, from, from_device[c->kind]);
}

// Copies "was written" bit by bit where both ends are device memory: a copy of bytes that nothing
// wrote leaves bytes that nothing wrote.
static void copy_written(struct GlobalMemory *m, uint64_t to, uint64_t from, size_t size) {
    if (m->written == NULL || to - m->device_base >= m->device_size) return;
    if (from - m->device_base >= m->device_size || global_all_written(m, from, size)) {
        global_mark_written(m, to, size);
        return;
    }
    // Known neighbours often are written in long runs: mark runs instead of bytes.
    enum { STEP = 64 };
    for (size_t at = 0; at < size; at += STEP) {
        size_t n = size - at < STEP ? size - at : STEP;
        if (global_all_written(m, from + at, n)) {
            global_mark_written(m, to + at, n);
            continue;
        }
        for (size_t i = at; i < at + n; i++)
            if (global_all_written(m, from + i, 1)) global_mark_written(m, to + i, 1);
    }
}

// The host pointer to an address that copy_check or fill_check has accepted.
static uint8_t *host_bytes(Gpu *gpu, const void *address) {
    return global_pointer(gpu->memory, (uint64_t)(uintptr_t)address);
}

// Moves the modelled clock on by a transfer.
static void spend(Gpu *gpu, double bytes, double bytes_per_s) {
    double us = bytes / bytes_per_s * 1e6;
    gpu->clock_us += us;
    stats_add_copy(us);
}

void copy_now(const Copy *c) {
    if (extent(c->width, c->height, c->depth, 0, 0) == 0) return;
    Gpu *gpu = api_gpu();
    bool to_device = memory_place(c->to, 1) == PLACE_DEVICE;
    bool from_device = memory_place(c->from, 1) == PLACE_DEVICE;
    uint8_t *to = host_bytes(gpu, c->to), *from = host_bytes(gpu, c->from);
    for (size_t z = 0; z < c->depth; z++) {
        for (size_t y = 0; y < c->height; y++) {
            size_t to_offset = z * c->to_slice + y * c->to_pitch;
            size_t from_offset = z * c->from_slice + y * c->from_pitch;
            memmove(to + to_offset, from + from_offset, c->width);
            if (to_device)
                copy_written(gpu->memory, (uint64_t)(uintptr_t)c->to + to_offset,
                             (uint64_t)(uintptr_t)c->from + from_offset, c->width);
        }
    }
    double bytes = (double)c->width * (double)c->height * (double)c->depth;
    if (to_device && from_device)
        spend(gpu, 2 * bytes, gpu->figures.hbm_bytes_per_s);
    else if (to_device || from_device)
        spend(gpu, bytes, gpu->figures.pcie_bytes_per_s);
}

cudaError_t copy_on_stream(const char *call, const Copy *copy, cudaStream_t stream) {
    struct CUstream_st *s = stream_of(stream);
    if (s == NULL) return api_result(cudaErrorInvalidResourceHandle);
    cudaError_t error = copy_check(call, copy);
    if (error) return error;
    if (s->capture)
        capture_append(s, NODE_COPY)->copy = *copy;
    else
        copy_now(copy);
    return cudaSuccess;
}

cudaError_t fill_check(const char *call, const Fill *f) {
    size_t width = f->width * f->element;
    size_t size = extent(width, f->height, f->depth, f->pitch, f->slice);
    if (size == 0) return cudaSuccess;
    if (f->height * f->depth > 1 && f->pitch < width)
        return api_explain(cudaErrorInvalidValue, "%s: rows of %zu bytes, but the pitch is %zu",
                           call, width, f->pitch);
    if ((uintptr_t)f->to % f->element || f->pitch % f->element)
        return api_explain(cudaErrorInvalidValue, "%s: %p is not aligned to its %u-byte elements",
                           call, f->to, f->element);
    api_gpu();
    return check_end(call, "the destination", f->to, size, 1);
}

void fill_now(const Fill *f) {
    if (extent(f->width, f->height, f->depth, 0, 0) == 0) return;
    Gpu *gpu = api_gpu();
    uint8_t *to = host_bytes(gpu, f->to);
    size_t width = f->width * f->element;
    for (size_t z = 0; z < f->depth; z++) {
        for (size_t y = 0; y < f->height; y++) {
            uint8_t *row = to + z * f->slice + y * f->pitch;
            if (f->element == 1)
                memset(row, (int)f->value, width);
            else
                for (size_t i = 0; i < f->width; i++)
                    memcpy(row + i * f->element, &f->value, f->element);
            global_mark_written(gpu->memory, (uint64_t)(uintptr_t)f->to + (uint64_t)(row - to),
                                width);
        }
    }
    double bytes = (double)width * (double)f->height * (double)f->depth;
    spend(gpu, bytes, gpu->figures.hbm_bytes_per_s);
}

cudaError_t fill_on_stream(const char *call, const Fill *fill, cudaStream_t stream) {
    struct CUstream_st *s = stream_of(stream);
    if (s == NULL) return api_result(cudaErrorInvalidResourceHandle);
    cudaError_t error = fill_check(call, fill);
    if (error) return error;
    if (s->capture)
        capture_append(s, NODE_FILL)->fill = *fill;
    else
        fill_now(fill);
    return cudaSuccess;
}

// ---- copies of runs of bytes

static Copy linear(void *to, const void *from, size_t size, enum cudaMemcpyKind kind) {
    return (Copy){.to = to, .from = from, .width = size, .height = 1, .depth = 1, .kind = kind};
}

EXPORT cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind) {
    API_BEGIN();
    Copy copy = linear(to, from, size, kind);
    return copy_on_stream("cudaMemcpy", &copy, NULL);
}
TWIN(cudaMemcpy, ptds);

EXPORT cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size,
                                   enum cudaMemcpyKind kind, cudaStream_t stream) {
    API_BEGIN();
    Copy copy = linear(to, from, size, kind);
    return copy_on_stream("cudaMemcpyAsync", &copy, stream);
}
TWIN(cudaMemcpyAsync, ptsz);

EXPORT cudaError_t cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device,
                                  size_t size) {
    API_BEGIN();
    if (to_device != 0 || from_device != 0) return api_result(cudaErrorInvalidDevice);
    Copy copy = linear(to, from, size, cudaMemcpyDeviceToDevice);
    return copy_on_stream("cudaMemcpyPeer", &copy, NULL);
}

EXPORT cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                       size_t size, cudaStream_t stream) {
    API_BEGIN();
    if (to_device != 0 || from_device != 0) return api_result(cudaErrorInvalidDevice);
    Copy copy = linear(to, from, size, cudaMemcpyDeviceToDevice);
    return copy_on_stream("cudaMemcpyPeerAsync", &copy, stream);
}

// ---- variables

// Finds the bytes of a variable that a copy touches.
static cudaError_t symbol_range(const char *call, const void *symbol, size_t size, size_t offset,
                                void **address) {
    uint64_t start;
    size_t whole;
    cudaError_t error = symbol_find(symbol, &start, &whole, NULL);
    if (error) return error;
    if (offset > whole || size > whole - offset)
        return api_explain(cudaErrorInvalidValue,
                           "%s: %zu bytes from byte %zu of a variable that has %zu", call, size,
                           offset, whole);
    *address = (void *)(uintptr_t)(start + offset);
    return cudaSuccess;
}

static cudaError_t copy_to_symbol(const char *call, const void *symbol, const void *from,
                                  size_t size, size_t offset, enum cudaMemcpyKind kind,
                                  cudaStream_t stream) {
    void *to;
    cudaError_t error = symbol_range(call, symbol, size, offset, &to);
    if (error) return error;
    if (kind != cudaMemcpyHostToDevice && kind != cudaMemcpyDeviceToDevice &&
        kind != cudaMemcpyDefault)
        return api_result(cudaErrorInvalidMemcpyDirection);
    Copy copy = linear(to, from, size, kind);
    return copy_on_stream(call, &copy, stream);
}

static cudaError_t copy_from_symbol(const char *call, void *to, const void *symbol, size_t size,
                                    size_t offset, enum cudaMemcpyKind kind, cudaStream_t stream) {
    void *from;
    cudaError_t error = symbol_range(call, symbol, size, offset, &from);
    if (error) return error;
    if (kind != cudaMemcpyDeviceToHost && kind != cudaMemcpyDeviceToDevice &&
        kind != cudaMemcpyDefault)
        return api_result(cudaErrorInvalidMemcpyDirection);
    Copy copy = linear(to, from, size, kind);
    return copy_on_stream(call, &copy, stream);
}

EXPORT cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t size,
                                      size_t offset, enum cudaMemcpyKind kind) {
    API_BEGIN();
    return copy_to_symbol("cudaMemcpyToSymbol", symbol, from, size, offset, kind, NULL);
}
TWIN(cudaMemcpyToSymbol, ptds);

EXPORT cudaError_t cudaMemcpyToSymbolAsync(const void *symbol, const void *from, size_t size,
                                           size_t offset, enum cudaMemcpyKind kind,
                                           cudaStream_t stream) {
    API_BEGIN();
    return copy_to_symbol("cudaMemcpyToSymbolAsync", symbol, from, size, offset, kind, stream);
}
TWIN(cudaMemcpyToSymbolAsync, ptsz);

EXPORT cudaError_t cudaMemcpyFromSymbol(void *to, const void *symbol, size_t size, size_t offset,
                                        enum cudaMemcpyKind kind) {
    API_BEGIN();
    return copy_from_symbol("cudaMemcpyFromSymbol", to, symbol, size, offset, kind, NULL);
}
TWIN(cudaMemcpyFromSymbol, ptds);

EXPORT cudaError_t cudaMemcpyFromSymbolAsync(void *to, const void *symbol, size_t size,
                                             size_t offset, enum cudaMemcpyKind kind,
                                             cudaStream_t stream) {
    API_BEGIN();
    return copy_from_symbol("cudaMemcpyFromSymbolAsync", to, symbol, size, offset, kind, stream);
}
TWIN(cudaMemcpyFromSymbolAsync, ptsz);

EXPORT cudaError_t cudaGetSymbolAddress(void **address, const void *symbol) {
    API_BEGIN();
    if (address == NULL) return api_result(cudaErrorInvalidValue);
    return symbol_range("cudaGetSymbolAddress", symbol, 0, 0, address);
}

EXPORT cudaError_t cudaGetSymbolSize(size_t *size, const void *symbol) {
    API_BEGIN();
    uint64_t address;
    return size ? symbol_find(symbol, &address, size, NULL) : api_result(cudaErrorInvalidValue);
}

// ---- rows and planes

static Copy rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                 size_t height, enum cudaMemcpyKind kind) {
    return (Copy){.to = to,
                  .from = from,
                  .width = width,
                  .height = height,
                  .depth = 1,
                  .to_pitch = to_pitch,
                  .from_pitch = from_pitch,
                  .kind = kind};
}

EXPORT cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                                size_t width, size_t height, enum cudaMemcpyKind kind) {
    API_BEGIN();
    Copy copy = rows(to, to_pitch, from, from_pitch, width, height, kind);
    return copy_on_stream("cudaMemcpy2D", &copy, NULL);
}
TWIN(cudaMemcpy2D, ptds);

EXPORT cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                                     size_t width, size_t height, enum cudaMemcpyKind kind,
                                     cudaStream_t stream) {
    API_BEGIN();
    Copy copy = rows(to, to_pitch, from, from_pitch, width, height, kind);
    return copy_on_stream("cudaMemcpy2DAsync", &copy, stream);
}
TWIN(cudaMemcpy2DAsync, ptsz);

// A Copy from the parameters of cudaMemcpy3D; arrays are not implemented.
cudaError_t copy_from_3d(const char *call, const struct cudaMemcpy3DParms *p, Copy *copy) {
    if (p == NULL) return api_result(cudaErrorInvalidValue);
    if (p->srcArray || p->dstArray)
        return api_explain(cudaErrorNotSupported, "%s with CUDA arrays is not implemented", call);
    const struct cudaPitchedPtr *to = &p->dstPtr, *from = &p->srcPtr;
    *copy = (Copy){
        .width = p->extent.width,
        .height = p->extent.height,
        .depth = p->extent.depth,
        .to_pitch = to->pitch,
        .from_pitch = from->pitch,
        .to_slice = to->pitch * to->ysize,
        .from_slice = from->pitch * from->ysize,
        .kind = p->kind,
    };
    copy->to =
        (char *)to->ptr + p->dstPos.z * copy->to_slice + p->dstPos.y * to->pitch + p->dstPos.x;
    copy->from = (char *)from->ptr + p->srcPos.z * copy->from_slice + p->srcPos.y * from->pitch +
                 p->srcPos.x;
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemcpy3D(const struct cudaMemcpy3DParms *p) {
    API_BEGIN();
    Copy copy;
    cudaError_t error = copy_from_3d("cudaMemcpy3D", p, &copy);
    return error ? error : copy_on_stream("cudaMemcpy3D", &copy, NULL);
}
TWIN(cudaMemcpy3D, ptds);

EXPORT cudaError_t cudaMemcpy3DAsync(const struct cudaMemcpy3DParms *p, cudaStream_t stream) {
    API_BEGIN();
    Copy copy;
    cudaError_t error = copy_from_3d("cudaMemcpy3DAsync", p, &copy);
    return error ? error : copy_on_stream("cudaMemcpy3DAsync", &copy, stream);
}
TWIN(cudaMemcpy3DAsync, ptsz);

// ---- fills

static Fill bytes_fill(void *to, int value, size_t size) {
    return (Fill){
        .to = to, .width = size, .height = 1, .depth = 1, .element = 1, .value = value & 0xff};
}

EXPORT cudaError_t cudaMemset(void *to, int value, size_t size) {
    API_BEGIN();
    Fill fill = bytes_fill(to, value, size);
    return fill_on_stream("cudaMemset", &fill, NULL);
}
TWIN(cudaMemset, ptds);

EXPORT cudaError_t cudaMemsetAsync(void *to, int value, size_t size, cudaStream_t stream) {
    API_BEGIN();
    Fill fill = bytes_fill(to, value, size);
    return fill_on_stream("cudaMemsetAsync", &fill, stream);
}
TWIN(cudaMemsetAsync, ptsz);

static cudaError_t fill_rows(const char *call, void *to, size_t pitch, int value, size_t width,
                             size_t height, cudaStream_t stream) {
    Fill fill = bytes_fill(to, value, width);
    fill.height = height;
    fill.pitch = pitch;
    return fill_on_stream(call, &fill, stream);
}

EXPORT cudaError_t cudaMemset2D(void *to, size_t pitch, int value, size_t width, size_t height) {
    API_BEGIN();
    return fill_rows("cudaMemset2D", to, pitch, value, width, height, NULL);
}
TWIN(cudaMemset2D, ptds);

EXPORT cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height,
                                     cudaStream_t stream) {
    API_BEGIN();
    return fill_rows("cudaMemset2DAsync", to, pitch, value, width, height, stream);
}
TWIN(cudaMemset2DAsync, ptsz);

static cudaError_t fill_planes(const char *call, struct cudaPitchedPtr p, int value,
                               struct cudaExtent e, cudaStream_t stream) {
    Fill fill = bytes_fill(p.ptr, value, e.width);
    fill.height = e.height;
    fill.depth = e.depth;
    fill.pitch = p.pitch;
    fill.slice = p.pitch * p.ysize;
    return fill_on_stream(call, &fill, stream);
}

EXPORT cudaError_t cudaMemset3D(struct cudaPitchedPtr p, int value, struct cudaExtent extent) {
    API_BEGIN();
    return fill_planes("cudaMemset3D", p, value, extent, NULL);
}
TWIN(cudaMemset3D, ptds);

EXPORT cudaError_t cudaMemset3DAsync(struct cudaPitchedPtr p, int value, struct cudaExtent extent,
                                     cudaStream_t stream) {
    API_BEGIN();
    return fill_planes("cudaMemset3DAsync", p, value, extent, stream);
}
TWIN(cudaMemset3DAsync, ptsz);
