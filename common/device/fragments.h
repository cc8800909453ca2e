// What the tensor-core steps of chapter 3 share: where a lane's numbers stand in a tile, the mask,
// the row maxima, P as an operand, the output, and the launch.
//
// A block of 8 warps takes 128 query rows; a warp takes a strip of 16 of them, and with them whole
// rows of S, P and O. (Of 4 warps each takes two strips; strip_row is where a strip's first warp
// starts.) It multiplies fragments: 16 x 8 pieces of S and O, four numbers in each lane.
//
// clang-format off
//                     8 keys (S, P) or 8 columns (O) of piece t
//                  ┌──────┬──────┬──────┬──────┐
//   row 0          │ L0   │ L1   │ L2   │ L3   │   a lane (L) holds two neighbours of row
//   row 1          │ L4   │ L5   │ L6   │ L7   │   group = lane / 4:        reg[t][0], reg[t][1]
//   …              │      │      │      │      │
//   row 7          │ L28  │ L29  │ L30  │ L31  │
//                  ├──────┼──────┼──────┼──────┤
//   row 8          │ L0   │ L1   │ L2   │ L3   │   and two of row group + 8: reg[t][2], reg[t][3]
//   …              │      │      │      │      │
//   row 15         │ L28  │ L29  │ L30  │ L31  │
//                  └──────┴──────┴──────┴──────┘
// clang-format on
//
// So a row belongs to four neighbouring lanes, and a lane works on two rows ("half" 0 and 1).
#ifndef FRAGMENTS_H
#define FRAGMENTS_H

#include "device/exp2.h"
#include "device/fused.h"
#include "device/mma.h"
#include "device/tile_choice.h"

// The row in the block's tile of this lane's numbers reg[t][2 half] and reg[t][2 half + 1], and the
// column of the first of them.
__device__ static inline int fragment_row(int half) {
    return threadIdx.x / 32 * 16 + half * 8 + threadIdx.x % 32 / 4;
}
__device__ static inline int fragment_column(int t) {
    return t * 8 + threadIdx.x % 4 * 2;
}

// Does the mask, or the end of the keys, take anything away from this block of keys? Nearly always
// every row of the tile sees all of it.
template <typename T, int KEYS>
__device__ static inline bool needs_mask(const FusedWork<T> &work, int64_t key) {
    return key < work.seen_by_all.begin || key + KEYS > work.seen_by_all.end;
}

// Scores that the mask or the end of the keys forbids → -inf.
template <typename T, int KEYS>
__device__ static inline void mask_scores(float (&s_reg)[KEYS / 8][4], const Attention &a,
                                          const FusedWork<T> &work, int64_t key,
                                          int strip_row = 0) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const KeyRange seen = visible_keys(work.first_row + strip_row + fragment_row(half),
                                           a.seqlen_q, a.seqlen_k, a.window_left, a.window_right);
        // Counted from this block's first key they are small: 32-bit comparisons do.
        const int begin = (int)min(max(seen.begin - key, (int64_t)0), (int64_t)KEYS);
        const int end = (int)min(max(seen.end - key, (int64_t)0), (int64_t)KEYS);
#pragma unroll
        for (int t = 0; t < KEYS / 8; t++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int column = fragment_column(t) + i;
                if (column < begin || column >= end) s_reg[t][2 * half + i] = -CUDART_INF_F;
            }
    }
}

// s_reg: products → scores.
template <typename T, int KEYS>
__device__ static inline void finish_fragments(float (&s_reg)[KEYS / 8][4], const Attention &a,
                                               const FusedWork<T> &work, int64_t key) {
    const bool capped = a.softcap > 0;
    const float inner = capped ? a.softmax_scale / a.softcap : a.softmax_scale;
#pragma unroll
    for (int t = 0; t < KEYS / 8; t++)
#pragma unroll
        for (int i = 0; i < 4; i++) s_reg[t][i] *= inner;
    if (capped)
#pragma unroll
        for (int t = 0; t < KEYS / 8; t++)
#pragma unroll
            for (int i = 0; i < 4; i++) s_reg[t][i] = a.softcap * tanh_approximate(s_reg[t][i]);
    if (needs_mask<T, KEYS>(work, key)) mask_scores<T, KEYS>(s_reg, a, work, key);
}

// s_reg: products → what the exponent's factor multiplies, where the two are not the same.
template <int KEYS>
__device__ static inline void adjust_fragments(float (&s_reg)[KEYS / 8][4],
                                               const Exponent &exponent) {
#pragma unroll
    for (int t = 0; t < KEYS / 8; t++)
#pragma unroll
        for (int i = 0; i < 4; i++) s_reg[t][i] = adjusted(s_reg[t][i], exponent);
}

// Maximum and sum over the four lanes of a row; each of them gets the result.
__device__ static inline float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ static inline float quad_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// The largest score of a row in this block of keys.
template <int KEYS>
__device__ static inline float fragment_row_max(const float (&s_reg)[KEYS / 8][4], int half) {
    float largest = -CUDART_INF_F;
#pragma unroll
    for (int t = 0; t < KEYS / 8; t++)
        largest = fmaxf(largest, fmaxf(s_reg[t][2 * half], s_reg[t][2 * half + 1]));
    return quad_max(largest);
}

// A row's scores → exp(score - base), and their sum over this lane's.
template <int KEYS>
__device__ static inline float exponentiate_fragments(float (&s_reg)[KEYS / 8][4], int half,
                                                      float base) {
    float sum = 0;
#pragma unroll
    for (int t = 0; t < KEYS / 8; t++)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; i++) {
            s_reg[t][i] = expf(s_reg[t][i] - base);
            sum += s_reg[t][i];
        }
    return sum;
}

// The same in base 2: x → 2^(factor x - base), and their sum over this lane's.
template <int KEYS>
__device__ static inline float exponentiate_fragments_base_2(float (&s_reg)[KEYS / 8][4], int half,
                                                             float factor, float base) {
    float sum = 0;
#pragma unroll
    for (int t = 0; t < KEYS / 8; t++)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; i++) {
            s_reg[t][i] = exp2_approximate(fmaf(s_reg[t][i], factor, -base));
            sum += s_reg[t][i];
        }
    return sum;
}

// Keys 16 step … 16 step + 15 of P as the left operand of P V. The lane that holds a number of the
// result S holds the same number of an operand A: two 16 x 8 pieces of the one, rounded and packed,
// are a 16 x 16 piece of the other, and P never leaves the registers.
template <typename T, int KEYS>
__device__ static inline void weights_operand(uint32_t (&p_reg)[4],
                                              const float (&s_reg)[KEYS / 8][4], int step) {
    const float(&left)[4] = s_reg[2 * step], (&right)[4] = s_reg[2 * step + 1];
    p_reg[0] = pack2<T>(left[0], left[1]);
    p_reg[1] = pack2<T>(left[2], left[3]);
    p_reg[2] = pack2<T>(right[0], right[1]);
    p_reg[3] = pack2<T>(right[2], right[3]);
}

// o_reg times a factor of each row.
template <int HEAD_DIM>
__device__ static inline void scale_output(float (&o_reg)[HEAD_DIM / 8][4], int half,
                                           float factor) {
#pragma unroll
    for (int t = 0; t < HEAD_DIM / 8; t++) {
        o_reg[t][2 * half] *= factor;
        o_reg[t][2 * half + 1] *= factor;
    }
}

// o_reg → O, lse → lse, rows past the last dropped.
//
// The four lanes of a row hold 16 bytes of piece t: half of a 32-byte sector, the least that memory
// writes. So even lanes give their part of piece t + 1 for their right neighbour's of piece t, and
// a store writes whole sectors:
//
//   lanes    0  1  2  3 │ 0  1  2  3                 0     2    │ 1     3
//   before   t          │ t + 1            after     t          │ t + 1
template <typename T, int HEAD_DIM>
__device__ static inline void store_fragments(const Attention &a, const FusedWork<T> &work,
                                              const float (&o_reg)[HEAD_DIM / 8][4],
                                              const float (&lse)[2], int strip_row = 0) {
    const bool odd = threadIdx.x % 2;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int64_t row = work.first_row + strip_row + fragment_row(half);
        const bool exists = row < a.seqlen_q;
        T *o = (T *)a.o + row_offset(work.batch, row, work.head, a.seqlen_q, a.heads, HEAD_DIM);
        o += odd ? fragment_column(1) - 2 : fragment_column(0);
#pragma unroll
        for (int t = 0; t < HEAD_DIM / 8; t += 2) {
            const uint32_t left = pack2<T>(o_reg[t][2 * half], o_reg[t][2 * half + 1]);
            const uint32_t right = pack2<T>(o_reg[t + 1][2 * half], o_reg[t + 1][2 * half + 1]);
            const uint32_t other = __shfl_xor_sync(0xffffffffu, odd ? left : right, 1);
            if (exists)
                *(uint2 *)(o + t * 8) = odd ? make_uint2(other, right) : make_uint2(left, other);
        }
        if (exists && threadIdx.x % 4 == 0)
            a.lse[vector_offset(work.batch, work.head, row, a.heads, a.seqlen_q)] = lse[half];
    }
}

// What rounding took off lse, for a backward that asks for it.
template <typename T>
__device__ static inline void store_lse_rest(const Attention &a, const FusedWork<T> &work, int half,
                                             float rest, int strip_row = 0) {
    const int64_t row = work.first_row + strip_row + fragment_row(half);
    if (row < a.seqlen_q && threadIdx.x % 4 == 0)
        a.lse_rest[vector_offset(work.batch, work.head, row, a.heads, a.seqlen_q)] = rest;
}

// The shared memory that a block may have on the current device, in bytes.
static inline int shared_memory_limit() {
    int device = 0, bytes = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    return bytes;
}

// Launches a tensor-core kernel: a thread block for each tile of query rows of each head.
static inline cudaError_t launch_tensor_cores(void (*kernel)(const Attention), int threads,
                                              int bytes, const Attention *a) {
    const int64_t blocks = tiles_of(a->seqlen_q, TENSOR_ROWS) * a->batch * a->heads;
    if (blocks == 0) return cudaSuccess; // no query rows, no outputs
    const cudaError_t error = allow_shared_memory(kernel, bytes);
    if (error != cudaSuccess) return error;
    kernel<<<(unsigned)blocks, threads, bytes, a->stream>>>(*a);
    return cudaGetLastError();
}

// Launches the variant of kernel<T, HEAD_DIM, KEYS> whose tile, with K and V `buffers` times, fits
// in the device's shared memory; only the widest heads need the choice. Returns from the caller.
#define LAUNCH_TENSOR_CORES(kernel, threads, buffers, a)                                           \
    if constexpr (TENSOR_TILE_BYTES(HEAD_DIM, 64, buffers) > LEAST_SHARED_BYTES)                   \
        if (keys_that_fit(HEAD_DIM, buffers, shared_memory_limit()) < 64)                          \
            return launch_tensor_cores(kernel<T, HEAD_DIM, 32>, threads,                           \
                                       TENSOR_TILE_BYTES(HEAD_DIM, 32, buffers), a);               \
    return launch_tensor_cores(kernel<T, HEAD_DIM, 64>, threads,                                   \
                               TENSOR_TILE_BYTES(HEAD_DIM, 64, buffers), a)

// What every tensor-core step refuses.
static inline const char *refuses_tensor_cores(const Attention *a, bool backward) {
    if (a->dtype == DTYPE_FP32)
        return "mma.sync multiplies fp16 and bf16; use --dtype fp16 or bf16, or the step "
               "normalise-once for fp32";
    return refuses_fused(a, backward);
}

#endif
