// A cache of e4m3 numbers: half of the bytes, and so half of the time. They are multiplied as
// fp16 or bf16, of which each has every e4m3 number, so all that is lost was lost when the
// cache was filled.
//
// Shared memory holds them as they come, two a 16-bit unit, and ldmatrix fetches units.
// Registers take them apart, two numbers with a few bit operations: an e4m3 number's sign,
// exponent and fraction stand in a 16-bit number's, once it is shifted, and only the exponents'
// zero is another:
//
//   e4m3       s eeee fff             2^(e - 7) · 1.fff
//   as fp16    s 0eeee fff0000000     2^(e - 15) · 1.fff       2^8 too small: the caller's factor
//   as bf16    s 0000eeee fff0000     2^(e - 127) · 1.fff      2^120 too small: multiplied here,
//                                                              or sums would underflow
//
// (Numbers without the leading 1 keep their value, too.)
//
// clang-format off
// A unit's two numbers lie side by side, so columns come in another order than in fragments of
// 16 bits:
//
//   Q Kᵀ   a lane gets columns 4 c … 4 c + 3 of 16 (c = lane % 4) as its two pairs. Sums may be
//          made in any order, as long as Q's columns are taken in the same.
//   P V    a lane's unit has an even column and the odd one beside it: operand 2 u takes the even
//          columns of 16, operand 2 u + 1 the odd ones. So a lane's four results of both are
//          columns 4 c … 4 c + 3 of them.
// clang-format on
#ifndef CACHE_FP8_H
#define CACHE_FP8_H

#include "device/fragments.h"
#include "work.h"

// Two e4m3 numbers in the upper bytes of x's halves → two of T, which stand for widened_factor<T>()
// times themselves.
template <typename T> __device__ static inline uint32_t widened(uint32_t x);

template <> __device__ inline uint32_t widened<__half>(uint32_t x) {
    return (x & 0x80008000u) | (x >> 1 & 0x3f803f80u);
}

template <> __device__ inline uint32_t widened<__nv_bfloat16>(uint32_t x) {
    const uint32_t small = (x & 0x80008000u) | (x >> 4 & 0x07f007f0u),
                   factor = 0x7b807b80u; // 2^120
    const __nv_bfloat162 product =
        __hmul2(*(const __nv_bfloat162 *)&small, *(const __nv_bfloat162 *)&factor);
    return *(const uint32_t *)&product;
}

template <typename T> __device__ static inline float widened_factor();
template <> __device__ inline float widened_factor<__half>() {
    return 256;
}
template <> __device__ inline float widened_factor<__nv_bfloat16>() {
    return 1;
}

// q_reg: columns d … d + 15 of 16 rows of Q, in the order of K's.
template <typename T, int HEAD_DIM>
__device__ static inline void load_query_fp8(uint32_t (&q_reg)[4], const T *q_smem, int first_row,
                                             int d) {
    const int lane = threadIdx.x % 32, row = first_row + lane / 4, column = lane % 4 * 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int piece = swizzled_offset(HEAD_DIM, row + half * 8, d + column);
        const uint2 pairs = *(const uint2 *)&q_smem[piece + column % 8];
        q_reg[half] = pairs.x;
        q_reg[half + 2] = pairs.y;
    }
}

// s_reg = Q Kᵀ for the warp's rows and keys; Q from q_all if it is there, else from q_smem.
template <typename T, class Tile>
__device__ static inline void multiply_query_key_fp8(float (&s_reg)[Tile::WARP_KEYS / 8][4],
                                                     uint32_t (&q_all)[Tile::HEAD_DIM / 16][4],
                                                     const T *q_smem, const uint16_t *k_smem,
                                                     int first_key) {
    const int UNITS = Tile::UNITS, lane = threadIdx.x % 32;
    const int first_row = threadIdx.x / 32 % Tile::ROW_WARPS * 16;
    // K: 8 keys, 16 columns and the next 16, then the next 8 keys.
    const int k = lane_row(UNITS, first_key + lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
#pragma unroll
    for (int d = 0; d < Tile::HEAD_DIM; d += 32) {
        if (Tile::QUERY_STAYS)
#pragma unroll
            for (int i = 0; i < 2; i++)
                load_query_fp8<T, Tile::HEAD_DIM>(q_all[d / 16 + i], q_smem, first_row, d + i * 16);
#pragma unroll
        for (int t = 0; t < Tile::WARP_KEYS / 8; t += 2) {
            uint32_t k_reg[4];
            load_matrix_x4(k_reg, &k_smem[lane_row_at(UNITS, k, t * 8, d / 2)]);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint32_t pairs[2];
                pairs[0] = widened<T>(__byte_perm(k_reg[i], 0, 0x1404)); // bytes 0 and 1
                pairs[1] = widened<T>(__byte_perm(k_reg[i], 0, 0x3424)); // bytes 2 and 3
                mma_m16n8k16<T>(s_reg[t + i / 2], q_all[d / 16 + i % 2], pairs);
            }
        }
    }
}

// o_reg += P V for the warp's rows and keys.
template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void add_weighted_values_fp8(float (&o_reg)[HEAD_DIM / 8][4],
                                                      const float (&s_reg)[KEYS / 8][4],
                                                      const uint16_t *v_smem, int first_key) {
    const int UNITS = HEAD_DIM / 2, lane = threadIdx.x % 32;
    // V, transposed on the way: keys 0-7 and 8-15 of 16 columns, then of the next 16.
    const int v = lane_row(UNITS, first_key + lane % 16, lane / 16 * 8);
#pragma unroll
    for (int step = 0; step < KEYS / 16; step++) {
        uint32_t p_reg[4];
        weights_operand<T, KEYS>(p_reg, s_reg, step);
#pragma unroll
        for (int d = 0; d < HEAD_DIM; d += 32) {
            uint32_t v_reg[4];
            load_matrix_x4_transposed(v_reg, &v_smem[lane_row_at(UNITS, v, step * 16, d / 2)]);
#pragma unroll
            for (int i = 0; i < 4; i += 2) { // 16 columns
                uint32_t even[2], odd[2];
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    even[half] = widened<T>(v_reg[i + half] << 8 & 0xff00ff00u);
                    odd[half] = widened<T>(v_reg[i + half] & 0xff00ff00u);
                }
                mma_m16n8k16<T>(o_reg[d / 8 + i], p_reg, even);
                mma_m16n8k16<T>(o_reg[d / 8 + i + 1], p_reg, odd);
            }
        }
    }
}

#endif
