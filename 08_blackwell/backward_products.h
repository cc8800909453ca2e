// The products of the backward on Blackwell's tensor cores. One thread starts them; each function
// only issues. Tiles in shared memory stand in boxes of 64 columns, as TMA brings them.
#ifndef BLACKWELL_BACKWARD_PRODUCTS_H
#define BLACKWELL_BACKWARD_PRODUCTS_H

#include "backward_tile.h"
#include "products.h"

// Sᵀ = K Qᵀ or dPᵀ = V dOᵀ. Columns of head_dim, over which the sum goes, run along the lines of
// both.
template <typename T, int HEAD_DIM>
__device__ static inline void multiply_keys_rows(uint32_t d_tmem, const T *keys_smem,
                                                 const T *rows_smem) {
    const uint32_t instruction = instruction_f16(IsBf16<T>::VALUE, KEYS, ROWS, false, false);
    const uint64_t keys = tensor_descriptor<LINE>(keys_smem, 16, 8 * LINE);
    const uint64_t rows = tensor_descriptor<LINE>(rows_smem, 16, 8 * LINE);
#pragma unroll
    for (int d = 0; d < HEAD_DIM; d += DEPTH)
        tensor_multiply(d_tmem, operand_at(keys, d / COLUMNS * KEYS * LINE + d % COLUMNS * 2),
                        operand_at(rows, d / COLUMNS * ROWS * LINE + d % COLUMNS * 2), instruction,
                        d > 0);
}

// dV += Pᵀ dO or dK += dSᵀ Q: the weights from tensor memory; the sum goes over the tile's rows, a
// line of which runs along head_dim.
template <typename T, int HEAD_DIM>
__device__ static inline void add_weighted_rows(uint32_t d_tmem, uint32_t weights_tmem,
                                                const T *rows_smem, bool accumulates) {
    const uint32_t instruction = instruction_f16(IsBf16<T>::VALUE, KEYS, HEAD_DIM, false, true);
    const uint64_t rows = tensor_descriptor<LINE>(rows_smem, ROWS * LINE, 8 * LINE);
#pragma unroll
    for (int row = 0; row < ROWS; row += DEPTH)
        tensor_multiply_from(d_tmem, weights_tmem + packed_column(row),
                             operand_at(rows, row * LINE), instruction, accumulates || row > 0);
}

// dQ = dS K. The sum goes over the keys; a line of dSᵀ runs along the query rows, one of K along
// head_dim.
template <typename T, int HEAD_DIM>
__device__ static inline void multiply_dq(uint32_t dq_tmem, const T *ds_smem, const T *k_smem) {
    const uint32_t instruction = instruction_f16(IsBf16<T>::VALUE, ROWS, HEAD_DIM, true, true);
    const uint64_t ds = tensor_descriptor<LINE>(ds_smem, KEYS * LINE, 8 * LINE);
    const uint64_t k = tensor_descriptor<LINE>(k_smem, KEYS * LINE, 8 * LINE);
#pragma unroll
    for (int key = 0; key < KEYS; key += DEPTH)
        tensor_multiply(dq_tmem, operand_at(ds, key * LINE), operand_at(k, key * LINE), instruction,
                        key > 0);
}

#endif
