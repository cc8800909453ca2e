// Matrix products on CUDA cores from tiles in shared memory: what chapters 2 and 3 are built of.
//
// A block of 128 threads stands as rows of 8 lanes (16 for head_dims above 64): thread (ty, tx) =
// (threadIdx.x / LANES, threadIdx.x % LANES). It holds an 8 x 8 (8 x 4) piece of the score tile and
// 8 rows x HEAD_DIM / LANES columns of the output. For head_dim 64, with 16 rows of 8 threads:
//
// clang-format off
//              keys: tx, tx + 8, tx + 16, …, tx + 56      columns: 2 tx, 2 tx + 1, 16 + 2 tx, …
//   query rows ┌─────────────────────────────┐            ┌─────────────────────────────┐
//   ty, ty+16, │ s_reg[row][key]             │            │ o_reg[row][column]          │
//   …, ty+112  └─────────────────────────────┘            └─────────────────────────────┘
// clang-format on
//
// So a query row belongs to 8 (16) lanes of one warp: its maximum and sum are found with shuffles,
// and its part of the P tile is written and read by one warp only.
//
// An 8 x 8 piece needs 8 + 8 numbers from shared memory for 64 multiply-adds. Shared memory
// delivers 32 numbers a clock and an SM makes 128 multiply-adds: with 4 x 4 pieces, half as much
// reuse, the multiply-add units would wait for shared memory half of the time.
//
// Tiles are fp32 in shared memory: converted once when loaded, not at each of their many uses. A
// row is 4 numbers longer than it must be: 8 lanes that read 16 bytes of 8 different rows then
// hit different banks (without the padding, all of them bank 0). Rows of P are LANES longer, so
// that the rows that a warp writes at the same time fall into different banks.
#ifndef TILE_H
#define TILE_H

#include "device/mask.h"
#include "device/number.h"

static const int TILE_THREADS = 128;
static const int TILE_PADDING = 4;           // numbers
static const int MAX_TILE_BYTES = 99 * 1024; // what every GPU from capability 8.0 on gives a block

// Tile sizes. Wide heads take smaller tiles, so that Q, K or V, and P fit, and so do the outputs
// in registers.
template <int HEAD_DIM> struct Tile {
    static constexpr int LANES = HEAD_DIM <= 64 ? 8 : 16; // threads that share a query row
    static constexpr int THREAD_ROWS = HEAD_DIM <= 192 ? 8 : 4;
    static constexpr int ROW_STEP = TILE_THREADS / LANES; // from a thread's row to its next
    static constexpr int ROWS = ROW_STEP * THREAD_ROWS;   // query rows: 128, 64 or 32
    static constexpr int KEYS = HEAD_DIM <= 128 ? 64 : 32;
    static constexpr int THREAD_KEYS = KEYS / LANES;
    static constexpr int THREAD_COLUMNS = HEAD_DIM / LANES;
    static constexpr int STRIDE = HEAD_DIM + TILE_PADDING; // of rows of Q, K, V
    static constexpr int P_STRIDE = KEYS + LANES;
    static constexpr int Q_FLOATS = ROWS * STRIDE;
    static constexpr int KV_FLOATS = KEYS * STRIDE;
    static constexpr int P_FLOATS = ROWS * P_STRIDE;
    static constexpr int FUSED_BYTES = (Q_FLOATS + KV_FLOATS + P_FLOATS) * 4;
    static constexpr int BLOCKS_PER_SM = 2; // what registers and shared memory should allow
    static_assert(HEAD_DIM % 32 == 0, "pairs of columns of 16 lanes need a multiple of 32");
    static_assert(FUSED_BYTES <= MAX_TILE_BYTES, "the tiles must fit in shared memory");

    // This thread's first query row in the tile, and its first key.
    __device__ static inline int ty() { return threadIdx.x / LANES; }
    __device__ static inline int tx() { return threadIdx.x % LANES; }
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

// s_reg = Q Kᵀ, this thread's piece.
template <int HEAD_DIM>
__device__ static inline void multiply_query_key(
    float (&s_reg)[Tile<HEAD_DIM>::THREAD_ROWS][Tile<HEAD_DIM>::THREAD_KEYS], const float *q_smem,
    const float *k_smem) {
    using Tile = Tile<HEAD_DIM>;
    q_smem += Tile::ty() * Tile::STRIDE;
    k_smem += Tile::tx() * Tile::STRIDE;
#pragma unroll
    for (int r = 0; r < Tile::THREAD_ROWS; r++)
#pragma unroll
        for (int c = 0; c < Tile::THREAD_KEYS; c++) s_reg[r][c] = 0;

#pragma unroll 1
    for (int d = 0; d < HEAD_DIM; d += 4) {
        float4 q_reg[Tile::THREAD_ROWS];
#pragma unroll
        for (int r = 0; r < Tile::THREAD_ROWS; r++)
            q_reg[r] = *(const float4 *)&q_smem[r * Tile::ROW_STEP * Tile::STRIDE + d];
#pragma unroll
        for (int c = 0; c < Tile::THREAD_KEYS; c++) {
            const float4 k_reg = *(const float4 *)&k_smem[c * Tile::LANES * Tile::STRIDE + d];
#pragma unroll
            for (int r = 0; r < Tile::THREAD_ROWS; r++)
                s_reg[r][c] = dot4(q_reg[r], k_reg, s_reg[r][c]);
        }
    }
}

// o_reg += P V, this thread's piece.
template <int HEAD_DIM>
__device__ static inline void add_weighted_values(
    float (&o_reg)[Tile<HEAD_DIM>::THREAD_ROWS][Tile<HEAD_DIM>::THREAD_COLUMNS],
    const float *p_smem, const float *v_smem) {
    using Tile = Tile<HEAD_DIM>;
    p_smem += Tile::ty() * Tile::P_STRIDE;
    v_smem += Tile::tx() * 2;

#pragma unroll 1
    for (int key = 0; key < Tile::KEYS; key += 4) {
        float p_reg[Tile::THREAD_ROWS][4];
#pragma unroll
        for (int r = 0; r < Tile::THREAD_ROWS; r++)
            *(float4 *)p_reg[r] =
                *(const float4 *)&p_smem[r * Tile::ROW_STEP * Tile::P_STRIDE + key];
#pragma unroll
        for (int k = 0; k < 4; k++)
#pragma unroll
            for (int c = 0; c < Tile::THREAD_COLUMNS; c += 2) {
                const float2 v =
                    *(const float2 *)&v_smem[(key + k) * Tile::STRIDE + c * Tile::LANES];
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
    p_smem += Tile::ty() * Tile::P_STRIDE + Tile::tx();
#pragma unroll
    for (int r = 0; r < Tile::THREAD_ROWS; r++)
#pragma unroll
        for (int c = 0; c < Tile::THREAD_KEYS; c++)
            p_smem[r * Tile::ROW_STEP * Tile::P_STRIDE + c * Tile::LANES] = p_reg[r][c];
}

// Maximum and sum over the lanes of a query row; each of them gets the result.
template <int HEAD_DIM> __device__ static inline float row_max_of(float x) {
    for (int lanes = Tile<HEAD_DIM>::LANES / 2; lanes > 0; lanes /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lanes));
    return x;
}

template <int HEAD_DIM> __device__ static inline float row_sum_of(float x) {
    for (int lanes = Tile<HEAD_DIM>::LANES / 2; lanes > 0; lanes /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, lanes);
    return x;
}

#endif
