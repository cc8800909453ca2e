// What the fused kernels (chapter 2's and 3's) share besides the matrix products: a block's place
// in the problem, its scores, and its output. What differs between them, how the softmax is put
// together from blocks of keys, stands in the kernels.
#ifndef FUSED_H
#define FUSED_H

#include "device/dispatch.h"
#include "device/tile.h"

// A block takes one tile of query rows of one head and walks the blocks of keys that its rows see.
template <typename T> struct FusedWork {
    int batch, head;
    int64_t first_row; // of the tile
    HeadRows<T> q, k, v;
    int64_t first_key, end_key; // the blocks of keys that any row sees start in between
    KeyRange seen_by_all;       // keys that need no mask
};

// The work of this block when tiles are `rows` query rows by `keys` keys.
template <typename T>
__device__ static inline FusedWork<T> fused_work_of(const Attention &a, int head_dim, int rows,
                                                    int keys) {
    const BlockWork block = block_work(blockIdx.x, tiles_of(a.seqlen_q, rows), a.heads);
    const int kv_head = kv_head_of(block.head, a.heads, a.kv_heads);
    FusedWork<T> work;
    work.batch = block.batch;
    work.head = block.head;
    work.first_row = block.tile * rows;
    work.q = head_rows<T>(a.q, block.batch, block.head, a.seqlen_q, a.heads, head_dim);
    work.k = head_rows<T>(a.k, block.batch, kv_head, a.seqlen_k, a.kv_heads, head_dim);
    work.v = head_rows<T>(a.v, block.batch, kv_head, a.seqlen_k, a.kv_heads, head_dim);

    const int64_t last_row = min(work.first_row + rows, a.seqlen_q) - 1;
    const KeyRange any = keys_seen_by_any(work.first_row, last_row, a.seqlen_q, a.seqlen_k,
                                          a.window_left, a.window_right);
    work.first_key = any.begin - any.begin % keys;
    work.end_key = any.end;
    work.seen_by_all = keys_seen_by_all(work.first_row, last_row, a.seqlen_q, a.seqlen_k,
                                        a.window_left, a.window_right);
    return work;
}

template <typename T, int HEAD_DIM>
__device__ static inline FusedWork<T> fused_work(const Attention &a) {
    return fused_work_of<T>(a, HEAD_DIM, Tile<HEAD_DIM>::ROWS, Tile<HEAD_DIM>::KEYS);
}

// s_reg: products → scores, -inf where the mask or the end of the keys forbids. Blocks that every
// row sees in full, nearly all of them, skip the mask.
template <typename T, int HEAD_DIM>
__device__ static inline void finish_scores(
    float (&s_reg)[Tile<HEAD_DIM>::THREAD_ROWS][Tile<HEAD_DIM>::THREAD_KEYS], const Attention &a,
    const FusedWork<T> &work, int64_t key) {
    using Tile = Tile<HEAD_DIM>;
#pragma unroll
    for (int r = 0; r < Tile::THREAD_ROWS; r++)
#pragma unroll
        for (int c = 0; c < Tile::THREAD_KEYS; c++)
            s_reg[r][c] = score_of(s_reg[r][c], a.softmax_scale, a.softcap);

    if (work.seen_by_all.begin <= key && key + Tile::KEYS <= work.seen_by_all.end) return;
#pragma unroll
    for (int r = 0; r < Tile::THREAD_ROWS; r++) {
        const int64_t row = work.first_row + Tile::ty() + r * Tile::ROW_STEP;
        const KeyRange seen =
            visible_keys(row, a.seqlen_q, a.seqlen_k, a.window_left, a.window_right);
#pragma unroll
        for (int c = 0; c < Tile::THREAD_KEYS; c++) {
            const int64_t column = key + Tile::tx() + c * Tile::LANES;
            if (column < seen.begin || column >= seen.end) s_reg[r][c] = -CUDART_INF_F;
        }
    }
}

// Maximum of this thread's scores of a row, and of the row's other lanes'.
template <int HEAD_DIM>
__device__ static inline float block_row_max(const float (&scores)[Tile<HEAD_DIM>::THREAD_KEYS]) {
    float largest = scores[0];
#pragma unroll
    for (int c = 1; c < Tile<HEAD_DIM>::THREAD_KEYS; c++) largest = fmaxf(largest, scores[c]);
    return row_max_of<HEAD_DIM>(largest);
}

// scores → exp(score - base), and their sum over the row.
template <int HEAD_DIM>
__device__ static inline float exponentiate_row(float (&scores)[Tile<HEAD_DIM>::THREAD_KEYS],
                                                float base) {
    float sum = 0;
#pragma unroll
    for (int c = 0; c < Tile<HEAD_DIM>::THREAD_KEYS; c++) {
        scores[c] = expf(scores[c] - base);
        sum += scores[c];
    }
    return row_sum_of<HEAD_DIM>(sum);
}

// o_reg → O, lse_reg → lse, rows past the last dropped.
template <typename T, int HEAD_DIM>
__device__ static inline void store_output(
    const Attention &a, const FusedWork<T> &work,
    const float (&o_reg)[Tile<HEAD_DIM>::THREAD_ROWS][Tile<HEAD_DIM>::THREAD_COLUMNS],
    const float (&lse_reg)[Tile<HEAD_DIM>::THREAD_ROWS]) {
    using Tile = Tile<HEAD_DIM>;
#pragma unroll
    for (int r = 0; r < Tile::THREAD_ROWS; r++) {
        const int64_t row = work.first_row + Tile::ty() + r * Tile::ROW_STEP;
        if (row >= a.seqlen_q) continue;
        T *o = (T *)a.o + row_offset(work.batch, row, work.head, a.seqlen_q, a.heads, HEAD_DIM);
#pragma unroll
        for (int c = 0; c < Tile::THREAD_COLUMNS; c += 2)
            store2(o + c * Tile::LANES + Tile::tx() * 2, o_reg[r][c], o_reg[r][c + 1]);
        if (Tile::tx() == 0)
            a.lse[vector_offset(work.batch, work.head, row, a.heads, a.seqlen_q)] = lse_reg[r];
    }
}

// What rounding took off lse, for a backward that asks for it.
template <typename T, int HEAD_DIM>
__device__ static inline void store_lse_rest(const Attention &a, const FusedWork<T> &work,
                                             const float (&row_max)[Tile<HEAD_DIM>::THREAD_ROWS],
                                             const float (&row_sum)[Tile<HEAD_DIM>::THREAD_ROWS]) {
    using Tile = Tile<HEAD_DIM>;
#pragma unroll
    for (int r = 0; r < Tile::THREAD_ROWS; r++) {
        const int64_t row = work.first_row + Tile::ty() + r * Tile::ROW_STEP;
        if (row < a.seqlen_q && Tile::tx() == 0)
            a.lse_rest[vector_offset(work.batch, work.head, row, a.heads, a.seqlen_q)] =
                log_sum_exp_rest(row_max[r], row_sum[r]);
    }
}

// Launches a fused kernel: a thread block for each tile of query rows of each head.
template <int HEAD_DIM>
static cudaError_t launch_fused(void (*kernel)(const Attention), const Attention *a) {
    const int64_t blocks = tiles_of(a->seqlen_q, Tile<HEAD_DIM>::ROWS) * a->batch * a->heads;
    if (blocks == 0) return cudaSuccess; // no query rows, no outputs
    const cudaError_t error = allow_shared_memory(kernel, Tile<HEAD_DIM>::FUSED_BYTES);
    if (error != cudaSuccess) return error;
    kernel<<<(unsigned)blocks, TILE_THREADS, Tile<HEAD_DIM>::FUSED_BYTES, a->stream>>>(*a);
    return cudaGetLastError();
}

// What every fused step refuses.
static inline const char *refuses_fused(const Attention *a, bool backward) {
    if (backward)
        return "the backward of fused attention comes in chapter 4; chapter 1 has the "
               "standard one";
    return refuses_on_cuda_cores(a, tiles_of(a->seqlen_q, 32) * a->batch * a->heads);
}

static inline size_t no_workspace(const Attention *) {
    return 0;
}

#endif
