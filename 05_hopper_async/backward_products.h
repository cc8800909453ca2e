// The backward's products, and what stands between them: the mask, P and dS, all in the registers
// of a warpgroup. issue_… start a product; the caller fences, commits and waits (wgmma.h).
#ifndef BACKWARD_PRODUCTS_H
#define BACKWARD_PRODUCTS_H

#include "backward_tile.h"
#include "device/exp2.h"
#include "device/mma.h"
#include "device/stmatrix.h"
#include "device/wgmma.h"

// What a thread holds of a product with COLUMNS columns (wgmma.h says where in it). Its rows are
// keys, but for dQ.
template <int COLUMNS> using Result = float[COLUMNS / 8][4];

// Sᵀ = K Qᵀ or dPᵀ = V dOᵀ: 64 keys, all rows of the tile. The sum is over columns, which lie side
// by side in both: "K-major".
template <typename T, int HEAD_DIM>
__device__ static inline void issue_keys_rows(Result<BackwardTile<HEAD_DIM>::ROWS> &c,
                                              const T *keys_smem, const T *rows_smem) {
    const int ROWS = BackwardTile<HEAD_DIM>::ROWS;
    const uint64_t keys = k_major_operand<LINE>(keys_smem), rows = k_major_operand<LINE>(rows_smem);
#pragma unroll
    for (int d = 0; d < HEAD_DIM; d += WGMMA_DEPTH)
        wgmma_shared<T, K_MAJOR, K_MAJOR>(c, operand_at(keys, d / 64 * (KEYS * LINE) + d % 64 * 2),
                                          operand_at(rows, d / 64 * (ROWS * LINE) + d % 64 * 2),
                                          d > 0);
}

// dV += Pᵀ dO or dK += dSᵀ Q: weights from registers; the sum is over the tile's rows, and a row's
// columns lie side by side: "MN-major".
template <typename T, int HEAD_DIM>
__device__ static inline void issue_weighted_rows(
    Result<HEAD_DIM> &c, const uint32_t (&weights)[BackwardTile<HEAD_DIM>::ROWS / 16][4],
    const T *rows_smem) {
    const int ROWS = BackwardTile<HEAD_DIM>::ROWS;
    const uint64_t rows = mn_major_operand<LINE>(rows_smem, ROWS * LINE);
#pragma unroll
    for (int row = 0; row < ROWS; row += WGMMA_DEPTH)
        wgmma_registers<T, MN_MAJOR>(c, weights[row / WGMMA_DEPTH], operand_at(rows, row * LINE),
                                     1);
}

// The warpgroup's share of dQ = dS K: 64 rows, 64 columns, the sum over all keys. Both are
// MN-major: dSᵀ lies there.
template <typename T, int HEAD_DIM>
__device__ static inline void issue_dq(Result<64> &dq, const T *ds_smem, const T *k_smem,
                                       int share) {
    const int block = share * KEYS * 64; // 64 rows of dSᵀ's columns, or 64 of K's columns
    const uint64_t rows =
        mn_major_operand<LINE>(ds_smem + (HEAD_DIM == 64 ? block : 0), KEYS * LINE);
    const uint64_t columns =
        mn_major_operand<LINE>(k_smem + (HEAD_DIM == 64 ? 0 : block), KEYS * LINE);
#pragma unroll
    for (int key = 0; key < KEYS; key += WGMMA_DEPTH)
        wgmma_shared<T, MN_MAJOR, MN_MAJOR>(dq, operand_at(rows, key * LINE),
                                            operand_at(columns, key * LINE), key > 0);
}

// The first of the warp's 16 keys in the block's 128.
__device__ inline int warp_key_of(int share) {
    return share * WARPGROUP_KEYS + threadIdx.x % 128 / 32 * 16;
}

// Pairs of numbers, rounded: a piece of a result as the left operand of the next product.
template <typename T, int COLUMNS>
__device__ static inline void pack_weights(uint32_t (&packed)[COLUMNS / 16][4],
                                           const Result<COLUMNS> &c) {
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; n++) {
        packed[n / 2][n % 2 * 2] = pack2<T>(c[n][0], c[n][1]);
        packed[n / 2][n % 2 * 2 + 1] = pack2<T>(c[n][2], c[n][3]);
    }
}

// The warp's 16 rows of a result, packed → a tile of ROWS rows in shared memory, swizzled as TMA
// and wgmma have it: the piece of 8 numbers stands at piece ^ (row % 8).
template <int ROWS, int COLUMNS, typename T>
__device__ static inline void store_packed(T *tile_smem, int first_row,
                                           const uint32_t (&packed)[COLUMNS / 16][4]) {
    const int lane = threadIdx.x % 32, row = first_row + lane % 16;
#pragma unroll
    for (int i = 0; i < COLUMNS / 16; i++) {
        const int piece = 2 * i + lane / 16;
        store_matrix_x4(tile_smem + piece / 8 * ROWS * 64 + row * 64 + (piece % 8 ^ row % 8) * 8,
                        packed[i]);
    }
}

// What the mask, or the end of the keys, forbids had no part in the forward: -inf as a score.
template <int ROWS>
__device__ static inline void mask_keys(Result<ROWS> &s, const Attention &a, int64_t first_row,
                                        int64_t lane_key) {
    const int pair = threadIdx.x % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int64_t key = lane_key + half * 8;
        KeyRange rows = {0, 0};
        if (key < a.seqlen_k)
            rows = seeing_rows(key, a.seqlen_q, a.seqlen_k, a.window_left, a.window_right);
        // Counted from this tile's first row they are small: 32-bit comparisons do.
        const int begin = (int)min(max(rows.begin - first_row, (int64_t)0), (int64_t)ROWS);
        const int end = (int)min(max(rows.end - first_row, (int64_t)0), (int64_t)ROWS);
#pragma unroll
        for (int n = 0; n < ROWS / 8; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int row = n * 8 + pair + i;
                if (row < begin || row >= end) s[n][2 * half + i] = -CUDART_INF_F;
            }
    }
}

// Does a key of this warpgroup's 64 not see a row of the tile?
template <int ROWS>
__device__ static inline bool needs_mask(const Attention &a, int64_t first_row, int64_t first_key) {
    const int64_t last_row = min(first_row + ROWS, a.seqlen_q) - 1;
    const KeyRange all = keys_seen_by_all(first_row, last_row, a.seqlen_q, a.seqlen_k,
                                          a.window_left, a.window_right);
    return first_key < all.begin || first_key + WARPGROUP_KEYS > all.end;
}

// s: products → Pᵀ = e^(Sᵀ - lse), in base 2. A lane's numbers of one n belong to two rows.
template <int ROWS>
__device__ static inline void exponentiate(Result<ROWS> &s, const float *lse_smem, float factor) {
#pragma unroll
    for (int n = 0; n < ROWS / 8; n++) {
        const float2 lse = *(const float2 *)&lse_smem[n * 8 + threadIdx.x % 4 * 2];
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[n][i] = exp2_approximate(fmaf(s[n][i], factor, i % 2 ? -lse.y : -lse.x));
    }
}

// s: products → what the exponent's factor multiplies.
template <int ROWS>
__device__ static inline void adjust_scores(Result<ROWS> &s, const Exponent &exponent) {
#pragma unroll
    for (int n = 0; n < ROWS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) s[n][i] = adjusted(s[n][i], exponent);
}

// With a cap dS has one more factor, the cap's slope 1 - tanh². It goes into dP - D as long as s
// still holds the tanh: dP → D + (dP - D)(1 - s²).
template <int ROWS>
__device__ static inline void apply_cap_slope(Result<ROWS> &dp, const Result<ROWS> &s,
                                              const float *row_dots_smem) {
#pragma unroll
    for (int n = 0; n < ROWS / 8; n++) {
        const float2 dot = *(const float2 *)&row_dots_smem[n * 8 + threadIdx.x % 4 * 2];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float d = i % 2 ? dot.y : dot.x;
            dp[n][i] = fmaf(dp[n][i] - d, fmaf(-s[n][i], s[n][i], 1), d);
        }
    }
}

// dp: dPᵀ → dSᵀ = Pᵀ ∘ (dPᵀ - D).
template <int ROWS>
__device__ static inline void differentiate(Result<ROWS> &dp, const Result<ROWS> &p,
                                            const float *row_dots_smem) {
#pragma unroll
    for (int n = 0; n < ROWS / 8; n++) {
        const float2 dot = *(const float2 *)&row_dots_smem[n * 8 + threadIdx.x % 4 * 2];
#pragma unroll
        for (int i = 0; i < 4; i++) dp[n][i] = p[n][i] * (dp[n][i] - (i % 2 ? dot.y : dot.x));
    }
}

#endif
