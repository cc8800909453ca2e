// How much shared memory the tensor-core tiles of chapter 3 take, and the tile that a device has
// room for. In C, so that a test on the CPU can try every device and head_dim.
//
// A thread block's tile is TENSOR_ROWS query rows by 64 keys, or by 32 where 64 don't fit.
#ifndef TILE_CHOICE_H
#define TILE_CHOICE_H

enum { TENSOR_WARPS = 8, TENSOR_THREADS = 32 * TENSOR_WARPS, TENSOR_ROWS = 16 * TENSOR_WARPS };

// Q's tile once, K's and V's `buffers` times, two bytes a number.
#define TENSOR_TILE_BYTES(head_dim, keys, buffers)                                                 \
    ((TENSOR_ROWS + 2 * (buffers) * (keys)) * (head_dim)*2)

// Blocks that an SM's registers should hold at a time; with wider heads a thread needs more of them.
#define TENSOR_BLOCKS_PER_SM(head_dim) ((head_dim) <= 64 ? 2 : 1)

// What every GPU from capability 8.0 on lets a block have.
#define LEAST_SHARED_BYTES (99 * 1024)

// Keys of the largest tile that fits in `limit` bytes, or 0.
static inline int keys_that_fit(int head_dim, int buffers, int limit) {
    if (TENSOR_TILE_BYTES(head_dim, 64, buffers) <= limit) return 64;
    if (TENSOR_TILE_BYTES(head_dim, 32, buffers) <= limit) return 32;
    return 0;
}

#endif
