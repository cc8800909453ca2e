// The products of the backward by a pair of blocks (two_cta.cu): backward_products.h's, with twice
// the keys, and half of B in each block. One thread of block 0 starts them; each function only
// issues.
#ifndef BLACKWELL_BACKWARD_PRODUCTS_PAIR_H
#define BLACKWELL_BACKWARD_PRODUCTS_PAIR_H

#include "backward_tile.h"
#include "device/tcgen05_pair.h"
#include "products.h"

static const int PAIR = 2;             // blocks
static const int HALF_ROWS = ROWS / 2; // of a tile: those that a block has

// Bytes of a line of half of the columns: what the swizzle of their boxes spans.
template <int HEAD_DIM> __device__ __host__ static constexpr int half_line() {
    return HEAD_DIM;
}

// Sᵀ = K Qᵀ or dPᵀ = V dOᵀ.
template <typename T, int HEAD_DIM>
__device__ static inline void multiply_keys_rows(uint32_t d_tmem, const T *keys_smem,
                                                 const T *rows_smem) {
    const uint32_t instruction = instruction_f16(IsBf16<T>::VALUE, PAIR * KEYS, ROWS, false, false);
    const uint64_t keys = tensor_descriptor<LINE>(keys_smem, 16, 8 * LINE);
    const uint64_t rows = tensor_descriptor<LINE>(rows_smem, 16, 8 * LINE);
#pragma unroll
    for (int d = 0; d < HEAD_DIM; d += DEPTH)
        tensor_multiply_pair(d_tmem, operand_at(keys, d / COLUMNS * KEYS * LINE + d % COLUMNS * 2),
                             operand_at(rows, d / COLUMNS * HALF_ROWS * LINE + d % COLUMNS * 2),
                             instruction, d > 0);
}

// dV += Pᵀ dO or dK += dSᵀ Q. `share_columns`: from one warpgroup's weights to the other's.
template <typename T, int HEAD_DIM>
__device__ static inline void add_weighted_rows(uint32_t d_tmem, uint32_t weights_tmem,
                                                int share_columns, const T *columns_smem,
                                                bool accumulates) {
    const uint32_t instruction =
        instruction_f16(IsBf16<T>::VALUE, PAIR * KEYS, HEAD_DIM, false, true);
    const int HALF_LINE = half_line<HEAD_DIM>();
    const uint64_t rows =
        tensor_descriptor<HALF_LINE>(columns_smem, ROWS * HALF_LINE, 8 * HALF_LINE);
#pragma unroll
    for (int row = 0; row < ROWS; row += DEPTH)
        tensor_multiply_from_pair(
            d_tmem, weights_tmem + row / SHARE * share_columns + row % SHARE / 2,
            operand_at(rows, row * HALF_LINE), instruction, accumulates || row > 0);
}

// dQ = dS K.
template <typename T, int HEAD_DIM>
__device__ static inline void multiply_dq(uint32_t dq_tmem, const T *ds_smem,
                                          const T *columns_smem) {
    const uint32_t instruction = instruction_f16(IsBf16<T>::VALUE, ROWS, HEAD_DIM, true, true);
    const uint64_t ds = tensor_descriptor<LINE>(ds_smem, PAIR * KEYS * LINE, 8 * LINE);
    const int HALF_LINE = half_line<HEAD_DIM>();
    const uint64_t k =
        tensor_descriptor<HALF_LINE>(columns_smem, PAIR * KEYS * HALF_LINE, 8 * HALF_LINE);
#pragma unroll
    for (int key = 0; key < PAIR * KEYS; key += DEPTH)
        tensor_multiply_pair(dq_tmem, operand_at(ds, key * LINE), operand_at(k, key * HALF_LINE),
                             instruction, key > 0);
}

#endif
