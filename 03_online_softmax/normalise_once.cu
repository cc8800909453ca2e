// Chapter 3, step normalise-once: one pass over K and V, dividing by the denominator at the end
// only.
//
//   m_new = max(m, rowmax(S))
//   l     = l e^(m - m_new) + rowsum(e^(S - m_new))
//   O     = O e^(m - m_new) + e^(S - m_new) V
//   and after the last block   O = O / l
//
// The unnormalised O needs the first factor only; the second, l / l_new, was there to undo a
// division that this form never makes.
#include "normalise_once.h"

#include "device/fused.h"

template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(TILE_THREADS, Tile<HEAD_DIM>::BLOCKS_PER_SM)
    normalise_once(const Attention a) {
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
            const float rescale = expf(row_max[r] - base); // e^(m - m_new)
#pragma unroll
            for (int c = 0; c < Tile::THREAD_COLUMNS; c++) o_reg[r][c] *= rescale;
            row_sum[r] = row_sum[r] * rescale + block_sum;
            row_max[r] = new_max;
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
        const float inverse = row_sum[r] == 0 ? 0 : 1 / row_sum[r]; // a row without keys: O = 0
#pragma unroll
        for (int c = 0; c < Tile::THREAD_COLUMNS; c++) o_reg[r][c] *= inverse;
        lse_reg[r] = log_sum_exp(row_max[r], row_sum[r]);
    }
    store_output<T, HEAD_DIM>(a, work, o_reg, lse_reg);
    if (a.lse_rest != NULL) store_lse_rest<T, HEAD_DIM>(a, work, row_max, row_sum); // chapter 4
}

template <typename T, int HEAD_DIM> static cudaError_t launch_forward(const Attention *a) {
    return launch_fused<HEAD_DIM>(normalise_once<T, HEAD_DIM>, a);
}

DEFINE_DISPATCH(forward, launch_forward)

const Step normalise_once_step = {
    .chapter = 3,
    .name = "normalise-once",
    .idea = "one pass: keep the output unnormalised, divide once at the end",
    .exhibit = false,
    .refuses = refuses_fused,
    .forward_workspace = no_workspace,
    .forward = forward,
    .backward_workspace = NULL,
    .backward = NULL,
};
