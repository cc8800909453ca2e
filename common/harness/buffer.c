// Device memory between guard bytes. The guards are 0xff like the poison: a kernel that reads them
// gets NaN.
#include "harness/buffer.h"

#include <string.h>

enum { GUARD_BYTES = 4096, GUARD = 0xff };

cudaError_t buffer_make(Buffer *b, size_t bytes, bool guarded, bool poison) {
    *b = (Buffer){.bytes = bytes, .guarded = guarded};
    if (bytes == 0) return cudaSuccess;
    size_t around = guarded ? GUARD_BYTES : 0;
    void *base;
    cudaError_t error = cudaMalloc(&base, bytes + 2 * around);
    if (error != cudaSuccess) return error;
    b->base = base;
    b->data = b->base + around;
    if (guarded) {
        error = cudaMemset(b->base, GUARD, around);
        if (error == cudaSuccess) error = cudaMemset(b->data + bytes, GUARD, around);
    }
    if (error == cudaSuccess && poison) error = buffer_poison(b);
    return error;
}

cudaError_t buffer_poison(const Buffer *b) {
    return b->bytes == 0 ? cudaSuccess : cudaMemset(b->data, 0xff, b->bytes);
}

cudaError_t buffer_upload(const Buffer *b, const void *from) {
    if (b->bytes == 0) return cudaSuccess;
    return cudaMemcpy(b->data, from, b->bytes, cudaMemcpyHostToDevice);
}

cudaError_t buffer_download(const Buffer *b, void *to) {
    if (b->bytes == 0) return cudaSuccess;
    return cudaMemcpy(to, b->data, b->bytes, cudaMemcpyDeviceToHost);
}

cudaError_t buffer_guards(const Buffer *b, bool *stand) {
    *stand = true;
    if (!b->guarded || b->bytes == 0) return cudaSuccess;
    unsigned char guard[2][GUARD_BYTES];
    cudaError_t error = cudaMemcpy(guard[0], b->base, GUARD_BYTES, cudaMemcpyDeviceToHost);
    if (error != cudaSuccess) return error;
    error = cudaMemcpy(guard[1], b->data + b->bytes, GUARD_BYTES, cudaMemcpyDeviceToHost);
    for (int i = 0; i < GUARD_BYTES; i++) {
        if (guard[0][i] != GUARD || guard[1][i] != GUARD) *stand = false;
    }
    return error;
}

void buffer_free(Buffer *b) {
    if (b->base != NULL) cudaFree(b->base);
    *b = (Buffer){0};
}
