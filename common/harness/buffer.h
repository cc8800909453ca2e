// Device memory as the harness hands it to kernels: exactly as large as needed, filled with poison,
// and (where softgpu's memory check doesn't watch the bounds) between guard bytes that must stand.
#ifndef BUFFER_H
#define BUFFER_H

#include <stdbool.h>
#include <stddef.h>

#include <cuda_runtime_api.h>

typedef struct {
    char *base, *data; // the allocation, and what the kernel sees; NULL for no bytes
    size_t bytes;
    bool guarded;
} Buffer;

// Allocates. With `poison` every byte is 0xff; without, it stays as never written.
cudaError_t buffer_make(Buffer *buffer, size_t bytes, bool guarded, bool poison);
cudaError_t buffer_poison(const Buffer *buffer);
cudaError_t buffer_upload(const Buffer *buffer, const void *from);
cudaError_t buffer_download(const Buffer *buffer, void *to);
// Do the guard bytes stand? *stand is set only on success.
cudaError_t buffer_guards(const Buffer *buffer, bool *stand);
void buffer_free(Buffer *buffer);

#endif
