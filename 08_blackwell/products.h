// The two products of a tile on Blackwell's tensor cores. One thread starts them; they read shared
// memory where TMA has put Q, K and V, and leave their results in tensor memory. Nobody's registers
// are needed. Each function only issues: who wants the results commits to an mbarrier.
#ifndef PRODUCTS_H
#define PRODUCTS_H

#include "device/phase.h"
#include "device/tcgen05.h"
#include "forward_tile.h"

static const int DEPTH = 16; // numbers that one tcgen05.mma of 16-bit numbers sums over

// An operand's descriptor, so many bytes on.
__device__ static inline uint64_t operand_at(uint64_t descriptor, int bytes) {
    return descriptor + (bytes >> 4);
}

// S = Q Kᵀ of a tile of query rows and a block of keys.
template <typename T, int HEAD_DIM>
__device__ static inline void multiply_query_key(uint32_t s_tmem, const T *q_smem,
                                                 const T *k_smem) {
    const uint32_t instruction = instruction_f16(IsBf16<T>::VALUE, ROWS, KEYS, false, false);
    // Rows of Q and K are lines of LINE bytes, 8 of which are one pattern of the swizzle.
    const uint64_t q = tensor_descriptor<LINE>(q_smem, 16, 8 * LINE);
    const uint64_t k = tensor_descriptor<LINE>(k_smem, 16, 8 * LINE);
    PHASE("qk_gemm");
#pragma unroll
    for (int d = 0; d < HEAD_DIM; d += DEPTH) {
        const int bytes = d / COLUMNS * ROWS * LINE + d % COLUMNS * 2;
        tensor_multiply(s_tmem, operand_at(q, bytes), operand_at(k, bytes), instruction, d > 0);
    }
}

// V's descriptor: along its lines run O's columns, so the next KEYS lines hold the next of these.
template <typename T> __device__ static inline uint64_t value_operand(const T *v_smem) {
    return tensor_descriptor<LINE>(v_smem, KEYS * LINE, 8 * LINE);
}

// O = P V, or O += P V where it accumulates; P in shared memory, in boxes as TMA would bring it.
template <typename T, int HEAD_DIM>
__device__ static inline void add_weighted_values(uint32_t o_tmem, const T *p_smem, const T *v_smem,
                                                  bool accumulates) {
    const uint32_t instruction = instruction_f16(IsBf16<T>::VALUE, ROWS, HEAD_DIM, false, true);
    const uint64_t p = tensor_descriptor<LINE>(p_smem, 16, 8 * LINE);
    const uint64_t v = value_operand(v_smem);
    PHASE("pv_gemm");
#pragma unroll
    for (int key = 0; key < KEYS; key += DEPTH)
        tensor_multiply(o_tmem, operand_at(p, key / COLUMNS * ROWS * LINE + key % COLUMNS * 2),
                        operand_at(v, key * LINE), instruction, accumulates || key > 0);
}

// P in tensor memory is handed over in two parts, so that P V begins while the last exponentials are
// computed: the first so many keys, and the others.
static const int FIRST_KEYS = 96;

// The same with P in tensor memory, keys FROM … TO - 1 of the block.
template <typename T, int HEAD_DIM, int FROM, int TO>
__device__ static inline void add_weighted_values_from(uint32_t o_tmem, uint32_t p_tmem,
                                                       const T *v_smem, bool accumulates) {
    const uint32_t instruction = instruction_f16(IsBf16<T>::VALUE, ROWS, HEAD_DIM, false, true);
    const uint64_t v = value_operand(v_smem);
    PHASE("pv_gemm");
#pragma unroll
    for (int key = FROM; key < TO; key += DEPTH)
        tensor_multiply_from(o_tmem, p_tmem + key / 2, operand_at(v, key * LINE), instruction,
                             accumulates || key > FROM);
}

#endif
