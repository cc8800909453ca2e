// Bringing L2 into a known state, and the load that the programs read memory with.
#ifndef TIMING_CACHES_H
#define TIMING_CACHES_H

#include "bench.h"

static const size_t LINE = 128; // bytes

typedef struct {
    uint32_t word[4];
} Piece; // 16 bytes

// Past L1, which would keep it.
__device__ static inline Piece load_piece(const void *from) {
    Piece p;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(p.word[0]), "=r"(p.word[1]), "=r"(p.word[2]), "=r"(p.word[3])
                 : "l"(__cvta_generic_to_global(from))
                 : "memory");
    return p;
}

// Uses what was loaded: the warp has to wait for it.
__device__ static inline void use_piece(uint32_t *sum, Piece p) {
    asm volatile("xor.b32 %0, %0, %1;" : "+r"(*sum) : "r"(p.word[0]));
}

__global__ static void touch(const uint8_t *from, size_t pieces) {
    const size_t threads = (size_t)gridDim.x * blockDim.x;
    for (size_t k = (size_t)blockIdx.x * blockDim.x + threadIdx.x; k < pieces; k += threads)
        load_piece(from + 16 * k);
}

// Reads it all: afterwards L2 holds the last of it.
static inline void touch_all(const void *from, size_t bytes) {
    touch<<<2 * device().multiProcessorCount, 512>>>((const uint8_t *)from, bytes / 16);
    CUDA(cudaDeviceSynchronize());
}

// Pushes everything else out of L2.
static inline void flush_l2() {
    const size_t bytes = 2 * (size_t)device().l2CacheSize / LINE * LINE;
    void *other;
    CUDA(cudaMalloc(&other, bytes));
    CUDA(cudaMemset(other, 0, bytes));
    touch_all(other, bytes);
    CUDA(cudaFree(other));
}

#endif
