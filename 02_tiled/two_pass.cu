// Chapter 2, step two-pass: attention in one kernel, S and P never in HBM. The softmax of a row
// needs its maximum and denominator first, so the keys are walked twice and Q Kᵀ is computed
// twice:
//
//   pass 1, over K          m = max over all keys,   l = Σ e^(S - m)
//   pass 2, over K and V    O = Σ (e^(S - m) / l) V
//
// In pass 1 the maximum grows from block to block, and the sum so far is moved to the new one by
// e^(m - m_new). (That this can be done to a sum is what chapter 3 starts from.)
#include "two_pass.h"

#include "device/fused.h"

template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(TILE_THREADS, Tile<HEAD_DIM>::BLOCKS_PER_SM)
    two_pass(const Attention a) {
    using Tile = Tile<HEAD_DIM>;
    extern __shared__ float4 smem[];
    float *q_smem = (float *)smem;
    float *kv_smem = q_smem + Tile::Q_FLOATS; // K, then V, of the same keys
    float *p_smem = kv_smem + Tile::KV_FLOATS;
    const FusedWork<T> work = fused_work<T, HEAD_DIM>(a);

    float row_max[Tile::THREAD_ROWS], row_sum[Tile::THREAD_ROWS]; // m and l
    for (int r = 0; r < Tile::THREAD_ROWS; r++) {
        row_max[r] = -CUDART_INF_F;
        row_sum[r] = 0;
    }
    load_tile<T, HEAD_DIM>(q_smem, work.q, work.first_row, Tile::ROWS);

    // pass 1: maximum and denominator
    for (int64_t key = work.first_key; key < work.end_key; key += Tile::KEYS) {
        load_tile<T, HEAD_DIM>(kv_smem, work.k, key, Tile::KEYS);
        __syncthreads(); // every thread's part of K (at first of Q too) → all threads

        float s_reg[Tile::THREAD_ROWS][Tile::THREAD_KEYS];
        multiply_query_key<HEAD_DIM>(s_reg, q_smem, kv_smem);
        finish_scores<T, HEAD_DIM>(s_reg, a, work, key);
#pragma unroll
        for (int r = 0; r < Tile::THREAD_ROWS; r++) {
            // exercise 1: begin
            const float new_max = fmaxf(row_max[r], block_row_max<HEAD_DIM>(s_reg[r]));
            const float base = finite_max(new_max);
            row_sum[r] =
                row_sum[r] * expf(row_max[r] - base) + exponentiate_row<HEAD_DIM>(s_reg[r], base);
            row_max[r] = new_max;
            // exercise 1: end
        }
        __syncthreads(); // all threads have read K: the next block may take its place
    }

    // pass 2: the same scores again, now with the denominator known, and the output
    float o_reg[Tile::THREAD_ROWS][Tile::THREAD_COLUMNS] = {};
    for (int64_t key = work.first_key; key < work.end_key; key += Tile::KEYS) {
        load_tile<T, HEAD_DIM>(kv_smem, work.k, key, Tile::KEYS);
        __syncthreads(); // every thread's part of K → all threads

        float s_reg[Tile::THREAD_ROWS][Tile::THREAD_KEYS];
        multiply_query_key<HEAD_DIM>(s_reg, q_smem, kv_smem);
        finish_scores<T, HEAD_DIM>(s_reg, a, work, key);
#pragma unroll
        for (int r = 0; r < Tile::THREAD_ROWS; r++) {
            // exercise 2: begin
            const float base = finite_max(row_max[r]);
            const float inverse = row_sum[r] == 0 ? 0 : 1 / row_sum[r]; // a row without keys: O = 0
#pragma unroll
            for (int c = 0; c < Tile::THREAD_KEYS; c++)
                s_reg[r][c] = expf(s_reg[r][c] - base) * inverse;
            // exercise 2: end
        }
        store_weights<HEAD_DIM>(p_smem, s_reg);

        // exercise 3: begin
        __syncthreads(); // all threads have read K: V may take its place
        load_tile<T, HEAD_DIM>(kv_smem, work.v, key, Tile::KEYS);
        __syncthreads(); // every thread's part of V → all threads (and P → its warp)
        add_weighted_values<HEAD_DIM>(o_reg, p_smem, kv_smem);
        // exercise 3: end
        __syncthreads(); // all threads have read V: the next K may take its place
    }

    float lse_reg[Tile::THREAD_ROWS];
    // exercise 4: begin
    for (int r = 0; r < Tile::THREAD_ROWS; r++) lse_reg[r] = log_sum_exp(row_max[r], row_sum[r]);
    // exercise 4: end
    store_output<T, HEAD_DIM>(a, work, o_reg, lse_reg);
}

template <typename T, int HEAD_DIM> static cudaError_t launch_forward(const Attention *a) {
    return launch_fused<HEAD_DIM>(two_pass<T, HEAD_DIM>, a);
}

DEFINE_DISPATCH(forward, launch_forward)

const Step two_pass_step = {
    .chapter = 2,
    .name = "two-pass",
    .idea = "one kernel: maximum and denominator first, then the scores again and the output",
    .exhibit = false,
    .refuses = refuses_fused,
    .forward_workspace = no_workspace,
    .forward = forward,
    .backward_workspace = NULL,
    .backward = NULL,
};
