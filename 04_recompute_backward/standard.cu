// Chapter 4, step standard: the forward is chapter 2's tiled-matmul, which leaves P in HBM, and the
// backward reads P back. As chapter 1's backward, with the products from tiles in shared memory:
//
//   O = P V              dV = Pᵀ dO             reduce_rows
//                        dP = dO Vᵀ             multiply_rows_kernel
//   P = softmax(S)       dS = P ∘ (dP - D)      softmax_gradients
//   S = scale * Q Kᵀ     dQ = scale * dS K      reduce_keys
//                        dK = scale * dSᵀ Q     reduce_rows
#include "standard.h"

#include "../02_tiled/tiled_matmul.h"
#include "gradient_tile.h"
#include "standard_matrices.h"

// One tile of dP = dO Vᵀ.
template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(TILE_THREADS, 2)
    multiply_rows_kernel(const Attention a, const StandardMatrices m) {
    using Tile = GradientTile<HEAD_DIM>;
    extern __shared__ float4 smem[];
    float *dout_smem = (float *)smem;
    float *v_smem = dout_smem + Tile::ROW_FLOATS;
    const int64_t key_tiles = tiles_of(a.seqlen_k, Tile::KEYS);
    const BlockWork work =
        block_work(blockIdx.x, key_tiles * tiles_of(a.seqlen_q, Tile::ROWS), a.heads);
    const int64_t first_row = work.tile / key_tiles * Tile::ROWS;
    const int64_t first_key = work.tile % key_tiles * Tile::KEYS;
    const int kv_head = kv_head_of(work.head, a.heads, a.kv_heads);

    load_tile<T, HEAD_DIM>(
        dout_smem, head_rows<T>(a.dout, work.batch, work.head, a.seqlen_q, a.heads, HEAD_DIM),
        first_row, Tile::ROWS);
    load_tile<T, HEAD_DIM>(v_smem,
                           head_rows<T>(a.v, work.batch, kv_head, a.seqlen_k, a.kv_heads, HEAD_DIM),
                           first_key, Tile::KEYS);
    __syncthreads(); // every thread's part of dO and V → all threads

    WeightPiece<HEAD_DIM> dp_reg;
    multiply_rows<HEAD_DIM>(dp_reg, dout_smem, v_smem);
    T *out =
        (T *)m.gradients + matrix_offset(work.batch, work.head, 0, a.heads, a.seqlen_q, a.seqlen_k);
#pragma unroll
    for (int r = 0; r < Tile::THREAD_ROWS; r++) {
        const int64_t row = first_row + Tile::ty() + r * Tile::ROW_STEP;
        if (row >= a.seqlen_q) continue;
#pragma unroll
        for (int c = 0; c < Tile::THREAD_KEYS; c++) {
            const int64_t key = first_key + Tile::tx() + c * Tile::LANES;
            if (key < a.seqlen_k) store(&out[row * a.seqlen_k + key], dp_reg[r][c]);
        }
    }
}

// A tile of P or dS → w_smem as fp32, zeros where it has no row or column. `weights` is the head's.
template <typename T, int HEAD_DIM>
__device__ static inline void load_weight_tile(float *w_smem, const T *weights, const Attention &a,
                                               int64_t first_row, int64_t first_key) {
    using Tile = GradientTile<HEAD_DIM>;
#pragma unroll 4
    for (int at = threadIdx.x; at < Tile::ROWS * Tile::KEYS; at += TILE_THREADS) {
        const int row = at / Tile::KEYS, key = at % Tile::KEYS;
        float weight = 0;
        if (first_row + row < a.seqlen_q && first_key + key < a.seqlen_k)
            weight = to_float(weights[(first_row + row) * a.seqlen_k + first_key + key]);
        w_smem[row * Tile::W_STRIDE + key] = weight;
    }
}

// A tile of rows of dQ = factor * dS K: walks the keys.
template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(TILE_THREADS, 2)
    reduce_keys(const Attention a, const T *weights, T *out, float factor) {
    using Tile = GradientTile<HEAD_DIM>;
    extern __shared__ float4 smem[];
    float *k_smem = (float *)smem;
    float *w_smem = k_smem + Tile::KEY_FLOATS;
    const BlockWork work = block_work(blockIdx.x, tiles_of(a.seqlen_q, Tile::ROWS), a.heads);
    const int64_t first_row = work.tile * Tile::ROWS;
    const int kv_head = kv_head_of(work.head, a.heads, a.kv_heads);
    const HeadRows<T> k = head_rows<T>(a.k, work.batch, kv_head, a.seqlen_k, a.kv_heads, HEAD_DIM);
    weights += matrix_offset(work.batch, work.head, 0, a.heads, a.seqlen_q, a.seqlen_k);

    RowPiece<HEAD_DIM> dq_reg = {};
    for (int64_t key = 0; key < a.seqlen_k; key += Tile::KEYS) {
        load_weight_tile<T, HEAD_DIM>(w_smem, weights, a, first_row, key);
        load_tile<T, HEAD_DIM>(k_smem, k, key, Tile::KEYS);
        __syncthreads(); // every thread's part of dS and K → all threads
        add_over_keys<HEAD_DIM>(dq_reg, w_smem, k_smem);
        __syncthreads(); // all threads have read them: the next may take their place
    }
#pragma unroll
    for (int r = 0; r < Tile::THREAD_ROWS; r++) {
        const int64_t row = first_row + Tile::ty() + r * Tile::ROW_STEP;
        if (row >= a.seqlen_q) continue;
        T *to = out + row_offset(work.batch, row, work.head, a.seqlen_q, a.heads, HEAD_DIM);
#pragma unroll
        for (int c = 0; c < Tile::ROW_PIECES; c++)
            store4(to + (Tile::tx() + c * Tile::LANES) * 4, factor, dq_reg[r][c]);
    }
}

// A tile of keys of dV = Pᵀ dO or dK = factor * dSᵀ Q: walks the rows of all query heads that share
// the K/V head.
template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(TILE_THREADS, 2)
    reduce_rows(const Attention a, const T *weights, const void *left, T *out, float factor) {
    using Tile = GradientTile<HEAD_DIM>;
    extern __shared__ float4 smem[];
    float *left_smem = (float *)smem;
    float *w_smem = left_smem + Tile::ROW_FLOATS;
    const BlockWork work = block_work(blockIdx.x, tiles_of(a.seqlen_k, Tile::KEYS), a.kv_heads);
    const int64_t first_key = work.tile * Tile::KEYS;
    const int group = a.heads / a.kv_heads; // query heads per K/V head

    KeyPiece<HEAD_DIM> x_reg = {};
    for (int head = work.head * group; head < (work.head + 1) * group; head++) {
        const HeadRows<T> rows =
            head_rows<T>(left, work.batch, head, a.seqlen_q, a.heads, HEAD_DIM);
        const T *head_weights =
            weights + matrix_offset(work.batch, head, 0, a.heads, a.seqlen_q, a.seqlen_k);
        for (int64_t row = 0; row < a.seqlen_q; row += Tile::ROWS) {
            load_weight_tile<T, HEAD_DIM>(w_smem, head_weights, a, row, first_key);
            load_tile<T, HEAD_DIM>(left_smem, rows, row, Tile::ROWS);
            __syncthreads(); // every thread's part of W and Q or dO → all threads
            add_over_rows<HEAD_DIM>(x_reg, w_smem, left_smem);
            __syncthreads(); // all threads have read them: the next may take their place
        }
    }
    store_key_piece<T, HEAD_DIM>(
        out + row_offset(work.batch, 0, work.head, a.seqlen_k, a.kv_heads, HEAD_DIM),
        (int64_t)a.kv_heads * HEAD_DIM, first_key, a.seqlen_k, factor, x_reg);
}

template <typename T, int HEAD_DIM> static cudaError_t launch_backward(const Attention *a) {
    using Tile = GradientTile<HEAD_DIM>;
    const StandardMatrices m = standard_matrices(a, 1, false);
    const int64_t row_blocks = tiles_of(a->seqlen_q, Tile::ROWS) * a->batch * a->heads;
    const int64_t key_tiles = tiles_of(a->seqlen_k, Tile::KEYS);
    const int64_t key_blocks = key_tiles * a->batch * a->kv_heads;
    const int product_bytes = (Tile::ROW_FLOATS + Tile::KEY_FLOATS) * 4;
    const int keys_bytes = (Tile::KEY_FLOATS + Tile::W_FLOATS) * 4;
    const int rows_bytes = (Tile::ROW_FLOATS + Tile::W_FLOATS) * 4;
    cudaError_t error = allow_shared_memory(multiply_rows_kernel<T, HEAD_DIM>, product_bytes);
    if (error == cudaSuccess) error = allow_shared_memory(reduce_keys<T, HEAD_DIM>, keys_bytes);
    if (error == cudaSuccess) error = allow_shared_memory(reduce_rows<T, HEAD_DIM>, rows_bytes);
    if (error != cudaSuccess) return error;

    // dV = Pᵀ dO; without query rows the sum is empty and dV = 0
    if (key_blocks > 0)
        reduce_rows<T, HEAD_DIM><<<(unsigned)key_blocks, TILE_THREADS, rows_bytes, a->stream>>>(
            *a, (const T *)m.probabilities, a->dout, (T *)a->dv, 1);
    if (row_blocks * key_tiles > 0) {
        // dP = dO Vᵀ
        multiply_rows_kernel<T, HEAD_DIM>
            <<<(unsigned)(row_blocks * key_tiles), TILE_THREADS, product_bytes, a->stream>>>(*a, m);
        // dS = P ∘ (dP - D)
        error = launch_softmax_gradients<T, T, HEAD_DIM>(a, m);
        if (error != cudaSuccess) return error;
    }
    // dQ = scale dS K;  dK = scale dSᵀ Q
    if (row_blocks > 0)
        reduce_keys<T, HEAD_DIM><<<(unsigned)row_blocks, TILE_THREADS, keys_bytes, a->stream>>>(
            *a, (const T *)m.gradients, (T *)a->dq, a->softmax_scale);
    if (key_blocks > 0)
        reduce_rows<T, HEAD_DIM><<<(unsigned)key_blocks, TILE_THREADS, rows_bytes, a->stream>>>(
            *a, (const T *)m.gradients, a->q, (T *)a->dk, a->softmax_scale);
    return cudaGetLastError();
}

DEFINE_DISPATCH(backward, launch_backward)

static cudaError_t forward(const Attention *a) {
    return tiled_matmul_step.forward(a);
}

static size_t forward_workspace(const Attention *a) {
    return standard_matrices(a, 1, false).forward_bytes;
}

static size_t backward_workspace(const Attention *a) {
    return standard_matrices(a, 1, false).backward_bytes;
}

static const char *refuses(const Attention *a, bool) {
    return refuses_on_cuda_cores(a, standard_blocks(a, 32));
}

const Step standard_step = {
    .chapter = 4,
    .name = "standard",
    .idea = "S and P in HBM; the backward reads P back, its products from shared memory",
    .exhibit = false,
    .refuses = refuses,
    .forward_workspace = forward_workspace,
    .forward = forward,
    .backward_workspace = backward_workspace,
    .backward = backward,
};
