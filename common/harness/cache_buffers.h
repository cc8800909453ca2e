// The cache on the device: lengths, block table, new keys, rotary tables and scales beside k and v.
#ifndef CACHE_BUFFERS_H
#define CACHE_BUFFERS_H

#include "harness/buffer.h"
#include "harness/device.h"
#include "harness/problem.h"

enum {
    CACHE_SEQLENS,
    CACHE_TABLE,
    CACHE_K_NEW,
    CACHE_V_NEW,
    CACHE_COSINES,
    CACHE_SINES,
    CACHE_K_SCALE,
    CACHE_V_SCALE,
    CACHE_BUFFERS,
};

typedef struct {
    Buffer part[CACHE_BUFFERS];
    int *table; // the host's copy of the block table; NULL without pages
} CacheBuffers;

// The sizes of the cache, for steps' `refuses` and workspace functions. Without one: those of k.
void cache_describe(const Problem *p, Attention *a);
// Bytes of k, and of v, on the device.
size_t cache_bytes(const Problem *p);
// Bytes of all that stands beside k and v.
size_t cache_beside_bytes(const Problem *p);
// Fills k and v, which have cache_bytes, makes all that stands beside them, and points the problem to
// it. Nothing where the problem has no cache.
cudaError_t cache_upload(const Problem *p, const Inputs *in, const Device *device, const Buffer *k,
                         const Buffer *v, CacheBuffers *buffers, Attention *a);
void cache_free(CacheBuffers *buffers);

#endif
