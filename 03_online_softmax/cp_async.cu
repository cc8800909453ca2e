// Chapter 3, step cp-async: the next keys and values come while this block's are worked on, and the
// softmax does less per score. This is FlashAttention-2.
//
//   - cp.async copies K and V straight to shared memory. Up to head_dim 128 each has two buffers, and
//     a whole block of work to arrive in. Wider heads have one of each: V comes during Q Kᵀ, the next
//     K during the softmax and P V.
//   - Up to head_dim 128 the warp's rows of Q stay in registers.
//   - e^(scale x - scale m) = 2^(c x - c m) with c = scale log2(e): one multiply-add and one ex2 a
//     score. Scores are never scaled; maxima are kept as c m.
//   - Each lane sums its own weights; the lanes of a row meet once, after the last block.
#include "cp_async.h"

#include "device/cp_async.h"
#include "device/fragments.h"
#include "device/swizzle.h"

static const int MAX_HEAD_DIM_IN_REGISTERS = 128; // Q in registers, two buffers of K and V

// Starts copying rows first_row … first_row + TILE_ROWS - 1 → tile_smem, 16 bytes (8 numbers) a lane.
// Rows past the last are not read and become zeros: 0 * NaN would be NaN.
// cp_async_wait, then __syncthreads() shows the tile to all threads.
template <typename T, int HEAD_DIM, int TILE_ROWS>
__device__ static inline void copy_numbers(T *tile_smem, const HeadRows<T> rows,
                                           int64_t first_row) {
    const unsigned ROW_PIECES = HEAD_DIM / 8;
    const T *first = rows.first + first_row * rows.stride;
    const int64_t row_count = rows.count - first_row;
#pragma unroll
    for (unsigned i = 0; i < TILE_ROWS * ROW_PIECES / TENSOR_THREADS; i++) {
        const unsigned piece = i * TENSOR_THREADS + threadIdx.x;
        const unsigned row = piece / ROW_PIECES, column = piece % ROW_PIECES * 8;
        const bool exists = row < row_count;
        cp_async16(&tile_smem[swizzled_offset(HEAD_DIM, row, column)],
                   first + (exists ? row * rows.stride + column : 0), exists ? 16 : 0);
    }
}

// The warp's 16 rows of Q, columns d … d + 15, as an operand.
template <typename T, int HEAD_DIM>
__device__ static inline void load_query(uint32_t (&q_reg)[4], const T *q_smem, int d) {
    const int lane = threadIdx.x % 32;
    // The row and column that this lane names: rows 0-7 and 8-15 of 8 columns, then of the next 8.
    const LaneRow q = lane_row(HEAD_DIM, threadIdx.x / 32 * 16 + lane % 16, lane / 16 * 8);
    load_matrix_x4(q_reg, &q_smem[lane_row_at(HEAD_DIM, q, 0, d)]);
}

// s_reg = Q Kᵀ for the warp's 16 rows; Q from q_all if it is there, else from q_smem.
template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void multiply_query_key(float (&s_reg)[KEYS / 8][4],
                                                 uint32_t (&q_all)[HEAD_DIM / 16][4],
                                                 const T *q_smem, const T *k_smem) {
    const int lane = threadIdx.x % 32;
    // K: 8 keys, left and right 8 columns, then the next 8 keys.
    const LaneRow k = lane_row(HEAD_DIM, lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
#pragma unroll
    for (int d = 0; d < HEAD_DIM; d += 16) {
        uint32_t(&q_reg)[4] = q_all[d / 16];
        if (HEAD_DIM > MAX_HEAD_DIM_IN_REGISTERS) load_query<T, HEAD_DIM>(q_reg, q_smem, d);
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
    const LaneRow v = lane_row(HEAD_DIM, lane % 16, lane / 16 * 8);
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
    cp_async(const Attention a) {
    const int BUFFERS = HEAD_DIM <= MAX_HEAD_DIM_IN_REGISTERS ? 2 : 1;
    const int KV_NUMBERS = KEYS * HEAD_DIM;
    extern __shared__ uint4 smem[];
    T *q_smem = (T *)smem;
    T *k_smem = q_smem + TENSOR_ROWS * HEAD_DIM;
    T *v_smem = k_smem + BUFFERS * KV_NUMBERS;
    const FusedWork<T> work = fused_work_of<T>(a, HEAD_DIM, TENSOR_ROWS, KEYS);
    const Exponent exponent = exponent_of(a.softmax_scale, a.softcap);

    float o_reg[HEAD_DIM / 8][4] = {};
    float row_max[2] = {-CUDART_INF_F, -CUDART_INF_F}, row_sum[2] = {}; // m log2(e); this lane's l
    uint32_t q_reg[HEAD_DIM / 16][4];
    if (work.first_key < work.end_key) {
        copy_numbers<T, HEAD_DIM, TENSOR_ROWS>(q_smem, work.q, work.first_row);
        cp_async_commit();
        copy_numbers<T, HEAD_DIM, KEYS>(k_smem, work.k, work.first_key);
        if (BUFFERS == 2) copy_numbers<T, HEAD_DIM, KEYS>(v_smem, work.v, work.first_key);
        cp_async_commit();
        cp_async_wait<1>(); // this thread's part of Q has arrived
        __syncthreads();    // all threads' parts of Q → all threads
        if (HEAD_DIM <= MAX_HEAD_DIM_IN_REGISTERS)
#pragma unroll
            for (int d = 0; d < HEAD_DIM; d += 16)
                load_query<T, HEAD_DIM>(q_reg[d / 16], q_smem, d);
    }

    int buffer = 0;
    for (int64_t key = work.first_key; key < work.end_key; key += KEYS) {
        const T *k = k_smem + buffer * KV_NUMBERS, *v = v_smem + buffer * KV_NUMBERS;
        const bool more = key + KEYS < work.end_key;
        cp_async_wait<0>(); // this thread's part of K (with two buffers, of V too) has arrived
        __syncthreads();    // all threads' parts → all; and all have read the block before
        if (BUFFERS == 1) copy_numbers<T, HEAD_DIM, KEYS>(v_smem, work.v, key);
        if (BUFFERS == 2 && more) {
            buffer ^= 1;
            copy_numbers<T, HEAD_DIM, KEYS>(k_smem + buffer * KV_NUMBERS, work.k, key + KEYS);
            copy_numbers<T, HEAD_DIM, KEYS>(v_smem + buffer * KV_NUMBERS, work.v, key + KEYS);
        }
        cp_async_commit();

        float s_reg[KEYS / 8][4] = {};
        multiply_query_key<T, HEAD_DIM, KEYS>(s_reg, q_reg, q_smem, k);
        if (BUFFERS == 1) {
            cp_async_wait<0>(); // this thread's part of V has arrived
            __syncthreads();    // all threads' parts → all; and all have read K
            if (more) copy_numbers<T, HEAD_DIM, KEYS>(k_smem, work.k, key + KEYS);
            cp_async_commit();
        }
        if (!exponent.plain) adjust_fragments<KEYS>(s_reg, exponent);
        if (needs_mask<T, KEYS>(work, key)) mask_scores<T, KEYS>(s_reg, a, work, key);

#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float block_max = fragment_row_max<KEYS>(s_reg, half) * exponent.factor;
            const float new_max = fmaxf(row_max[half], block_max);
            const float base = finite_max(new_max);
            const float block_sum =
                exponentiate_fragments_base_2<KEYS>(s_reg, half, exponent.factor, base);
            const float rescale = exp2_approximate(row_max[half] - base);
            scale_output<HEAD_DIM>(o_reg, half, rescale);
            row_sum[half] = row_sum[half] * rescale + block_sum;
            row_max[half] = new_max;
        }
        add_weighted_values<T, HEAD_DIM, KEYS>(o_reg, s_reg, v);
    }

    float lse[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float sum = quad_sum(row_sum[half]);
        scale_output<HEAD_DIM>(o_reg, half, sum > 0 ? 1 / sum : 0);
        lse[half] = log_sum_exp_base_2(row_max[half], sum);
        if (a.lse_rest != NULL) // chapter 4
            store_lse_rest(a, work, half, log_sum_exp_rest_base_2(row_max[half], sum));
    }
    store_fragments<T, HEAD_DIM>(a, work, o_reg, lse);
}

template <typename T, int HEAD_DIM> static cudaError_t launch_forward(const Attention *a) {
    LAUNCH_TENSOR_CORES(cp_async, HEAD_DIM <= MAX_HEAD_DIM_IN_REGISTERS ? 2 : 1, a);
}

DEFINE_DISPATCH_16_BIT(forward, launch_forward)

const Step cp_async_step = {
    .chapter = 3,
    .name = "cp-async",
    .idea = "K and V copied under the products, softmax in base 2: FlashAttention-2",
    .exhibit = false,
    .refuses = refuses_tensor_cores,
    .forward_workspace = no_workspace,
    .forward = forward,
    .backward_workspace = NULL,
    .backward = NULL,
};
