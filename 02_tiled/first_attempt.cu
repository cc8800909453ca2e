// Chapter 2, exhibit first-attempt: WRONG BY DESIGN. The keys are taken in blocks, each block
// gets a softmax of its own, and the blocks' outputs are averaged:
//
//   O = average over blocks of  softmax(S_block) V_block
//
// A block's denominator says how much its keys weigh in all; here every block weighs the same,
// however small its scores. It is right only where one block holds all the keys.
#include "first_attempt.h"

#include "device/fused.h"

template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(TILE_THREADS, Tile<HEAD_DIM>::BLOCKS_PER_SM)
    first_attempt(const Attention a) {
    using Tile = Tile<HEAD_DIM>;
    extern __shared__ float4 smem[];
    float *q_smem = (float *)smem;
    float *kv_smem = q_smem + Tile::Q_FLOATS; // K, then V, of the same keys
    float *p_smem = kv_smem + Tile::KV_FLOATS;
    const FusedWork<T> work = fused_work<T, HEAD_DIM>(a);

    float o_reg[Tile::THREAD_ROWS][Tile::THREAD_COLUMNS] = {};
    float blocks_seen[Tile::THREAD_ROWS] = {}; // blocks in which the row sees a key
    float lse_sum[Tile::THREAD_ROWS] = {};     // of the blocks' own lse
    load_tile<T, HEAD_DIM>(q_smem, work.q, work.first_row, Tile::ROWS);

    for (int64_t key = work.first_key; key < work.end_key; key += Tile::KEYS) {
        load_tile<T, HEAD_DIM>(kv_smem, work.k, key, Tile::KEYS);
        __syncthreads(); // every thread's part of K (at first of Q too) → all threads

        float s_reg[Tile::THREAD_ROWS][Tile::THREAD_KEYS];
        multiply_query_key<HEAD_DIM>(s_reg, q_smem, kv_smem);
        finish_scores<T, HEAD_DIM>(s_reg, a, work, key);

#pragma unroll
        for (int r = 0; r < Tile::THREAD_ROWS; r++) {
            const float block_max = block_row_max<HEAD_DIM>(s_reg[r]);
            const float block_sum = exponentiate_row<HEAD_DIM>(s_reg[r], finite_max(block_max));
            if (block_sum == 0) continue; // all masked: the weights are zeros already
            blocks_seen[r] += 1;
            lse_sum[r] += log_sum_exp(block_max, block_sum);
#pragma unroll
            for (int c = 0; c < Tile::THREAD_KEYS; c++) s_reg[r][c] /= block_sum;
        }
        store_weights<HEAD_DIM>(p_smem, s_reg);

        __syncthreads(); // all threads have read K: V may take its place
        load_tile<T, HEAD_DIM>(kv_smem, work.v, key, Tile::KEYS);
        __syncthreads(); // every thread's part of V → all threads (and P → its warp)
        add_weighted_values<HEAD_DIM>(o_reg, p_smem, kv_smem);
        __syncthreads(); // all threads have read V: the next K may take its place
    }

    float lse_reg[Tile::THREAD_ROWS];
#pragma unroll
    for (int r = 0; r < Tile::THREAD_ROWS; r++) {
        const float blocks = fmaxf(blocks_seen[r], 1);
#pragma unroll
        for (int c = 0; c < Tile::THREAD_COLUMNS; c++) o_reg[r][c] /= blocks;
        lse_reg[r] = blocks_seen[r] > 0 ? lse_sum[r] / blocks : -CUDART_INF_F;
    }
    store_output<T, HEAD_DIM>(a, work, o_reg, lse_reg);
}

template <typename T, int HEAD_DIM> static cudaError_t launch_forward(const Attention *a) {
    return launch_fused<HEAD_DIM>(first_attempt<T, HEAD_DIM>, a);
}

DEFINE_DISPATCH(forward, launch_forward)

const Step first_attempt_step = {
    .chapter = 2,
    .name = "first-attempt",
    .idea = "wrong by design: every block of keys normalised on its own, then averaged",
    .exhibit = true,
    .refuses = refuses_fused,
    .forward_workspace = no_workspace,
    .forward = forward,
    .backward_workspace = NULL,
    .backward = NULL,
};
