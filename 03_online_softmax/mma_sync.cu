// Chapter 3, step mma-sync: normalise-once with both products on the tensor cores.
//
// The unit of work is now a warp: 32 lanes hold a 16 x 16 piece of A and a 16 x 8 piece of B in
// their registers, and one instruction, mma.sync, multiplies them into a 16 x 8 piece of D
// (device/mma.h and device/fragments.h say which lane holds what). Lanes fetch their numbers from
// shared memory one by one. Q, K and V stay 16 bits wide there, as the tensor cores want them.
#include "mma_sync.h"

#include "device/fragments.h"

// Rows first_row … first_row + TILE_ROWS - 1 → tile_smem, 16 bytes (8 numbers) a lane. Rows past
// the last are not read and become zeros: 0 * NaN would be NaN.
// The caller's __syncthreads() after this shows the tile to all threads.
template <typename T, int HEAD_DIM, int TILE_ROWS>
__device__ static inline void load_numbers(T *tile_smem, const HeadRows<T> rows,
                                           int64_t first_row) {
    const unsigned ROW_PIECES = HEAD_DIM / 8;
    const T *first = rows.first + first_row * rows.stride;
    const int64_t row_count = rows.count - first_row;
#pragma unroll 2
    for (unsigned i = 0; i < TILE_ROWS * ROW_PIECES / TENSOR_THREADS; i++) {
        const unsigned piece = i * TENSOR_THREADS + threadIdx.x;
        const unsigned row = piece / ROW_PIECES, column = piece % ROW_PIECES * 8;
        uint4 numbers = make_uint4(0, 0, 0, 0);
        if (row < row_count) numbers = *(const uint4 *)(first + row * rows.stride + column);
        *(uint4 *)&tile_smem[row * HEAD_DIM + column] = numbers;
    }
}

// Two neighbours, as one operand register holds them.
template <typename T> __device__ static inline uint32_t pair_of(const T *numbers) {
    return *(const uint32_t *)numbers;
}

// Two numbers of different rows, packed into one register.
template <typename T> __device__ static inline uint32_t pair_of(T low, T high) {
    return *(const uint16_t *)&low | (uint32_t) * (const uint16_t *)&high << 16;
}

// s_reg = Q Kᵀ for the warp's 16 rows.
template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void multiply_query_key(float (&s_reg)[KEYS / 8][4], const T *q_smem,
                                                 const T *k_smem) {
    const int group = threadIdx.x % 32 / 4, pair = threadIdx.x % 4 * 2;
    q_smem += (threadIdx.x / 32 * 16 + group) * HEAD_DIM + pair;
    k_smem += group * HEAD_DIM + pair;
#pragma unroll
    for (int d = 0; d < HEAD_DIM; d += 16) {
        uint32_t q_reg[4];
        q_reg[0] = pair_of(&q_smem[d]);
        q_reg[1] = pair_of(&q_smem[d + 8 * HEAD_DIM]);
        q_reg[2] = pair_of(&q_smem[d + 8]);
        q_reg[3] = pair_of(&q_smem[d + 8 * HEAD_DIM + 8]);
#pragma unroll
        for (int t = 0; t < KEYS / 8; t++) {
            uint32_t k_reg[2]; // a column of the operand Kᵀ is a row of K: pairs are neighbours
            k_reg[0] = pair_of(&k_smem[t * 8 * HEAD_DIM + d]);
            k_reg[1] = pair_of(&k_smem[t * 8 * HEAD_DIM + d + 8]);
            mma_m16n8k16<T>(s_reg[t], q_reg, k_reg);
        }
    }
}

// o_reg += P V for the warp's 16 rows.
template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void add_weighted_values(float (&o_reg)[HEAD_DIM / 8][4],
                                                  const float (&s_reg)[KEYS / 8][4],
                                                  const T *v_smem) {
    const int group = threadIdx.x % 32 / 4, pair = threadIdx.x % 4 * 2;
    v_smem += pair * HEAD_DIM + group;
#pragma unroll
    for (int step = 0; step < KEYS / 16; step++) {
        uint32_t p_reg[4];
        weights_operand<T, KEYS>(p_reg, s_reg, step);
        const T *v = v_smem + step * 16 * HEAD_DIM;
#pragma unroll
        for (int t = 0; t < HEAD_DIM / 8; t++) {
            uint32_t v_reg[2]; // a column of V: pairs stand a row apart and are fetched one by one
            v_reg[0] = pair_of(v[t * 8], v[t * 8 + HEAD_DIM]);
            v_reg[1] = pair_of(v[t * 8 + 8 * HEAD_DIM], v[t * 8 + 9 * HEAD_DIM]);
            mma_m16n8k16<T>(o_reg[t], p_reg, v_reg);
        }
    }
}

template <typename T, int HEAD_DIM, int KEYS>
__global__ void __launch_bounds__(TENSOR_THREADS, TENSOR_BLOCKS_PER_SM(HEAD_DIM))
    mma_sync(const Attention a) {
    extern __shared__ uint4 smem[];
    T *q_smem = (T *)smem;
    T *k_smem = q_smem + TENSOR_ROWS * HEAD_DIM;
    T *v_smem = k_smem + KEYS * HEAD_DIM;
    const FusedWork<T> work = fused_work_of<T>(a, HEAD_DIM, TENSOR_ROWS, KEYS);

    float o_reg[HEAD_DIM / 8][4] = {};
    float row_max[2] = {-CUDART_INF_F, -CUDART_INF_F}, row_sum[2] = {}; // m and l
    load_numbers<T, HEAD_DIM, TENSOR_ROWS>(q_smem, work.q, work.first_row);

    for (int64_t key = work.first_key; key < work.end_key; key += KEYS) {
        load_numbers<T, HEAD_DIM, KEYS>(k_smem, work.k, key);
        load_numbers<T, HEAD_DIM, KEYS>(v_smem, work.v, key);
        __syncthreads(); // every thread's part of K and V (at first of Q too) → all threads

        float s_reg[KEYS / 8][4] = {};
        multiply_query_key<T, HEAD_DIM, KEYS>(s_reg, q_smem, k_smem);
        finish_fragments<T, KEYS>(s_reg, a, work, key);

#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float new_max = fmaxf(row_max[half], fragment_row_max<KEYS>(s_reg, half));
            const float base = finite_max(new_max);
            const float block_sum = exponentiate_fragments<KEYS>(s_reg, half, base);
            const float rescale = expf(row_max[half] - base); // e^(m - m_new)
            scale_output<HEAD_DIM>(o_reg, half, rescale);
            row_sum[half] = row_sum[half] * rescale + quad_sum(block_sum);
            row_max[half] = new_max;
        }
        add_weighted_values<T, HEAD_DIM, KEYS>(o_reg, s_reg, v_smem);
        __syncthreads(); // all threads have read K and V: the next block may take their place
    }

    float lse[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        scale_output<HEAD_DIM>(o_reg, half, row_sum[half] > 0 ? 1 / row_sum[half] : 0);
        lse[half] = log_sum_exp(row_max[half], row_sum[half]);
    }
    store_fragments<T, HEAD_DIM>(a, work, o_reg, lse);
}

template <typename T, int HEAD_DIM> static cudaError_t launch_forward(const Attention *a) {
    LAUNCH_TENSOR_CORES(mma_sync, TENSOR_THREADS, 1, a);
}

DEFINE_DISPATCH_16_BIT(forward, launch_forward)

const Step mma_sync_step = {
    .chapter = 3,
    .name = "mma-sync",
    .idea = "both products on the tensor cores, P handed over in registers",
    .exhibit = false,
    .refuses = refuses_tensor_cores,
    .forward_workspace = no_workspace,
    .forward = forward,
    .backward_workspace = NULL,
    .backward = NULL,
};
