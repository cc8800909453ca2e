// Matrix products of the backward pass on CUDA cores, from tiles in shared memory.
//
// Three shapes of product, with Q and dO tiles of query rows, K and V tiles of keys, and W (P or dS)
// one number for each pair of a row and a key:
//
//   multiply_rows     W  = left rightᵀ     S = Q Kᵀ       dP = dO Vᵀ
//   add_over_rows     X += Wᵀ left         dV += Pᵀ dO    dK += dSᵀ Q
//   add_over_keys     X += W right         dQ += dS K
//
// The block of 128 threads stands differently for each. For W and dQ eight lanes share a query row:
// thread (t / 8, t % 8) holds rows t / 8, t / 8 + 16, … and every eighth key, or, of dQ, every
// eighth piece of four columns. For dK and dV a thread holds four neighbouring keys, so that it
// reads their weights with one 16-byte load, and 8 (16) lanes share the columns.
#ifndef GRADIENT_TILE_H
#define GRADIENT_TILE_H

#include "device/tile.h"

// Tile sizes. Keys are the outer loop, and dK and dV of a tile stay in registers: 2 * KEYS *
// HEAD_DIM / 128 of them. K, V, Q, dO and W lie in shared memory.
template <int HEAD_DIM> struct GradientTile {
    static constexpr int ROWS = HEAD_DIM <= 64 ? 64 : 32;
    static constexpr int KEYS = HEAD_DIM <= 128 ? 64 : 32;
    static constexpr int STRIDE = Tile<HEAD_DIM>::STRIDE; // of rows of Q, K, V, dO
    // Of rows of W: the four rows that a warp reads and writes at a time fall into four different
    // groups of eight banks.
    static constexpr int W_STRIDE = KEYS + 8;

    static constexpr int LANES = 8; // threads that share a query row
    static constexpr int ROW_STEP = TILE_THREADS / LANES;
    static constexpr int THREAD_ROWS = ROWS / ROW_STEP;
    static constexpr int THREAD_KEYS = KEYS / LANES;
    static constexpr int ROW_PIECES = HEAD_DIM / LANES / 4; // of four columns, of dQ

    static constexpr int OWN_KEYS = 4;                                 // neighbours
    static constexpr int KEY_LANES = TILE_THREADS / (KEYS / OWN_KEYS); // that share a key
    static constexpr int KEY_PIECES = HEAD_DIM / KEY_LANES / 4;        // of dK and dV
    static constexpr int KEY_FLOATS = KEYS * STRIDE, ROW_FLOATS = ROWS * STRIDE;
    static constexpr int W_FLOATS = ROWS * W_STRIDE;
    static constexpr int FUSED_BYTES = (2 * KEY_FLOATS + 2 * ROW_FLOATS + W_FLOATS) * 4;
    static_assert(HEAD_DIM % (4 * KEY_LANES) == 0, "each lane takes whole pieces of four columns");
    static_assert(FUSED_BYTES <= (HEAD_DIM <= 64 ? 99 : 163) * 1024,
                  "what a thread block can have from capability 8.6 on, or on A100 and later");

    // This thread's first query row, and its lane.
    __device__ static inline int ty() { return threadIdx.x / LANES; }
    __device__ static inline int tx() { return threadIdx.x % LANES; }
    // This thread's first key of dK and dV, and its lane.
    __device__ static inline int own_key() { return threadIdx.x / KEY_LANES * OWN_KEYS; }
    __device__ static inline int key_lane() { return threadIdx.x % KEY_LANES; }
};

// This thread's pieces: of W, of dQ, of dK or dV.
template <int HEAD_DIM>
using WeightPiece = float[GradientTile<HEAD_DIM>::THREAD_ROWS][GradientTile<HEAD_DIM>::THREAD_KEYS];
template <int HEAD_DIM>
using RowPiece = float4[GradientTile<HEAD_DIM>::THREAD_ROWS][GradientTile<HEAD_DIM>::ROW_PIECES];
template <int HEAD_DIM>
using KeyPiece = float4[GradientTile<HEAD_DIM>::OWN_KEYS][GradientTile<HEAD_DIM>::KEY_PIECES];

// w_reg = left rightᵀ, the columns in rising order.
template <int HEAD_DIM>
__device__ static inline void multiply_rows(WeightPiece<HEAD_DIM> &w_reg, const float *left_smem,
                                            const float *right_smem) {
    using Tile = GradientTile<HEAD_DIM>;
    left_smem += Tile::ty() * Tile::STRIDE;
    right_smem += Tile::tx() * Tile::STRIDE;
#pragma unroll
    for (int r = 0; r < Tile::THREAD_ROWS; r++)
#pragma unroll
        for (int c = 0; c < Tile::THREAD_KEYS; c++) w_reg[r][c] = 0;

#pragma unroll 1
    for (int d = 0; d < HEAD_DIM; d += 4) {
        float4 left_reg[Tile::THREAD_ROWS];
#pragma unroll
        for (int r = 0; r < Tile::THREAD_ROWS; r++)
            left_reg[r] = *(const float4 *)&left_smem[r * Tile::ROW_STEP * Tile::STRIDE + d];
#pragma unroll
        for (int c = 0; c < Tile::THREAD_KEYS; c++) {
            const float4 right_reg =
                *(const float4 *)&right_smem[c * Tile::LANES * Tile::STRIDE + d];
#pragma unroll
            for (int r = 0; r < Tile::THREAD_ROWS; r++)
                w_reg[r][c] = dot4(left_reg[r], right_reg, w_reg[r][c]);
        }
    }
}

// sum += weight * x
__device__ static inline void add_weighted4(float4 &sum, float weight, float4 x) {
    sum.x = fmaf(weight, x.x, sum.x);
    sum.y = fmaf(weight, x.y, sum.y);
    sum.z = fmaf(weight, x.z, sum.z);
    sum.w = fmaf(weight, x.w, sum.w);
}

// x_reg += Wᵀ left, over the rows of a tile.
template <int HEAD_DIM>
__device__ static inline void add_over_rows(KeyPiece<HEAD_DIM> &x_reg, const float *w_smem,
                                            const float *left_smem) {
    using Tile = GradientTile<HEAD_DIM>;
    w_smem += Tile::own_key();
    left_smem += Tile::key_lane() * 4;
#pragma unroll 2
    for (int row = 0; row < Tile::ROWS; row++) {
        const float4 w = *(const float4 *)&w_smem[row * Tile::W_STRIDE];
#pragma unroll
        for (int c = 0; c < Tile::KEY_PIECES; c++) {
            const float4 x =
                *(const float4 *)&left_smem[row * Tile::STRIDE + c * Tile::KEY_LANES * 4];
            add_weighted4(x_reg[0][c], w.x, x);
            add_weighted4(x_reg[1][c], w.y, x);
            add_weighted4(x_reg[2][c], w.z, x);
            add_weighted4(x_reg[3][c], w.w, x);
        }
    }
}

// x_reg += W right, over the keys of a tile.
template <int HEAD_DIM>
__device__ static inline void add_over_keys(RowPiece<HEAD_DIM> &x_reg, const float *w_smem,
                                            const float *right_smem) {
    using Tile = GradientTile<HEAD_DIM>;
    w_smem += Tile::ty() * Tile::W_STRIDE;
    right_smem += Tile::tx() * 4;
#pragma unroll 1
    for (int key = 0; key < Tile::KEYS; key += 4) {
        float w_reg[Tile::THREAD_ROWS][4];
#pragma unroll
        for (int r = 0; r < Tile::THREAD_ROWS; r++)
            *(float4 *)w_reg[r] =
                *(const float4 *)&w_smem[r * Tile::ROW_STEP * Tile::W_STRIDE + key];
#pragma unroll
        for (int k = 0; k < 4; k++)
#pragma unroll
            for (int c = 0; c < Tile::ROW_PIECES; c++) {
                const float4 x =
                    *(const float4 *)&right_smem[(key + k) * Tile::STRIDE + c * Tile::LANES * 4];
#pragma unroll
                for (int r = 0; r < Tile::THREAD_ROWS; r++)
                    add_weighted4(x_reg[r][c], w_reg[r][k], x);
            }
    }
}

// This thread's piece of W → w_smem. Threads of all warps read it in add_over_rows.
template <int HEAD_DIM>
__device__ static inline void store_weight_piece(float *w_smem,
                                                 const WeightPiece<HEAD_DIM> &w_reg) {
    using Tile = GradientTile<HEAD_DIM>;
    w_smem += Tile::ty() * Tile::W_STRIDE + Tile::tx();
#pragma unroll
    for (int r = 0; r < Tile::THREAD_ROWS; r++)
#pragma unroll
        for (int c = 0; c < Tile::THREAD_KEYS; c++)
            w_smem[r * Tile::ROW_STEP * Tile::W_STRIDE + c * Tile::LANES] = w_reg[r][c];
}

// factor * x → four neighbours of a row in memory.
template <typename T> __device__ static inline void store4(T *to, float factor, float4 x) {
    store2(to, factor * x.x, factor * x.y);
    store2(to + 2, factor * x.z, factor * x.w);
}

// factor * x_reg → rows of dK or dV. `out` is row 0 of the K/V head, `stride` from row to row.
template <typename T, int HEAD_DIM>
__device__ static inline void store_key_piece(T *out, int64_t stride, int64_t first_key,
                                              int64_t seqlen_k, float factor,
                                              const KeyPiece<HEAD_DIM> &x_reg) {
    using Tile = GradientTile<HEAD_DIM>;
#pragma unroll
    for (int r = 0; r < Tile::OWN_KEYS; r++) {
        const int64_t key = first_key + Tile::own_key() + r;
        if (key >= seqlen_k) continue;
#pragma unroll
        for (int c = 0; c < Tile::KEY_PIECES; c++)
            store4(out + key * stride + (Tile::key_lane() + c * Tile::KEY_LANES) * 4, factor,
                   x_reg[r][c]);
    }
}

#endif
