// Where things stand in memory: the offsets of rows in tensors, and the work of a thread block.
//
// Every offset is 64-bit from its first multiplication on: 32 bits end at 2^31 elements, which
// long sequences reach. Every grid is one-dimensional (gridDim.y and .z end at 65,535, batch *
// heads does not). The functions run on both sides, so a test on the CPU can try sizes that no
// memory holds.
#ifndef INDEX_H
#define INDEX_H

#include <stdint.h>

#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__
#else
#define HOST_DEVICE
#endif

#define MAX_GRID_BLOCKS INT32_MAX // the largest gridDim.x

// First element of a row of one head in a (batch, seqlen, heads, head_dim) tensor.
HOST_DEVICE static inline int64_t row_offset(int64_t batch, int64_t row, int64_t head,
                                             int64_t seqlen, int64_t heads, int64_t head_dim) {
    return ((batch * seqlen + row) * heads + head) * head_dim;
}

// Element (row, 0) of one head's seqlen_q x seqlen_k matrix: S, P, dS.
HOST_DEVICE static inline int64_t matrix_offset(int64_t batch, int64_t head, int64_t row,
                                                int64_t heads, int64_t seqlen_q, int64_t seqlen_k) {
    return ((batch * heads + head) * seqlen_q + row) * seqlen_k;
}

// Element of a (batch, heads, seqlen_q) vector: lse, and rowsum(dO * O).
HOST_DEVICE static inline int64_t vector_offset(int64_t batch, int64_t head, int64_t row,
                                                int64_t heads, int64_t seqlen_q) {
    return (batch * heads + head) * seqlen_q + row;
}

// The K/V head that a query head reads: neighbours share one (grouped-query attention).
HOST_DEVICE static inline int kv_head_of(int head, int heads, int kv_heads) {
    return head / (heads / kv_heads);
}

// How many tiles of `size` cover `length`.
HOST_DEVICE static inline int64_t tiles_of(int64_t length, int64_t size) {
    return length / size + (length % size != 0);
}

// A block's share of the work: tile `tile` of `tiles` of one head.
typedef struct {
    int batch, head;
    int64_t tile;
} BlockWork;

// Blocks count tiles fastest, then heads, then the batch. `block` is a blockIdx.x, so 32-bit
// divisions do (a 64-bit one costs a hundred instructions on a GPU).
HOST_DEVICE static inline BlockWork block_work(uint32_t block, int64_t tiles, int heads) {
    const uint32_t head_index = block / (uint32_t)tiles;
    BlockWork work;
    work.tile = block % (uint32_t)tiles;
    work.head = (int)(head_index % (uint32_t)heads);
    work.batch = (int)(head_index / (uint32_t)heads);
    return work;
}

#endif
