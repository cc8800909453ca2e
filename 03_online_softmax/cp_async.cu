// Chapter 3, step cp-async: the next keys and values come while this block's are worked on, what
// is fetched is used more, and the softmax does less per score. This is FlashAttention-2.
//
//   - cp.async copies K and V straight to shared memory. Up to head_dim 96 each has two buffers,
//     and a whole block of work to arrive in. Wider heads have one of each: V comes during Q Kᵀ and
//     the first strip's softmax, the next K during the last strip's and P V.
//   - At head_dim 128 a warp has 32 query rows, two strips of 16: what ldmatrix fetches of K and V
//     is used by both. Below that, Q stays in registers.
//   - e^(scale x - scale m) = 2^(c x - c m) with c = scale log2(e): one multiply-add and one ex2 a
//     score. Scores are never scaled; maxima are kept as c m.
//   - Each lane sums its own weights; the lanes of a row meet once, after the last block.
#include "cp_async.h"

#include "device/cp_async.h"
#include "device/fragments.h"
#include "device/swizzle.h"

// A head_dim's tile. In two strips S takes 64 registers and O takes head_dim: at 128 too few of 255
// are left for Q's 64, and at 192 for S. Up to 96 waiting is what limits, not the loads, and twice
// as many warps hide more of it.
template <int HEAD_DIM> struct Shape {
    static const int STRIPS = HEAD_DIM == 128 ? 2 : 1;
    static const int STRIP_STEP = TENSOR_ROWS / STRIPS; // rows from one of a warp's to the next
    static const int THREADS = TENSOR_THREADS / STRIPS;
    static const int BLOCKS_PER_SM = TENSOR_BLOCKS_PER_SM(HEAD_DIM) * STRIPS;
    static const bool QUERY_IN_REGISTERS = HEAD_DIM < 128;
    static const int BUFFERS = HEAD_DIM < 128 ? 2 : 1; // of K, and of V
};

// Starts copying rows first_row … first_row + TILE_ROWS - 1 → tile_smem, 16 bytes (8 numbers) a
// lane. Neighbouring lanes copy a span of a row, inside which the swizzle moves pieces: so each
// thread's pieces lie at fixed distances. Rows past the last are not read and become zeros: 0 * NaN would be
// NaN. cp_async_wait, then __syncthreads() shows the tile to all threads.
template <typename T, int HEAD_DIM, int TILE_ROWS>
__device__ static inline void copy_numbers(T *tile_smem, const HeadRows<T> rows,
                                           int64_t first_row) {
    const int SPAN = swizzle_span(HEAD_DIM), LANES = SPAN / 8;
    const int row = threadIdx.x / LANES, column = threadIdx.x % LANES * 8;
    const int place = lane_row(HEAD_DIM, row, column);
    const T *first = rows.first + first_row * rows.stride;
    const int row_count = (int)min(rows.count - first_row, (int64_t)TILE_ROWS);
#pragma unroll
    for (int down = 0; down < TILE_ROWS; down += Shape<HEAD_DIM>::THREADS / LANES) {
        const bool exists = row + down < row_count;
        const T *from = first + min(row + down, row_count - 1) * rows.stride + column;
#pragma unroll
        for (int right = 0; right < HEAD_DIM; right += SPAN)
            cp_async16(&tile_smem[lane_row_at(HEAD_DIM, place, down, right)], from + right,
                       exists ? 16 : 0);
    }
}

// The warp's rows of Q, columns d … d + 15, as an operand for each strip.
template <typename T, int HEAD_DIM, int STRIPS>
__device__ static inline void load_query(uint32_t (&q_reg)[STRIPS][4], const T *q_smem, int d) {
    const int lane = threadIdx.x % 32;
    // The row and column that this lane names: rows 0-7 and 8-15 of 8 columns, then of the next 8.
    const int q = lane_row(HEAD_DIM, threadIdx.x / 32 * 16 + lane % 16, lane / 16 * 8);
#pragma unroll
    for (int strip = 0; strip < STRIPS; strip++)
        load_matrix_x4(q_reg[strip],
                       &q_smem[lane_row_at(HEAD_DIM, q, strip * Shape<HEAD_DIM>::STRIP_STEP, d)]);
}

// s_reg = Q Kᵀ for the warp's rows; Q from q_all if it is there, else from q_smem.
template <typename T, int HEAD_DIM, int KEYS, int STRIPS>
__device__ static inline void multiply_query_key(float (&s_reg)[STRIPS][KEYS / 8][4],
                                                 uint32_t (&q_all)[HEAD_DIM / 16][STRIPS][4],
                                                 const T *q_smem, const T *k_smem) {
    const int lane = threadIdx.x % 32;
    // K: 8 keys, left and right 8 columns, then the next 8 keys.
    const int k = lane_row(HEAD_DIM, lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
#pragma unroll
    for (int d = 0; d < HEAD_DIM; d += 16) {
        uint32_t(&q_reg)[STRIPS][4] = q_all[d / 16];
        if (!Shape<HEAD_DIM>::QUERY_IN_REGISTERS) load_query<T, HEAD_DIM, STRIPS>(q_reg, q_smem, d);
#pragma unroll
        for (int t = 0; t < KEYS / 8; t += 2) {
            uint32_t k_reg[4]; // two operands: keys 8 t …, 8 t + 8 …
            load_matrix_x4(k_reg, &k_smem[lane_row_at(HEAD_DIM, k, t * 8, d)]);
#pragma unroll
            for (int strip = 0; strip < STRIPS; strip++) {
                mma_m16n8k16<T>(s_reg[strip][t], q_reg[strip], k_reg);
                mma_m16n8k16<T>(s_reg[strip][t + 1], q_reg[strip], k_reg + 2);
            }
        }
    }
}

// o_reg += P V for the warp's rows.
template <typename T, int HEAD_DIM, int KEYS, int STRIPS>
__device__ static inline void add_weighted_values(float (&o_reg)[STRIPS][HEAD_DIM / 8][4],
                                                  const float (&s_reg)[STRIPS][KEYS / 8][4],
                                                  const T *v_smem) {
    const int lane = threadIdx.x % 32;
    // V, transposed on the way: keys 0-7 and 8-15 of 8 columns, then of the next 8.
    const int v = lane_row(HEAD_DIM, lane % 16, lane / 16 * 8);
#pragma unroll
    for (int step = 0; step < KEYS / 16; step++) {
        uint32_t p_reg[STRIPS][4];
#pragma unroll
        for (int strip = 0; strip < STRIPS; strip++)
            weights_operand<T, KEYS>(p_reg[strip], s_reg[strip], step);
#pragma unroll
        for (int t = 0; t < HEAD_DIM / 8; t += 2) {
            uint32_t v_reg[4]; // two operands: columns 8 t …, 8 t + 8 …
            load_matrix_x4_transposed(v_reg, &v_smem[lane_row_at(HEAD_DIM, v, step * 16, t * 8)]);
#pragma unroll
            for (int strip = 0; strip < STRIPS; strip++) {
                mma_m16n8k16<T>(o_reg[strip][t], p_reg[strip], v_reg);
                mma_m16n8k16<T>(o_reg[strip][t + 1], p_reg[strip], v_reg + 2);
            }
        }
    }
}

template <typename T, int HEAD_DIM, int KEYS>
__global__ void __launch_bounds__(Shape<HEAD_DIM>::THREADS, Shape<HEAD_DIM>::BLOCKS_PER_SM)
    cp_async(const Attention a) {
    using Shape = Shape<HEAD_DIM>;
    const int STRIPS = Shape::STRIPS, BUFFERS = Shape::BUFFERS;
    const int KV_NUMBERS = KEYS * HEAD_DIM;
    extern __shared__ uint4 smem[];
    T *q_smem = (T *)smem;
    T *k_smem = q_smem + TENSOR_ROWS * HEAD_DIM;
    T *v_smem = k_smem + BUFFERS * KV_NUMBERS;
    const FusedWork<T> work = fused_work_of<T>(a, HEAD_DIM, TENSOR_ROWS, KEYS);
    const Exponent exponent = exponent_of(a.softmax_scale, a.softcap);

    float o_reg[STRIPS][HEAD_DIM / 8][4] = {};
    float row_max[STRIPS][2], row_sum[STRIPS][2] = {}; // m log2(e); this lane's l
#pragma unroll
    for (int strip = 0; strip < STRIPS; strip++)
        row_max[strip][0] = row_max[strip][1] = -CUDART_INF_F;
    uint32_t q_reg[HEAD_DIM / 16][STRIPS][4];
    if (work.first_key < work.end_key) {
        copy_numbers<T, HEAD_DIM, TENSOR_ROWS>(q_smem, work.q, work.first_row);
        cp_async_commit();
        copy_numbers<T, HEAD_DIM, KEYS>(k_smem, work.k, work.first_key);
        if (BUFFERS == 2) copy_numbers<T, HEAD_DIM, KEYS>(v_smem, work.v, work.first_key);
        cp_async_commit();
        cp_async_wait<1>(); // this thread's part of Q has arrived
        __syncthreads();    // all threads' parts of Q → all threads
        if (Shape::QUERY_IN_REGISTERS)
#pragma unroll
            for (int d = 0; d < HEAD_DIM; d += 16)
                load_query<T, HEAD_DIM, STRIPS>(q_reg[d / 16], q_smem, d);
    }

    int buffer = 0;
    for (int64_t key = work.first_key; key < work.end_key; key += KEYS) {
        const T *k = k_smem + buffer * KV_NUMBERS, *v = v_smem + buffer * KV_NUMBERS;
        const bool more = key + KEYS < work.end_key;
        // exercise 1: begin
        cp_async_wait<0>(); // this thread's part of K (with two buffers, of V too) has arrived
        __syncthreads();    // all threads' parts → all; and all have read the block before
        // exercise 1: end
        if (BUFFERS == 1) copy_numbers<T, HEAD_DIM, KEYS>(v_smem, work.v, key);
        // exercise 2: begin
        if (BUFFERS == 2 && more) {
            buffer ^= 1;
            copy_numbers<T, HEAD_DIM, KEYS>(k_smem + buffer * KV_NUMBERS, work.k, key + KEYS);
            copy_numbers<T, HEAD_DIM, KEYS>(v_smem + buffer * KV_NUMBERS, work.v, key + KEYS);
        }
        // exercise 2: end
        cp_async_commit();

        float s_reg[STRIPS][KEYS / 8][4] = {};
        multiply_query_key<T, HEAD_DIM, KEYS, STRIPS>(s_reg, q_reg, q_smem, k);
#pragma unroll
        for (int strip = 0; strip < STRIPS; strip++) {
            if (BUFFERS == 1 && strip == STRIPS - 1) {
                cp_async_wait<0>(); // this thread's part of V has arrived
                __syncthreads();    // all threads' parts → all; and all have read K
                if (more) copy_numbers<T, HEAD_DIM, KEYS>(k_smem, work.k, key + KEYS);
                cp_async_commit();
            }
            if (!exponent.plain) adjust_fragments<KEYS>(s_reg[strip], exponent);
            if (needs_mask<T, KEYS>(work, key))
                mask_scores<T, KEYS>(s_reg[strip], a, work, key, strip * Shape::STRIP_STEP);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float &m = row_max[strip][half], &l = row_sum[strip][half];
                // exercise 3: begin
                const float block_max =
                    fragment_row_max<KEYS>(s_reg[strip], half) * exponent.factor;
                const float new_max = fmaxf(m, block_max);
                const float base = finite_max(new_max);
                const float block_sum =
                    exponentiate_fragments_base_2<KEYS>(s_reg[strip], half, exponent.factor, base);
                const float rescale = exp2_approximate(m - base);
                scale_output<HEAD_DIM>(o_reg[strip], half, rescale);
                l = l * rescale + block_sum;
                m = new_max;
                // exercise 3: end
            }
        }
        add_weighted_values<T, HEAD_DIM, KEYS, STRIPS>(o_reg, s_reg, v);
    }

#pragma unroll
    for (int strip = 0; strip < STRIPS; strip++) {
        float lse[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            // exercise 4: begin
            const float sum = quad_sum(row_sum[strip][half]), max = row_max[strip][half];
            scale_output<HEAD_DIM>(o_reg[strip], half, sum > 0 ? 1 / sum : 0);
            lse[half] = log_sum_exp_base_2(max, sum);
            // exercise 4: end
            if (a.lse_rest != NULL) // chapter 4
                store_lse_rest(a, work, half, log_sum_exp_rest_base_2(max, sum),
                               strip * Shape::STRIP_STEP);
        }
        store_fragments<T, HEAD_DIM>(a, work, o_reg[strip], lse, strip * Shape::STRIP_STEP);
    }
}

template <typename T, int HEAD_DIM> static cudaError_t launch_forward(const Attention *a) {
    LAUNCH_TENSOR_CORES(cp_async, Shape<HEAD_DIM>::THREADS, Shape<HEAD_DIM>::BUFFERS, a);
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
