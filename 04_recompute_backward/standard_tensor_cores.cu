// Chapter 4, step standard-tensor-cores: standard attention with its six products on tensor cores,
// S, P, dP and dS in HBM between the kernels. fp16 and bf16, head_dim 64 and 128.
//
//   forward                                       backward
//   product_matrix   S = scale * Q Kᵀ, masked     weighted_rows<true>   dV = Pᵀ dO
//   softmax_matrix   P = softmax(S), lse          product_matrix        dP = dO Vᵀ
//   weighted_rows    O = P V                      softmax_gradients     dS = P ∘ (dP - D)
//                                                 weighted_rows         dQ = scale * dS K
//                                                 weighted_rows<true>   dK = scale * dSᵀ Q
//
// S, dP and dS are in fp32, as the accumulators come out and as a softmax, its gradient and (in
// frameworks) a mask and dropout between them work on numbers; P is in the input dtype, for it is
// stored to be multiplied. dS is rounded on its way into its two products. So the matrices cross to
// HBM as the bytes of 18 of them in 16 bits: S written and read 4, P written, read, and read twice
// again 4, dP written and read 4, dS written and read twice 6.
//
// Rows of the matrices are padded to a multiple of eight numbers, so that every one of them begins
// at a multiple of the 16 bytes that a copy moves.
#include "standard_tensor_cores.h"

#include "standard_matrices.h"
#include "tensor_tile.h"

static const int WARPS = 4, THREADS = 32 * WARPS;
static const int SIDE = 16 * WARPS; // of the matrices' tiles: 64 rows x 64 keys
static const int ROW_MULTIPLE = PIECE;

// Products → scores: scaled, capped, -inf where the mask forbids. A lane has two rows, lane_row and
// eight further, and of each eight keys a pair.
template <int KEYS>
__device__ static inline void finish_scores(Accumulator<KEYS> &c, const Attention &a,
                                            int64_t lane_row, int64_t first_key) {
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) c.number[n][i] *= a.softmax_scale;
    if (a.softcap > 0)
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                c.number[n][i] = a.softcap * tanhf(c.number[n][i] / a.softcap);

    const int pair = threadIdx.x % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const KeyRange seen = visible_keys(lane_row + half * 8, a.seqlen_q, a.seqlen_k,
                                           a.window_left, a.window_right);
        // Counted from this tile's first key they are small: 32-bit comparisons do.
        const int begin = (int)min(max(seen.begin - first_key, (int64_t)0), (int64_t)KEYS);
        const int end = (int)min(max(seen.end - first_key, (int64_t)0), (int64_t)KEYS);
        if (begin == 0 && end == KEYS) continue;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int key = n * 8 + pair + i;
                if (key < begin || key >= end) c.number[n][half * 2 + i] = -CUDART_INF_F;
            }
    }
}

// Accumulators → fp32 rows in memory, from row lane_row and key first_key on. Four lanes write 32
// bytes, a whole sector, so nothing is gained by way of shared memory.
template <int KEYS>
__device__ static inline void store_accumulator(float *out, int64_t stride, int64_t row_count,
                                                int64_t lane_row, int64_t first_key,
                                                const Accumulator<KEYS> &c) {
    const int64_t pair = first_key + threadIdx.x % 4 * 2;
    const int keys = (int)min(stride - first_key, (int64_t)KEYS); // padding included
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int64_t row = lane_row + half * 8;
        if (row >= row_count) continue;
        float *to = out + row * stride + pair;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
            if (n * 8 < keys) store2(to + n * 8, c.number[n][half * 2], c.number[n][half * 2 + 1]);
    }
}

// One tile of C[i][j] = left_i · right_j; as scores scaled, capped and masked on the way out.
template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(THREADS)
    product_matrix(const Attention a, const void *left, const void *right, float *out,
                   int64_t stride, bool as_scores) {
    extern __shared__ uint4 smem[];
    T *left_smem = (T *)smem;
    T *right_smem = left_smem + SIDE * HEAD_DIM;
    const int64_t key_tiles = tiles_of(a.seqlen_k, SIDE);
    const BlockWork work = block_work(blockIdx.x, key_tiles * tiles_of(a.seqlen_q, SIDE), a.heads);
    const int64_t first_row = work.tile / key_tiles * SIDE;
    const int64_t first_key = work.tile % key_tiles * SIDE;
    const int kv_head = kv_head_of(work.head, a.heads, a.kv_heads);
    const int warp_row = threadIdx.x / 32 * 16;

    copy_tile<T, SIDE, HEAD_DIM, THREADS>(
        left_smem, head_rows<T>(left, work.batch, work.head, a.seqlen_q, a.heads, HEAD_DIM),
        first_row);
    copy_tile<T, SIDE, HEAD_DIM, THREADS>(
        right_smem, head_rows<T>(right, work.batch, kv_head, a.seqlen_k, a.kv_heads, HEAD_DIM),
        first_key);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads(); // every thread's copies → all threads

    Accumulator<SIDE> c = {};
#pragma unroll
    for (int d = 0; d < HEAD_DIM; d += 16) {
        uint32_t fragment_a[4];
        load_a<HEAD_DIM>(fragment_a, left_smem, warp_row, d);
#pragma unroll
        for (int key = 0; key < SIDE; key += 16) {
            uint32_t fragment_b[4];
            load_b<HEAD_DIM>(fragment_b, right_smem, d, key);
            multiply_add<T>(c, fragment_a, fragment_b, key);
        }
    }

    const int64_t lane_row = first_row + warp_row + threadIdx.x % 32 / 4;
    if (as_scores) finish_scores(c, a, lane_row, first_key);
    const int64_t head_index = (int64_t)work.batch * a.heads + work.head;
    store_accumulator<SIDE>(out + head_index * a.seqlen_q * stride, stride, a.seqlen_q, lane_row,
                            first_key, c);
}

// P = softmax(S) by rows, and lse, a warp a row.
template <typename T>
__global__ void __launch_bounds__(ROW_THREADS)
    softmax_matrix(const StandardMatrices m, float *lse, int64_t rows, int64_t seqlen_k) {
    const int lane = threadIdx.x % 32;
    const int64_t row = (int64_t)blockIdx.x * ROW_WARPS + threadIdx.x / 32;
    if (row >= rows) return;
    const float *scores = (const float *)m.scores + row * m.stride;
    T *probabilities = (T *)m.probabilities + row * m.stride;

    float row_max = -CUDART_INF_F;
    for (int64_t col = lane; col < seqlen_k; col += 32) row_max = fmaxf(row_max, scores[col]);
    row_max = warp_max(row_max);

    const float base = finite_max(row_max);
    float row_sum = 0;
    for (int64_t col = lane; col < seqlen_k; col += 32) row_sum += expf(scores[col] - base);
    row_sum = warp_sum(row_sum);

    const float inverse = row_sum == 0 ? 0 : 1 / row_sum;
    for (int64_t col = lane; col < seqlen_k; col += 32)
        store(&probabilities[col], expf(scores[col] - base) * inverse);
    if (lane == 0) lse[row] = log_sum_exp(row_max, row_sum);
}

// A tile of fp32 numbers on its way to one of T: a thread has four neighbours of every ROW_STEP-th
// row. The loads start here, and the numbers are waited for where store_rounded rounds them.
static const int ROW_STEP = THREADS / (SIDE / 4);

typedef struct {
    float4 number[SIDE / ROW_STEP];
} WideTile;

// Rows past the last and columns from `columns` on, a multiple of four, are not read but 0.
__device__ static inline WideTile load_wide(const HeadRows<float> from, int64_t first_row,
                                            int64_t columns) {
    const int row = threadIdx.x / (SIDE / 4), column = threadIdx.x % (SIDE / 4) * 4;
    const float *source = from.first + (first_row + row) * from.stride + column;
    WideTile tile;
#pragma unroll
    for (int i = 0; i < SIDE / ROW_STEP; i++) {
        tile.number[i] = make_float4(0, 0, 0, 0);
        if (column < columns && first_row + row + i * ROW_STEP < from.count)
            tile.number[i] = *(const float4 *)source;
        source += ROW_STEP * from.stride;
    }
    return tile;
}

template <typename T>
__device__ static inline void store_rounded(T *tile_smem, const WideTile &tile) {
    const int row = threadIdx.x / (SIDE / 4), column = threadIdx.x % (SIDE / 4) * 4;
#pragma unroll
    for (int i = 0; i < SIDE / ROW_STEP; i++) {
        const float4 x = tile.number[i];
        T *to = &tile_smem[swizzled<SIDE>(row + i * ROW_STEP, column / PIECE) + column % PIECE];
        *(uint2 *)to = make_uint2(pack2<T>(x.x, x.y), pack2<T>(x.z, x.w));
    }
}

// SIDE rows of X = factor * W rows (O = P V, dQ = dS K), or, TRANSPOSED, of X = factor * Wᵀ rows,
// summed over the query heads of a group (dV = Pᵀ dO, dK = dSᵀ Q). W is P, of type T, or dS, fp32.
// Two tiles of each factor: one is multiplied while the next is on its way, dS by registers, where
// it is rounded.
template <typename T, typename Weight, int HEAD_DIM, bool TRANSPOSED>
__global__ void __launch_bounds__(THREADS, HEAD_DIM <= 64 ? 3 : 2)
    weighted_rows(const Attention a, const Weight *matrix, int64_t stride, const void *rows,
                  void *out, float factor) {
    extern __shared__ uint4 smem[];
    const int TILES = SIDE * (SIDE + HEAD_DIM); // numbers of W and of rows
    T *tiles_smem = (T *)smem;
    const int64_t out_length = TRANSPOSED ? a.seqlen_k : a.seqlen_q;
    const int64_t sum_length = TRANSPOSED ? a.seqlen_q : a.seqlen_k;
    const int out_heads = TRANSPOSED ? a.kv_heads : a.heads;
    const int sum_heads = TRANSPOSED ? a.heads : a.kv_heads;
    const int group = a.heads / a.kv_heads; // query heads per K/V head
    const BlockWork work = block_work(blockIdx.x, tiles_of(out_length, SIDE), out_heads);
    const int64_t first_out = work.tile * SIDE;
    const int64_t sum_tiles = tiles_of(sum_length, SIDE);
    const int64_t steps = sum_tiles * (TRANSPOSED ? group : 1);
    const int warp_row = threadIdx.x / 32 * 16;

    const bool WIDE = sizeof(Weight) > sizeof(T);
    WideTile wide; // of the step that was fetched last
    const auto fetch = [&](int64_t step) {
        T *w_smem = tiles_smem + step % 2 * TILES;
        const int turn = (int)((uint32_t)step / (uint32_t)sum_tiles); // which head of the group
        const int64_t first_sum = (uint32_t)step % (uint32_t)sum_tiles * (int64_t)SIDE;
        const int query_head = TRANSPOSED ? work.head * group + turn : work.head;
        const int row_head = TRANSPOSED ? query_head : work.head / group;
        const int64_t first_row = TRANSPOSED ? first_sum : first_out;
        const int64_t first_key = TRANSPOSED ? first_out : first_sum;
        HeadRows<Weight> w;
        w.first =
            matrix + ((int64_t)work.batch * a.heads + query_head) * a.seqlen_q * stride + first_key;
        w.stride = stride;
        w.count = a.seqlen_q;
        if constexpr (WIDE)
            wide = load_wide(w, first_row, stride - first_key);
        else
            copy_tile<T, SIDE, SIDE, THREADS>(w_smem, w, first_row, a.seqlen_k - first_key);
        copy_tile<T, SIDE, HEAD_DIM, THREADS>(
            w_smem + SIDE * SIDE,
            head_rows<T>(rows, work.batch, row_head, sum_length, sum_heads, HEAD_DIM), first_sum);
    };

    Accumulator<HEAD_DIM> x = {};
    if (steps > 0) {
        fetch(0);
        if (WIDE) store_rounded<T>(tiles_smem, wide);
    }
    cp_async_commit();
    for (int64_t step = 0; step < steps; step++) {
        const T *w_smem = tiles_smem + step % 2 * TILES;
        const T *rows_smem = w_smem + SIDE * SIDE;
        cp_async_wait<0>();
        __syncthreads(); // every thread's copies → all; the other buffer has been read
        if (step + 1 < steps) fetch(step + 1);
        cp_async_commit();
#pragma unroll
        for (int k = 0; k < SIDE; k += 16) {
            uint32_t fragment_a[4];
            if (TRANSPOSED)
                load_a_transposed<SIDE>(fragment_a, w_smem, warp_row, k);
            else
                load_a<SIDE>(fragment_a, w_smem, warp_row, k);
#pragma unroll
            for (int n = 0; n < HEAD_DIM; n += 16) {
                uint32_t fragment_b[4];
                load_b_transposed<HEAD_DIM>(fragment_b, rows_smem, k, n);
                multiply_add<T>(x, fragment_a, fragment_b, n);
            }
        }
        if (WIDE && step + 1 < steps) store_rounded<T>(tiles_smem + (step + 1) % 2 * TILES, wide);
    }

    cp_async_wait<0>();
    __syncthreads(); // all warps have read the tiles: X may take their place
    accumulator_to_tile<T, HEAD_DIM>(tiles_smem, warp_row, 0, x, factor);
    __syncthreads(); // every warp's rows of X → all threads
    store_tile<T, SIDE, HEAD_DIM, THREADS>(
        (T *)out + row_offset(work.batch, 0, work.head, out_length, out_heads, HEAD_DIM),
        (int64_t)out_heads * HEAD_DIM, first_out, out_length, tiles_smem);
}

// ---- launches

template <typename T, int HEAD_DIM>
static cudaError_t launch_product(const Attention *a, const void *left, const void *right,
                                  char *out, int64_t stride, bool as_scores) {
    const int64_t blocks =
        tiles_of(a->seqlen_q, SIDE) * tiles_of(a->seqlen_k, SIDE) * a->batch * a->heads;
    if (blocks == 0) return cudaSuccess;
    product_matrix<T, HEAD_DIM><<<(unsigned)blocks, THREADS, 2 * SIDE * HEAD_DIM * 2, a->stream>>>(
        *a, left, right, (float *)out, stride, as_scores);
    return cudaGetLastError();
}

template <typename T, typename Weight, int HEAD_DIM, bool TRANSPOSED>
static cudaError_t launch_weighted(const Attention *a, const char *matrix, int64_t stride,
                                   const void *rows, void *out, float factor) {
    const int bytes = 2 * SIDE * (SIDE + HEAD_DIM) * 2;
    const int64_t blocks = a->batch * (TRANSPOSED ? tiles_of(a->seqlen_k, SIDE) * a->kv_heads
                                                  : tiles_of(a->seqlen_q, SIDE) * a->heads);
    if (blocks == 0) return cudaSuccess;
    const auto kernel = weighted_rows<T, Weight, HEAD_DIM, TRANSPOSED>;
    const cudaError_t error = allow_shared_memory(kernel, bytes);
    if (error != cudaSuccess) return error;
    kernel<<<(unsigned)blocks, THREADS, bytes, a->stream>>>(*a, (const Weight *)matrix, stride,
                                                            rows, out, factor);
    return cudaGetLastError();
}

template <typename T, int HEAD_DIM> static cudaError_t launch_forward(const Attention *a) {
    const StandardMatrices m = standard_matrices(a, ROW_MULTIPLE, true);
    const int64_t rows = (int64_t)a->batch * a->heads * a->seqlen_q;
    if (rows == 0) return cudaSuccess; // no rows, no outputs
    cudaError_t error = launch_product<T, HEAD_DIM>(a, a->q, a->k, m.scores, m.stride, true);
    if (error != cudaSuccess) return error;
    softmax_matrix<T><<<(unsigned)tiles_of(rows, ROW_WARPS), ROW_THREADS, 0, a->stream>>>(
        m, a->lse, rows, a->seqlen_k);
    error = cudaGetLastError();
    if (error != cudaSuccess) return error;
    return launch_weighted<T, T, HEAD_DIM, false>(a, m.probabilities, m.stride, a->v, a->o, 1);
}

template <typename T, int HEAD_DIM> static cudaError_t launch_backward(const Attention *a) {
    const StandardMatrices m = standard_matrices(a, ROW_MULTIPLE, true);
    const float scale = a->softmax_scale;
    // dV = Pᵀ dO; without query rows the sum is empty and dV = 0
    cudaError_t error =
        launch_weighted<T, T, HEAD_DIM, true>(a, m.probabilities, m.stride, a->dout, a->dv, 1);
    // dP = dO Vᵀ, then dS = P ∘ (dP - D)
    if (error == cudaSuccess)
        error = launch_product<T, HEAD_DIM>(a, a->dout, a->v, m.gradients, m.stride, false);
    if (error == cudaSuccess && a->seqlen_q > 0)
        error = launch_softmax_gradients<T, float, HEAD_DIM>(a, m);
    // dQ = scale dS K;  dK = scale dSᵀ Q
    if (error == cudaSuccess)
        error = launch_weighted<T, float, HEAD_DIM, false>(a, m.gradients, m.stride, a->k, a->dq,
                                                           scale);
    if (error == cudaSuccess)
        error =
            launch_weighted<T, float, HEAD_DIM, true>(a, m.gradients, m.stride, a->q, a->dk, scale);
    return error;
}

template <typename T> static cudaError_t launch_of(const Attention *a, bool backward) {
#if BUILT_64
    if (a->head_dim == 64) return backward ? launch_backward<T, 64>(a) : launch_forward<T, 64>(a);
#endif
#if BUILT_128
    if (a->head_dim == 128)
        return backward ? launch_backward<T, 128>(a) : launch_forward<T, 128>(a);
#endif
    return cudaErrorInvalidValue;
}

static cudaError_t launch(const Attention *a, bool backward) {
    return a->dtype == DTYPE_FP16 ? launch_of<__half>(a, backward)
                                  : launch_of<__nv_bfloat16>(a, backward);
}

static cudaError_t forward(const Attention *a) {
    return launch(a, false);
}

static cudaError_t backward(const Attention *a) {
    return launch(a, true);
}

static size_t forward_workspace(const Attention *a) {
    return standard_matrices(a, ROW_MULTIPLE, true).forward_bytes;
}

static size_t backward_workspace(const Attention *a) {
    return standard_matrices(a, ROW_MULTIPLE, true).backward_bytes;
}

static const char *refuses(const Attention *a, bool) {
    if (a->dtype == DTYPE_FP32)
        return "standard-tensor-cores takes fp16 and bf16; the step standard takes fp32";
    if (a->head_dim != 64 && a->head_dim != 128)
        return "standard-tensor-cores has head_dim 64 and 128; the step standard has all";
    return refuses_on_cuda_cores(a, standard_blocks(a, SIDE));
}

const Step standard_tensor_cores_step = {
    .chapter = 4,
    .name = "standard-tensor-cores",
    .idea = "the same six products with mma.sync; P in HBM, and S, dP and dS in fp32",
    .exhibit = false,
    .refuses = refuses,
    .forward_workspace = forward_workspace,
    .forward = forward,
    .backward_workspace = backward_workspace,
    .backward = backward,
};
