// How the backward's tiles come into shared memory, and how dV, dK and dQ leave it.
#ifndef BLACKWELL_BACKWARD_COPIES_H
#define BLACKWELL_BACKWARD_COPIES_H

#include "backward_tile.h"
#include "device/named_barrier.h"
#include "device/proxy.h"
#include "softmax.h"

// Named barriers: of the warps that reduce; of each warpgroup that computes.
static const int DQ_READY = 1, KEYS_READY = 2;

// Starts copying 128 rows of a head, box after box; rows past the last come as zeros, and count.
template <int HEAD_DIM, typename T>
__device__ static inline void load_tile(T *to_smem, const CUtensorMap *map, uint64_t *full, int row,
                                        int head, int batch) {
#pragma unroll
    for (int box = 0; box < HEAD_DIM / COLUMNS; box++)
        tma_load_4d(to_smem + box * ROWS * COLUMNS, map, full, box * COLUMNS, row, head, batch);
}

// A block's dV or dK from first_key on, a thread a key, times a factor → shared memory → HBM. Zeros
// if no row sees the keys; keys past the last are left out by TMA.
template <typename T, int HEAD_DIM>
__device__ static inline void store_keys(T *tile_smem, const CUtensorMap *map, uint32_t tmem,
                                         const BlockKeys &block, int first_key, int share,
                                         float factor) {
    const int key = threadIdx.x % WARPGROUP;
    PHASE("epilogue");
    write_output<T, HEAD_DIM>(tile_smem, key, tmem, factor, block.tiles > 0);
    fence_proxy_async();
    named_barrier_sync(KEYS_READY + share, WARPGROUP); // the warpgroup's stores → TMA
    if (key != 0) return;
#pragma unroll
    for (int box = 0; box < HEAD_DIM / COLUMNS; box++)
        tma_store_4d(map, tile_smem + box * KEYS * COLUMNS, box * COLUMNS, first_key, block.kv_head,
                     block.batch);
    tma_commit();
    tma_wait_read<0>(); // shared memory must live as long as it is read
}

// COUNT columns of dQ of a thread's row → piece_smem, where PieceLayout has 64 rows of them.
template <int COUNT>
__device__ static inline void write_piece(float *piece_smem, int row, const float *dq_reg) {
#pragma unroll
    for (int i = 0; i < COUNT; i += PIECE)
        *(float4 *)&piece_smem[i * PIECE_ROWS + row * PIECE] =
            make_float4(dq_reg[i], dq_reg[i + 1], dq_reg[i + 2], dq_reg[i + 3]);
}

#endif
