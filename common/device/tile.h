// Matrix products on CUDA cores from tiles in shared memory: what chapters 2 and 3 are built of.
//
// A block of 256 threads stands as 16 x 16: thread (ty, tx) = (threadIdx.x / 16, threadIdx.x % 16).
// It holds a 4 x 4 piece of the score tile and 4 rows x HEAD_DIM / 16 columns of the output:
//
// clang-format off
//              keys: tx, tx + 16, tx + 32, tx + 48           columns: 2 tx, 2 tx + 1, 32 + 2 tx, …
//   query row  ┌─────────────────────────────┐               ┌─────────────────────────────┐
//   4 ty …     │ s_reg[row][key]             │               │ o_reg[row][column]          │
//   4 ty + 3   └─────────────────────────────┘               └─────────────────────────────┘
// clang-format on
//
// So a query row belongs to 16 lanes of one warp: its maximum and sum are found with shuffles, and
// its part of the P tile is written and read by one warp only.
//
// Tiles are fp32 in shared memory: converted once when loaded, not at each of their 64 uses. A row
// is 4 numbers longer than it must be: 16 lanes that read 16 bytes of 16 different rows then hit
// different banks (without the padding, all of them bank 0).
#ifndef TILE_H
#define TILE_H

#include "device/mask.h"
#include "device/number.h"

static const int TILE_THREADS = 256;
static const int TILE_LANES = 16;            // threads that share a query row, and rows of threads
static const int TILE_PADDING = 4;           // numbers
static const int MAX_TILE_BYTES = 99 * 1024; // what every GPU from capability 8.0 on gives a block

// Tile sizes. Wide heads take smaller tiles, so that Q, K or V, and P fit.
template <int HEAD_DIM> struct Tile {
    static constexpr int ROWS = HEAD_DIM <= 192 ? 64 : 32; // query rows
    static constexpr int KEYS = HEAD_DIM <= 128 ? 64 : 32;
    static constexpr int THREAD_ROWS = ROWS / TILE_LANES;
    static constexpr int THREAD_KEYS = KEYS / TILE_LANES;
    static constexpr int THREAD_COLUMNS = HEAD_DIM / TILE_LANES;
    static constexpr int STRIDE = HEAD_DIM + TILE_PADDING; // of rows of Q, K, V
    static constexpr int P_STRIDE = KEYS + TILE_PADDING;
    static constexpr int Q_FLOATS = ROWS * STRIDE;
    static constexpr int KV_FLOATS = KEYS * STRIDE;
    static constexpr int P_FLOATS = ROWS * P_STRIDE;
    static constexpr int FUSED_BYTES = (Q_FLOATS + KV_FLOATS + P_FLOATS) * 4;
    static constexpr int BLOCKS_PER_SM = HEAD_DIM <= 64 ? 3 : 2; // what registers should allow
    static_assert(HEAD_DIM % 32 == 0, "float2 columns of 16 lanes need a multiple of 32");
    static_assert(FUSED_BYTES <= MAX_TILE_BYTES, "the tiles must fit in shared memory");
};

// One head of a tensor: its row 0, how far the next row is, and how many there are.
template <typename T> struct HeadRows {
    const T *first;
    int64_t stride, count;
};

template <typename T>
__device__ static inline HeadRows<T> head_rows(const void *tensor, int64_t batch, int64_t head,
                                               int64_t seqlen, int64_t heads, int64_t head_dim) {
    HeadRows<T> rows;
    rows.first = (const T *)tensor + row_offset(batch, 0, head, seqlen, heads, head_dim);
    rows.stride = heads * head_dim;
    rows.count = seqlen;
    return rows;
}

// Rows first_row … first_row + tile_rows - 1 → tile_smem. Rows past the last are not read: their
// memory may hold anything, and 0 * NaN is NaN, so they become zeros here.
// The caller's __syncthreads() after this shows the tile to all threads.
template <typename T, int HEAD_DIM>
__device__ static inline void load_tile(float *tile_smem, const HeadRows<T> rows, int64_t first_row,
                                        int tile_rows) {
    const int ROW_PIECES = HEAD_DIM / 4; // a lane moves four numbers, neighbours move neighbours
    // Two loads in flight per thread: more would need registers that the products use.
#pragma unroll 2
    for (int piece = threadIdx.x; piece < tile_rows * ROW_PIECES; piece += TILE_THREADS) {
        const int row = piece / ROW_PIECES, column = piece % ROW_PIECES * 4;
        float4 numbers = make_float4(0, 0, 0, 0);
        if (first_row + row < rows.count)
            numbers = load4(rows.first + (first_row + row) * rows.stride + column);
        *(float4 *)&tile_smem[row * Tile<HEAD_DIM>::STRIDE + column] = numbers;
    }
}

__device__ static inline float dot4(float4 x, float4 y, float sum) {
    sum = fmaf(x.x, y.x, sum);
    sum = fmaf(x.y, y.y, sum);
    sum = fmaf(x.z, y.z, sum);
    return fmaf(x.w, y.w, sum);
}

// s_reg = Q Kᵀ, this thread's piece. Each number read from shared memory is used four times.
template <int HEAD_DIM>
__device__ static inline void multiply_query_key(
    float (&s_reg)[Tile<HEAD_DIM>::THREAD_ROWS][Tile<HEAD_DIM>::THREAD_KEYS], const float *q_smem,
    const float *k_smem) {
    using Tile = Tile<HEAD_DIM>;
    const int ty = threadIdx.x / TILE_LANES, tx = threadIdx.x % TILE_LANES;
    q_smem += ty * Tile::THREAD_ROWS * Tile::STRIDE;
    k_smem += tx * Tile::STRIDE;
#pragma unroll
    for (int r = 0; r < Tile::THREAD_ROWS; r++)
#pragma unroll
        for (int c = 0; c < Tile::THREAD_KEYS; c++) s_reg[r][c] = 0;

#pragma unroll 1
    for (int d = 0; d < HEAD_DIM; d += 4) {
        float4 q_reg[Tile::THREAD_ROWS], k_reg[Tile::THREAD_KEYS];
#pragma unroll
        for (int r = 0; r < Tile::THREAD_ROWS; r++)
            q_reg[r] = *(const float4 *)&q_smem[r * Tile::STRIDE + d];
#pragma unroll
        for (int c = 0; c < Tile::THREAD_KEYS; c++)
            k_reg[c] = *(const float4 *)&k_smem[c * TILE_LANES * Tile::STRIDE + d];
#pragma unroll
        for (int r = 0; r < Tile::THREAD_ROWS; r++)
#pragma unroll
            for (int c = 0; c < Tile::THREAD_KEYS; c++)
                s_reg[r][c] = dot4(q_reg[r], k_reg[c], s_reg[r][c]);
    }
}

// o_reg += P V, this thread's piece.
template <int HEAD_DIM>
__device__ static inline void add_weighted_values(
    float (&o_reg)[Tile<HEAD_DIM>::THREAD_ROWS][Tile<HEAD_DIM>::THREAD_COLUMNS],
    const float *p_smem, const float *v_smem) {
    using Tile = Tile<HEAD_DIM>;
    const int ty = threadIdx.x / TILE_LANES, tx = threadIdx.x % TILE_LANES;
    p_smem += ty * Tile::THREAD_ROWS * Tile::P_STRIDE;
    v_smem += tx * 2;

#pragma unroll 1
    for (int key = 0; key < Tile::KEYS; key += 4) {
        float p_reg[Tile::THREAD_ROWS][4];
#pragma unroll
        for (int r = 0; r < Tile::THREAD_ROWS; r++)
            *(float4 *)p_reg[r] = *(const float4 *)&p_smem[r * Tile::P_STRIDE + key];
#pragma unroll
        for (int k = 0; k < 4; k++)
#pragma unroll
            for (int c = 0; c < Tile::THREAD_COLUMNS; c += 2) {
                const float2 v =
                    *(const float2 *)&v_smem[(key + k) * Tile::STRIDE + c * TILE_LANES];
#pragma unroll
                for (int r = 0; r < Tile::THREAD_ROWS; r++) {
                    o_reg[r][c] = fmaf(p_reg[r][k], v.x, o_reg[r][c]);
                    o_reg[r][c + 1] = fmaf(p_reg[r][k], v.y, o_reg[r][c + 1]);
                }
            }
    }
}

// This thread's piece of P → p_smem. Only lanes of the same warp read these rows, so __syncwarp()
// is all that must stand between this and add_weighted_values.
template <int HEAD_DIM>
__device__ static inline void store_weights(
    float *p_smem, const float (&p_reg)[Tile<HEAD_DIM>::THREAD_ROWS][Tile<HEAD_DIM>::THREAD_KEYS]) {
    using Tile = Tile<HEAD_DIM>;
    const int ty = threadIdx.x / TILE_LANES, tx = threadIdx.x % TILE_LANES;
#pragma unroll
    for (int r = 0; r < Tile::THREAD_ROWS; r++)
#pragma unroll
        for (int c = 0; c < Tile::THREAD_KEYS; c++)
            p_smem[(ty * Tile::THREAD_ROWS + r) * Tile::P_STRIDE + tx + c * TILE_LANES] =
                p_reg[r][c];
}

// Maximum and sum over the 16 lanes of a query row; each of them gets the result.
__device__ static inline float row_max_of(float x) {
    for (int lanes = TILE_LANES / 2; lanes > 0; lanes /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lanes));
    return x;
}

__device__ static inline float row_sum_of(float x) {
    for (int lanes = TILE_LANES / 2; lanes > 0; lanes /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, lanes);
    return x;
}

#endif
