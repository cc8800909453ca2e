// The three matrix products that attention and its backward are made of, as plainly as they can be
// written without wasting the memory's width: no shared memory, no reuse beyond registers.
//
//   query_key_product    C[i][j] = left_i · right_j            S = Q Kᵀ      dP = dO Vᵀ
//   weighted_key_rows    C[i]    = Σ_j W[i][j] right_j         O = P V       dQ = dS K
//   weighted_query_rows  C[j]    = Σ_i W[i][j] left_i          dV = Pᵀ dO    dK = dSᵀ Q
//
// i is a query row, j a key; left_i is a row of a query head, right_j one of the K/V head it reads.
// In all three, eight lanes share one row of head_dim numbers: lane l takes pieces l, l + 8, … of
// four numbers each, so that the eight together read unbroken runs of 64 (fp16) or 128 bytes.
#ifndef PRODUCTS_H
#define PRODUCTS_H

#include "device/mask.h"
#include "device/number.h"
#include "harness/attention.h"

static const int PRODUCT_THREADS = 256;
static const int ROW_LANES = 8;                                // lanes that share a row
static const int ROWS_PER_WARP = 32 / ROW_LANES;               // rows a warp holds at a time
static const int ROWS_PER_BLOCK = PRODUCT_THREADS / ROW_LANES; // of weighted_*_rows
static const int PRODUCT_QUERIES = PRODUCT_THREADS / 32;       // rows of a query_key_product tile
static const int PRODUCT_KEYS = 128;                           // columns of its tile

// Rows whose loads are under way at a time in weighted_*_rows; wide ones fill more registers.
template <int HEAD_DIM> static constexpr int ROWS_IN_FLIGHT = HEAD_DIM <= 128 ? 4 : 2;

// This lane's pieces of a row: HEAD_DIM / 8 numbers.
template <typename T, int HEAD_DIM>
__device__ static inline void load_pieces(float4 (&pieces)[HEAD_DIM / 32], const T *row, int lane) {
#pragma unroll
    for (int c = 0; c < HEAD_DIM / 32; c++) pieces[c] = load4(row + (lane + c * ROW_LANES) * 4);
}

// This lane's share of the dot product of two rows.
template <int HEAD_DIM>
__device__ static inline float dot_pieces(const float4 (&left)[HEAD_DIM / 32],
                                          const float4 (&right)[HEAD_DIM / 32]) {
    float dot = 0;
#pragma unroll
    for (int c = 0; c < HEAD_DIM / 32; c++) {
        dot = fmaf(left[c].x, right[c].x, dot);
        dot = fmaf(left[c].y, right[c].y, dot);
        dot = fmaf(left[c].z, right[c].z, dot);
        dot = fmaf(left[c].w, right[c].w, dot);
    }
    return dot;
}

// Σ over the eight lanes of a row; each of them gets it. All 32 lanes of the warp must come here.
__device__ static inline float row_lanes_sum(float x) {
    for (int lanes = ROW_LANES / 2; lanes > 0; lanes /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, lanes);
    return x;
}

// C[i][j] = left_i · right_j; with `as_scores` scaled, capped and masked on the way out. A warp
// takes one query row and 128 keys, four keys at a time.
template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(PRODUCT_THREADS)
    query_key_product(const Attention a, const T *left, const T *right, T *out, bool as_scores) {
    const int64_t key_tiles = tiles_of(a.seqlen_k, PRODUCT_KEYS);
    const int64_t query_tiles = tiles_of(a.seqlen_q, PRODUCT_QUERIES);
    const BlockWork work = block_work(blockIdx.x, key_tiles * query_tiles, a.heads);
    const int64_t row = work.tile / key_tiles * PRODUCT_QUERIES + threadIdx.x / 32;
    const int64_t first_key = work.tile % key_tiles * PRODUCT_KEYS;
    if (row >= a.seqlen_q) return;

    const int lane = threadIdx.x % ROW_LANES;          // which pieces
    const int lane_key = threadIdx.x % 32 / ROW_LANES; // which of the four keys
    const int kv_head = kv_head_of(work.head, a.heads, a.kv_heads);
    left += row_offset(work.batch, row, work.head, a.seqlen_q, a.heads, HEAD_DIM);
    right += row_offset(work.batch, first_key, kv_head, a.seqlen_k, a.kv_heads, HEAD_DIM);
    out += matrix_offset(work.batch, work.head, row, a.heads, a.seqlen_q, a.seqlen_k) + first_key;
    const int64_t right_stride = (int64_t)a.kv_heads * HEAD_DIM;
    const int keys = (int)min(a.seqlen_k - first_key, (int64_t)PRODUCT_KEYS);
    const KeyRange seen = visible_keys(row, a.seqlen_q, a.seqlen_k, a.window_left, a.window_right);

    float4 left_reg[HEAD_DIM / 32];
    load_pieces<T, HEAD_DIM>(left_reg, left, lane);

    // 32 keys per turn: eight times four. Lane l of each eight keeps the l-th of its results, so
    // that in the end every lane has one, and the warp stores 32 neighbours at once.
    for (int turn = 0; turn < keys; turn += 32) {
        float kept = 0;
#pragma unroll
        for (int step = 0; step < ROW_LANES; step++) {
            const int key = turn + step * ROWS_PER_WARP + lane_key;
            float dot = 0;
            // exercise 1: begin
            if (key < keys) {
                float4 right_reg[HEAD_DIM / 32];
                load_pieces<T, HEAD_DIM>(right_reg, right + key * right_stride, lane);
                dot = dot_pieces<HEAD_DIM>(left_reg, right_reg);
            }
            dot = row_lanes_sum(dot);
            if (lane == step) kept = dot;
            // exercise 1: end
        }

        const int key = turn + lane * ROWS_PER_WARP + lane_key;
        if (key >= keys) continue;
        // exercise 2: begin
        if (as_scores) {
            const bool visible = seen.begin <= first_key + key && first_key + key < seen.end;
            kept = visible ? score_of(kept, a.softmax_scale, a.softcap) : -CUDART_INF_F;
        }
        // exercise 2: end
        store(&out[key], kept);
    }
}

// Adds weight * row to this lane's pieces of a sum.
template <int HEAD_DIM>
__device__ static inline void add_weighted(float4 (&sum)[HEAD_DIM / 32], float weight,
                                           const float4 (&row)[HEAD_DIM / 32]) {
#pragma unroll
    for (int c = 0; c < HEAD_DIM / 32; c++) {
        sum[c].x += weight * row[c].x;
        sum[c].y += weight * row[c].y;
        sum[c].z += weight * row[c].z;
        sum[c].w += weight * row[c].w;
    }
}

// Stores factor * sum, this lane's pieces of one row.
template <typename T, int HEAD_DIM>
__device__ static inline void store_pieces(T *row, float factor, const float4 (&sum)[HEAD_DIM / 32],
                                           int lane) {
#pragma unroll
    for (int c = 0; c < HEAD_DIM / 32; c++) {
        T *to = row + (lane + c * ROW_LANES) * 4;
        store2(to, factor * sum[c].x, factor * sum[c].y);
        store2(to + 2, factor * sum[c].z, factor * sum[c].w);
    }
}

// C[i] = factor * Σ_j weights[i][j] right_j. Eight lanes take one query row and walk all keys.
template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(PRODUCT_THREADS)
    weighted_key_rows(const Attention a, const T *weights, const T *right, T *out, float factor) {
    const int64_t tiles = tiles_of(a.seqlen_q, ROWS_PER_BLOCK);
    const BlockWork work = block_work(blockIdx.x, tiles, a.heads);
    const int64_t row = work.tile * ROWS_PER_BLOCK + threadIdx.x / ROW_LANES;
    if (row >= a.seqlen_q) return;

    const int lane = threadIdx.x % ROW_LANES;
    const int kv_head = kv_head_of(work.head, a.heads, a.kv_heads);
    weights += matrix_offset(work.batch, work.head, row, a.heads, a.seqlen_q, a.seqlen_k);
    right += row_offset(work.batch, 0, kv_head, a.seqlen_k, a.kv_heads, HEAD_DIM);
    out += row_offset(work.batch, row, work.head, a.seqlen_q, a.heads, HEAD_DIM);
    const int64_t right_stride = (int64_t)a.kv_heads * HEAD_DIM;

    float4 sum[HEAD_DIM / 32] = {};
#pragma unroll ROWS_IN_FLIGHT < HEAD_DIM>
    for (int64_t key = 0; key < a.seqlen_k; key++) {
        float4 right_reg[HEAD_DIM / 32];
        // exercise 5: begin
        load_pieces<T, HEAD_DIM>(right_reg, right, lane);
        add_weighted<HEAD_DIM>(sum, to_float(weights[key]), right_reg);
        right += right_stride;
        // exercise 5: end
    }
    store_pieces<T, HEAD_DIM>(out, factor, sum, lane);
}

// C[j] = factor * Σ_i weights[i][j] left_i, over the rows of all query heads that share the K/V
// head. Eight lanes take one key and walk all query rows.
template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(PRODUCT_THREADS)
    weighted_query_rows(const Attention a, const T *weights, const T *left, T *out, float factor) {
    const int64_t tiles = tiles_of(a.seqlen_k, ROWS_PER_BLOCK);
    const BlockWork work = block_work(blockIdx.x, tiles, a.kv_heads);
    const int64_t key = work.tile * ROWS_PER_BLOCK + threadIdx.x / ROW_LANES;
    if (key >= a.seqlen_k) return;

    const int lane = threadIdx.x % ROW_LANES;
    const int group = a.heads / a.kv_heads; // query heads per K/V head
    const int64_t left_stride = (int64_t)a.heads * HEAD_DIM;

    float4 sum[HEAD_DIM / 32] = {};
    for (int head = work.head * group; head < (work.head + 1) * group; head++) {
        const T *weight =
            weights + matrix_offset(work.batch, head, 0, a.heads, a.seqlen_q, a.seqlen_k) + key;
        const T *row = left + row_offset(work.batch, 0, head, a.seqlen_q, a.heads, HEAD_DIM);
#pragma unroll ROWS_IN_FLIGHT < HEAD_DIM>
        for (int64_t i = 0; i < a.seqlen_q; i++) {
            float4 left_reg[HEAD_DIM / 32];
            load_pieces<T, HEAD_DIM>(left_reg, row, lane);
            add_weighted<HEAD_DIM>(sum, to_float(*weight), left_reg);
            weight += a.seqlen_k;
            row += left_stride;
        }
    }
    out += row_offset(work.batch, key, work.head, a.seqlen_k, a.kv_heads, HEAD_DIM);
    store_pieces<T, HEAD_DIM>(out, factor, sum, lane);
}

#endif
