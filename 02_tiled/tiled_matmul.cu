// Chapter 2, step tiled-matmul: chapter 1's three kernels, S and P in HBM as there, but the
// matrix products work on tiles in shared memory. A number of Q or K comes from L2 once for 64
// or 128 uses, and from shared memory once for 8, where chapter 1 fetched it for every use.
//
//   tiled_scores    S = scale * Q Kᵀ, masked
//   softmax_rows    P = softmax(S), lse          (chapter 1's)
//   tiled_output    O = P V
#include "tiled_matmul.h"

#include "../01_naive/standard.h"
#include "device/dispatch.h"
#include "device/tile.h"

// One tile of S: 128 x 64 for head_dim 64.
template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(TILE_THREADS, Tile<HEAD_DIM>::BLOCKS_PER_SM)
    tiled_scores(const Attention a, T *scores) {
    using Tile = Tile<HEAD_DIM>;
    extern __shared__ float4 smem[];
    float *q_smem = (float *)smem;
    float *k_smem = q_smem + Tile::Q_FLOATS;
    const int64_t key_tiles = tiles_of(a.seqlen_k, Tile::KEYS);
    const int64_t query_tiles = tiles_of(a.seqlen_q, Tile::ROWS);
    const BlockWork work = block_work(blockIdx.x, key_tiles * query_tiles, a.heads);
    const int64_t first_row = work.tile / key_tiles * Tile::ROWS;
    const int64_t first_key = work.tile % key_tiles * Tile::KEYS;
    const int kv_head = kv_head_of(work.head, a.heads, a.kv_heads);

    load_tile<T, HEAD_DIM>(q_smem,
                           head_rows<T>(a.q, work.batch, work.head, a.seqlen_q, a.heads, HEAD_DIM),
                           first_row, Tile::ROWS);
    load_tile<T, HEAD_DIM>(k_smem,
                           head_rows<T>(a.k, work.batch, kv_head, a.seqlen_k, a.kv_heads, HEAD_DIM),
                           first_key, Tile::KEYS);
    __syncthreads(); // every thread's part of Q and K → all threads

    float s_reg[Tile::THREAD_ROWS][Tile::THREAD_KEYS];
    multiply_query_key<HEAD_DIM>(s_reg, q_smem, k_smem);

#pragma unroll
    for (int r = 0; r < Tile::THREAD_ROWS; r++) {
        const int64_t row = first_row + Tile::ty() + r * Tile::ROW_STEP;
        if (row >= a.seqlen_q) continue;
        const KeyRange seen =
            visible_keys(row, a.seqlen_q, a.seqlen_k, a.window_left, a.window_right);
        T *out =
            scores + matrix_offset(work.batch, work.head, row, a.heads, a.seqlen_q, a.seqlen_k);
#pragma unroll
        for (int c = 0; c < Tile::THREAD_KEYS; c++) {
            const int64_t key = first_key + Tile::tx() + c * Tile::LANES;
            if (key >= a.seqlen_k) continue;
            const bool visible = seen.begin <= key && key < seen.end;
            const float score = score_of(s_reg[r][c], a.softmax_scale, a.softcap);
            store(&out[key], visible ? score : -CUDART_INF_F);
        }
    }
}

// A tile of P → p_smem as fp32, zeros where P has no row or column.
template <typename T, int HEAD_DIM>
__device__ static inline void load_weights(float *p_smem, const T *probabilities, int64_t first_row,
                                           int64_t first_key, int64_t rows, int64_t columns) {
    using Tile = Tile<HEAD_DIM>;
#pragma unroll 4
    for (int at = threadIdx.x; at < Tile::ROWS * Tile::KEYS; at += TILE_THREADS) {
        const int row = at / Tile::KEYS, key = at % Tile::KEYS;
        float weight = 0;
        if (first_row + row < rows && first_key + key < columns)
            weight = to_float(probabilities[(first_row + row) * columns + first_key + key]);
        p_smem[row * Tile::P_STRIDE + key] = weight;
    }
}

// One tile of rows of O, all columns: walks the keys in blocks of 64.
template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(TILE_THREADS, Tile<HEAD_DIM>::BLOCKS_PER_SM)
    tiled_output(const Attention a, const T *probabilities) {
    using Tile = Tile<HEAD_DIM>;
    extern __shared__ float4 smem[];
    float *v_smem = (float *)smem;
    float *p_smem = v_smem + Tile::KV_FLOATS;
    const BlockWork work = block_work(blockIdx.x, tiles_of(a.seqlen_q, Tile::ROWS), a.heads);
    const int64_t first_row = work.tile * Tile::ROWS;
    const int kv_head = kv_head_of(work.head, a.heads, a.kv_heads);
    const HeadRows<T> v = head_rows<T>(a.v, work.batch, kv_head, a.seqlen_k, a.kv_heads, HEAD_DIM);
    probabilities += matrix_offset(work.batch, work.head, 0, a.heads, a.seqlen_q, a.seqlen_k);

    float o_reg[Tile::THREAD_ROWS][Tile::THREAD_COLUMNS] = {};
    for (int64_t key = 0; key < a.seqlen_k; key += Tile::KEYS) {
        load_weights<T, HEAD_DIM>(p_smem, probabilities, first_row, key, a.seqlen_q, a.seqlen_k);
        load_tile<T, HEAD_DIM>(v_smem, v, key, Tile::KEYS);
        __syncthreads(); // every thread's part of P and V → all threads
        add_weighted_values<HEAD_DIM>(o_reg, p_smem, v_smem);
        __syncthreads(); // all threads have read them: the next block may take their place
    }

#pragma unroll
    for (int r = 0; r < Tile::THREAD_ROWS; r++) {
        const int64_t row = first_row + Tile::ty() + r * Tile::ROW_STEP;
        if (row >= a.seqlen_q) continue;
        T *o = (T *)a.o + row_offset(work.batch, row, work.head, a.seqlen_q, a.heads, HEAD_DIM);
#pragma unroll
        for (int c = 0; c < Tile::THREAD_COLUMNS; c += 2)
            store2(o + c * Tile::LANES + Tile::tx() * 2, o_reg[r][c], o_reg[r][c + 1]);
    }
}

template <typename T, int HEAD_DIM> static cudaError_t launch_forward(const Attention *a) {
    using Tile = Tile<HEAD_DIM>;
    const StandardWorkspace workspace = standard_workspace(a);
    const int64_t row_blocks = tiles_of(a->seqlen_q, Tile::ROWS) * a->batch * a->heads;
    const int64_t score_blocks = row_blocks * tiles_of(a->seqlen_k, Tile::KEYS);
    const int score_bytes = (Tile::Q_FLOATS + Tile::KV_FLOATS) * 4;
    const int output_bytes = (Tile::KV_FLOATS + Tile::P_FLOATS) * 4;
    if (row_blocks == 0) return cudaSuccess; // no query rows, no outputs

    cudaError_t error = allow_shared_memory(tiled_scores<T, HEAD_DIM>, score_bytes);
    if (error != cudaSuccess) return error;
    error = allow_shared_memory(tiled_output<T, HEAD_DIM>, output_bytes);
    if (error != cudaSuccess) return error;

    if (score_blocks > 0)
        tiled_scores<T, HEAD_DIM><<<(unsigned)score_blocks, TILE_THREADS, score_bytes, a->stream>>>(
            *a, (T *)workspace.scores);
    error = launch_softmax<T>(a, &workspace);
    if (error != cudaSuccess) return error;
    tiled_output<T, HEAD_DIM><<<(unsigned)row_blocks, TILE_THREADS, output_bytes, a->stream>>>(
        *a, (const T *)workspace.probabilities);
    return cudaGetLastError();
}

DEFINE_DISPATCH(forward, launch_forward)

static const char *refuses(const Attention *a, bool backward) {
    if (backward) return "tiled-matmul has no backward; chapter 1's naive has the standard one";
    // The largest grids: tiles of scores at the smallest tile size, and softmax's rows.
    const int64_t heads = (int64_t)a->batch * a->heads;
    const int64_t score_blocks = tiles_of(a->seqlen_q, 32) * tiles_of(a->seqlen_k, 32) * heads;
    const int64_t row_blocks = tiles_of(a->seqlen_q, SOFTMAX_ROWS) * heads;
    return refuses_on_cuda_cores(a, score_blocks > row_blocks ? score_blocks : row_blocks);
}

static size_t forward_workspace(const Attention *a) {
    return standard_workspace(a).forward_bytes;
}

const Step tiled_matmul_step = {
    .chapter = 2,
    .name = "tiled-matmul",
    .idea = "the same three kernels, the matrix products from tiles in shared memory",
    .exhibit = false,
    .refuses = refuses,
    .forward_workspace = forward_workspace,
    .forward = forward,
    .backward_workspace = NULL,
    .backward = NULL,
};
