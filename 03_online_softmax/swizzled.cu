// Chapter 3, step swizzled: the operands come from shared memory by ldmatrix, without bank conflicts.
//
// ldmatrix loads four 8 x 8 matrices at once: each lane names one row of 16 bytes, and the rows are
// dealt out as mma.sync wants them, transposed on the way if asked. Eight rows are read at a time,
// and they are a multiple of 128 bytes apart: all in the same four banks. So a row's pieces of 16
// bytes change places (device/swizzle.h): piece p of row r stands where p ^ (r % 8) would.
#include "swizzled.h"

#include "device/fragments.h"
#include "device/swizzle.h"

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
        *(uint4 *)&tile_smem[swizzled_offset(HEAD_DIM, row, column)] = numbers;
    }
}

// The warp's 16 rows of Q, columns d … d + 15, as an operand.
template <typename T, int HEAD_DIM>
__device__ static inline void load_query(uint32_t (&q_reg)[4], const T *q_smem, int d) {
    const int lane = threadIdx.x % 32;
    // The row and column that this lane names: rows 0-7 and 8-15 of 8 columns, then of the next 8.
    const int q = lane_row(HEAD_DIM, threadIdx.x / 32 * 16 + lane % 16, lane / 16 * 8);
    load_matrix_x4(q_reg, &q_smem[lane_row_at(HEAD_DIM, q, 0, d)]);
}

// s_reg = Q Kᵀ for the warp's 16 rows.
template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void multiply_query_key(float (&s_reg)[KEYS / 8][4], const T *q_smem,
                                                 const T *k_smem) {
    const int lane = threadIdx.x % 32;
    // K: 8 keys, left and right 8 columns, then the next 8 keys.
    const int k = lane_row(HEAD_DIM, lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
#pragma unroll
    for (int d = 0; d < HEAD_DIM; d += 16) {
        uint32_t q_reg[4];
        load_query<T, HEAD_DIM>(q_reg, q_smem, d);
#pragma unroll
        for (int t = 0; t < KEYS / 8; t += 2) {
            uint32_t k_reg[4]; // two operands: keys 8 t …, 8 t + 8 …
            load_matrix_x4(k_reg, &k_smem[lane_row_at(HEAD_DIM, k, t * 8, d)]);
            mma_m16n8k16<T>(s_reg[t], q_reg, k_reg);
            mma_m16n8k16<T>(s_reg[t + 1], q_reg, k_reg + 2);
        }
    }
}

// o_reg += P V for the warp's 16 rows.
template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void add_weighted_values(float (&o_reg)[HEAD_DIM / 8][4],
                                                  const float (&s_reg)[KEYS / 8][4],
                                                  const T *v_smem) {
    const int lane = threadIdx.x % 32;
    // V, transposed on the way: keys 0-7 and 8-15 of 8 columns, then of the next 8.
    const int v = lane_row(HEAD_DIM, lane % 16, lane / 16 * 8);
#pragma unroll
    for (int step = 0; step < KEYS / 16; step++) {
        uint32_t p_reg[4];
        weights_operand<T, KEYS>(p_reg, s_reg, step);
#pragma unroll
        for (int t = 0; t < HEAD_DIM / 8; t += 2) {
            uint32_t v_reg[4]; // two operands: columns 8 t …, 8 t + 8 …
            load_matrix_x4_transposed(v_reg, &v_smem[lane_row_at(HEAD_DIM, v, step * 16, t * 8)]);
            mma_m16n8k16<T>(o_reg[t], p_reg, v_reg);
            mma_m16n8k16<T>(o_reg[t + 1], p_reg, v_reg + 2);
        }
    }
}

template <typename T, int HEAD_DIM, int KEYS>
__global__ void __launch_bounds__(TENSOR_THREADS, TENSOR_BLOCKS_PER_SM(HEAD_DIM))
    swizzled(const Attention a) {
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
    LAUNCH_TENSOR_CORES(swizzled, TENSOR_THREADS, 1, a);
}

DEFINE_DISPATCH_16_BIT(forward, launch_forward)

const Step swizzled_step = {
    .chapter = 3,
    .name = "swizzled",
    .idea = "operands by ldmatrix, shared memory without bank conflicts",
    .exhibit = false,
    .refuses = refuses_tensor_cores,
    .forward_workspace = no_workspace,
    .forward = forward,
    .backward_workspace = NULL,
    .backward = NULL,
};
