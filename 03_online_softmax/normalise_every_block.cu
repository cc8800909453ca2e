// Chapter 3, step normalise-every-block: one pass over K and V. After each block of keys the output
// is the right attention over all keys seen so far, divided by their denominator.
//
//   m_new = max(m, rowmax(S))
//   l_new = l e^(m - m_new) + rowsum(e^(S - m_new))
//   O     = O (l e^(m - m_new) / l_new) + (e^(S - m_new) / l_new) V
//
// Both factors of the old output's correction are there: e^(m - m_new) moves it to the new maximum,
// l / l_new to the new denominator.
#include "normalise_every_block.h"

#include "device/fused.h"

template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(TILE_THREADS, Tile<HEAD_DIM>::BLOCKS_PER_SM)
    normalise_every_block(const Attention a) {
    using Tile = Tile<HEAD_DIM>;
    extern __shared__ float4 smem[];
    float *q_smem = (float *)smem;
    float *kv_smem = q_smem + Tile::Q_FLOATS; // K, then V, of the same keys
    float *p_smem = kv_smem + Tile::KV_FLOATS;
    const FusedWork<T> work = fused_work<T, HEAD_DIM>(a);

    float o_reg[Tile::THREAD_ROWS][Tile::THREAD_COLUMNS] = {};
    float row_max[Tile::THREAD_ROWS], row_sum[Tile::THREAD_ROWS]; // m and l
    for (int r = 0; r < Tile::THREAD_ROWS; r++) {
        row_max[r] = -CUDART_INF_F;
        row_sum[r] = 0;
    }
    load_tile<T, HEAD_DIM>(q_smem, work.q, work.first_row, Tile::ROWS);

    for (int64_t key = work.first_key; key < work.end_key; key += Tile::KEYS) {
        load_tile<T, HEAD_DIM>(kv_smem, work.k, key, Tile::KEYS);
        __syncthreads(); // every thread's part of K (at first of Q too) → all threads

        float s_reg[Tile::THREAD_ROWS][Tile::THREAD_KEYS];
        multiply_query_key<HEAD_DIM>(s_reg, q_smem, kv_smem);
        finish_scores<T, HEAD_DIM>(s_reg, a, work, key);

#pragma unroll
        for (int r = 0; r < Tile::THREAD_ROWS; r++) {
            const float new_max = fmaxf(row_max[r], block_row_max<HEAD_DIM>(s_reg[r]));
            const float base = finite_max(new_max);
            const float block_sum = exponentiate_row<HEAD_DIM>(s_reg[r], base);
            const float old_sum = row_sum[r] * expf(row_max[r] - base); // l e^(m - m_new)
            const float new_sum = old_sum + block_sum;
            const float inverse = new_sum > 0 ? 1 / new_sum : 0;
#pragma unroll
            for (int c = 0; c < Tile::THREAD_COLUMNS; c++) o_reg[r][c] *= old_sum * inverse;
#pragma unroll
            for (int c = 0; c < Tile::THREAD_KEYS; c++) s_reg[r][c] *= inverse;
            row_max[r] = new_max;
            row_sum[r] = new_sum;
        }
        store_weights<HEAD_DIM>(p_smem, s_reg);

        __syncthreads(); // all threads have read K: V may take its place
        load_tile<T, HEAD_DIM>(kv_smem, work.v, key, Tile::KEYS);
        __syncthreads(); // every thread's part of V → all threads (and P → its warp)
        add_weighted_values<HEAD_DIM>(o_reg, p_smem, kv_smem);
        __syncthreads(); // all threads have read V: the next K may take its place
    }

    float lse_reg[Tile::THREAD_ROWS];
    for (int r = 0; r < Tile::THREAD_ROWS; r++) lse_reg[r] = log_sum_exp(row_max[r], row_sum[r]);
    store_output<T, HEAD_DIM>(a, work, o_reg, lse_reg);
}

template <typename T, int HEAD_DIM> static cudaError_t launch_forward(const Attention *a) {
    return launch_fused<HEAD_DIM>(normalise_every_block<T, HEAD_DIM>, a);
}

DEFINE_DISPATCH(forward, launch_forward)

const Step normalise_every_block_step = {
    .chapter = 3,
    .name = "normalise-every-block",
    .idea = "one pass: correct the old output by both factors at every block",
    .exhibit = false,
    .refuses = refuses_fused,
    .forward_workspace = no_workspace,
    .forward = forward,
    .backward_workspace = NULL,
    .backward = NULL,
};
