// The kernel of chapter 9, from split-kv on. A thread block takes a tile of packed query rows
// and one split of the keys they see: chapter 3's cp-async, but made for reading. A .cu file
// sets these switches and then includes it:
//
//   DECODE_KERNEL   the kernel's name
//   PAGED           K and V may stand in pages
//   CLUSTER         the splits of a tile are a cluster and merge their parts themselves
//   CACHE_FP8       K and V may be e4m3
//
// Decoding is bound by memory: each number of K and V is multiplied with a few query rows and
// never seen again. So all that counts is that enough of it is under way. The buffers are a
// ring, of which all but one are always being filled:
//
//   buffer 0   │ block 0 is worked on │ block 3 arrives …      │
//   buffer 1   │ block 1 arrives      │ block 1 is worked on   │ …
//   buffer 2   │ block 2 arrives …                             │ block 2 is worked on
//
// One group of copies a block, also where there is nothing left to copy: the count of groups
// then says which block has arrived.
#ifndef DECODE_H
#define DECODE_H

#include "cache_fp8.h"
#include "device/fragments.h"
#include "device/phase.h"
#include "merge.h"
#include "rotary.h"
#if CLUSTER
#include "cluster_merge.h"
#endif

// A warp's place: its rows and keys in the block's.
template <class Tile> __device__ static inline int warp_row() {
    return threadIdx.x / 32 % Tile::ROW_WARPS * 16;
}
template <class Tile> __device__ static inline int key_warp() {
    return threadIdx.x / 32 / Tile::ROW_WARPS;
}

// q_reg: columns d … d + 15 of the warp's 16 rows of Q as a left operand.
template <typename T, class Tile>
__device__ static inline void load_query(uint32_t (&q_reg)[4], const T *q_smem, int d) {
    const int HEAD_DIM = Tile::HEAD_DIM, lane = threadIdx.x % 32, row = warp_row<Tile>();
    if (Tile::FP8) {
        load_query_fp8<T, HEAD_DIM>(q_reg, q_smem, row, d);
        return;
    }
    // The row and column that this lane names: rows 0-7 and 8-15 of 8 columns, then of the next 8.
    const int q = lane_row(HEAD_DIM, row + lane % 16, lane / 16 * 8);
    load_matrix_x4(q_reg, &q_smem[lane_row_at(HEAD_DIM, q, 0, d)]);
}

// s_reg = Q Kᵀ for the warp's rows and keys; Q from q_all if it is there, else from q_smem.
template <typename T, class Tile>
__device__ static inline void multiply_query_key(float (&s_reg)[Tile::WARP_KEYS / 8][4],
                                                 uint32_t (&q_all)[Tile::HEAD_DIM / 16][4],
                                                 const T *q_smem, const T *k_smem, int first_key) {
    const int HEAD_DIM = Tile::HEAD_DIM, lane = threadIdx.x % 32;
    // K: 8 keys, left and right 8 columns, then the next 8 keys.
    const int k = lane_row(HEAD_DIM, first_key + lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
#pragma unroll
    for (int d = 0; d < HEAD_DIM; d += 16) {
        if (Tile::QUERY_STAYS) load_query<T, Tile>(q_all[d / 16], q_smem, d);
#pragma unroll
        for (int t = 0; t < Tile::WARP_KEYS / 8; t += 2) {
            uint32_t k_reg[4]; // two operands: keys 8 t …, 8 t + 8 …
            load_matrix_x4(k_reg, &k_smem[lane_row_at(HEAD_DIM, k, t * 8, d)]);
            mma_m16n8k16<T>(s_reg[t], q_all[d / 16], k_reg);
            mma_m16n8k16<T>(s_reg[t + 1], q_all[d / 16], k_reg + 2);
        }
    }
}

// o_reg += P V for the warp's rows and keys.
template <typename T, int HEAD_DIM, int KEYS>
__device__ static inline void add_weighted_values(float (&o_reg)[HEAD_DIM / 8][4],
                                                  const float (&s_reg)[KEYS / 8][4],
                                                  const T *v_smem, int first_key) {
    const int lane = threadIdx.x % 32;
    // V, transposed on the way: keys 0-7 and 8-15 of 8 columns, then of the next 8.
    const int v = lane_row(HEAD_DIM, first_key + lane % 16, lane / 16 * 8);
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

// Scores of keys key … key + KEYS - 1 that the mask or the end of the keys forbids → -inf.
// `token` is the query token of each of the lane's two rows.
template <int KEYS>
__device__ static inline void mask_keys(float (&s_reg)[KEYS / 8][4], const Attention &a,
                                        const Work &work, const int (&token)[2], int key) {
    if (key >= work.keys.unmasked_from && key + KEYS <= work.keys.unmasked_to) return;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const KeyRange seen =
            visible_keys(token[half], a.seqlen_q, work.seqlen_k, a.window_left, a.window_right);
        const int begin = (int)seen.begin - key, end = (int)seen.end - key;
#pragma unroll
        for (int t = 0; t < KEYS / 8; t++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int column = fragment_column(t) + i;
                if (column < begin || column >= end) s_reg[t][2 * half + i] = -CUDART_INF_F;
            }
    }
}

// s_reg: scores → weights, relative to the rows' new maxima; what was summed before follows them.
template <int HEAD_DIM, int KEYS>
__device__ static inline void update_softmax(float (&s_reg)[KEYS / 8][4],
                                             float (&o_reg)[HEAD_DIM / 8][4], float (&row_max)[2],
                                             float (&row_sum)[2], float factor) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float block_max = fragment_row_max<KEYS>(s_reg, half) * factor;
        const float new_max = fmaxf(row_max[half], block_max);
        const float base = finite_max(new_max);
        const float block_sum = exponentiate_fragments_base_2<KEYS>(s_reg, half, factor, base);
        const float rescale = exp2_approximate(row_max[half] - base);
        scale_output<HEAD_DIM>(o_reg, half, rescale);
        row_sum[half] = row_sum[half] * rescale + block_sum;
        row_max[half] = new_max;
    }
}

// The warps' sums → shared memory, for all threads of the block: o_smem as [warp of keys][row], and
// behind it maximum and sum of each such row. V's numbers stand for `factor` times themselves.
template <class Tile>
__device__ static inline void leave_sums(float *o_smem, const float (&o_reg)[Tile::HEAD_DIM / 8][4],
                                         const float (&row_max)[2], const float (&row_sum)[2],
                                         float factor) {
    float2 *stats_smem = (float2 *)(o_smem + Tile::OUTPUT_FLOATS);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row =
            key_warp<Tile>() * Tile::ROWS + warp_row<Tile>() + half * 8 + threadIdx.x % 32 / 4;
        float *o = &o_smem[row * Tile::OUTPUT_STRIDE];
        const float sum = quad_sum(row_sum[half]);
        if (threadIdx.x % 4 == 0) stats_smem[row] = make_float2(row_max[half], sum);
#pragma unroll
        for (int t = 0; t < Tile::HEAD_DIM / 8; t += 2) {
            const float *left = &o_reg[t][2 * half], *right = &o_reg[t + 1][2 * half];
            if (Tile::FP8) { // cache_fp8.h: even columns, and the odd ones beside them
                *(float4 *)&o[t * 8 + threadIdx.x % 4 * 4] = make_float4(
                    left[0] * factor, right[0] * factor, left[1] * factor, right[1] * factor);
                continue;
            }
            *(float2 *)&o[fragment_column(t)] = make_float2(left[0], left[1]);
            *(float2 *)&o[fragment_column(t + 1)] = make_float2(right[0], right[1]);
        }
    }
}

// Four columns of one of the tile's rows, merged over the warps.
template <class Tile>
__device__ static inline Merged merge_warps(const float *o_smem, int row, int column) {
    const float2 *stats_smem = (const float2 *)(o_smem + Tile::OUTPUT_FLOATS);
    // exercise 3: begin
    float max = -CUDART_INF_F;
#pragma unroll
    for (int warp = 0; warp < Tile::KEY_WARPS; warp++)
        max = fmaxf(max, stats_smem[warp * Tile::ROWS + row].x);
    Merged merged = begin_merge(max);
#pragma unroll
    for (int warp = 0; warp < Tile::KEY_WARPS; warp++) {
        const int part = warp * Tile::ROWS + row;
        add_part(merged, part_weight(merged, stats_smem[part].x), stats_smem[part].y,
                 *(const float4 *)&o_smem[part * Tile::OUTPUT_STRIDE + column]);
    }
    // exercise 3: end
    return merged;
}

// The tile's rows → O and lse, or this split's parts of them → the workspace.
template <typename T, class Tile>
__device__ static inline void store_rows(const float *o_smem, const Attention &a, const Work &work,
                                         const Plan &plan, const Partials &partials) {
    const int HEAD_DIM = Tile::HEAD_DIM, LANES = HEAD_DIM / 4; // of a row
    for (int i = threadIdx.x; i < work.rows * LANES; i += Tile::THREADS) {
        const int row = i / LANES, column = i % LANES * 4;
        const Merged merged = merge_warps<Tile>(o_smem, row, column);
        const RowPlace place = row_place(a, work, plan.group, row);
        if (plan.splits == 1) {
            const int head = work.first_head + (work.first_row + row) % plan.group;
            store_row<T>(a, merged, place.lse, place.o * HEAD_DIM, head, column);
            continue;
        }
        // exercise 4: begin
        const int64_t part = place.lse * plan.splits + work.split;
        const bool empty = merged.sum == 0;
        if (!empty) *(float4 *)&partials.o[part * HEAD_DIM + column] = normalised(merged);
        if (column == 0) partials.sums[part] = make_float2(merged.max, merged.sum);
        // exercise 4: end
    }
}

// Starts copying the block of keys `key` …, and looks up the pages of the one that will be
// copied when it has arrived. The thread's own reads and copies of page_smem are all there are.
template <class Tile>
__device__ static inline void copy_block(uint16_t *buffer, int *page_smem, Row &row,
                                         const Attention &a, const Work &work, int key) {
    const int found = PAGED ? found_row<Tile::KEYS>(page_smem, row, a, work) : 0;
    copy_keys<Tile>(buffer, a, work, key, found);
    if (PAGED) look_up<Tile::KEYS>(page_smem, row, a, work);
}

// Starts the first copies: Q, and all blocks of keys but one. Q has arrived when this ends, in
// q_smem, where the last block of keys will come.
template <typename T, class Tile>
__device__ static inline void begin_copies(uint16_t *ring_smem, int *page_smem, Row &row, T *q_smem,
                                           const Attention &a, const Work &work, int group) {
    const int BUFFERS = Tile::BUFFERS;
    copy_query<T, Tile::HEAD_DIM, Tile::ROWS, Tile::THREADS>(q_smem, a, work, group);
    if (PAGED) {
        row = first_row<Tile>(a, work);
        for (int i = 0; i < BUFFERS - 1; i++)
            look_up<Tile::KEYS>(page_smem + i * Tile::THREADS, row, a, work);
    }
    cp_async_commit();
    if (PAGED) cp_async_wait<0>(); // this thread's page numbers have arrived
#pragma unroll
    for (int i = 0; i < BUFFERS - 1; i++) {
        copy_block<Tile>(ring_smem + i * 2 * Tile::KV_UNITS, page_smem + i * Tile::THREADS, row, a,
                         work, work.keys.first + i * Tile::KEYS);
        cp_async_commit();
    }
    cp_async_wait<BUFFERS - 1>(); // this thread's part of Q has arrived
    __syncthreads();              // all threads' parts of Q → all threads
    if (PAGED && a.rotary_dim > 0) {
        turn_query<T, Tile::HEAD_DIM, Tile::THREADS>(q_smem, a, work, group);
        __syncthreads(); // Q, turned → all threads
    }
}

// All of this block's keys: the ring of buffers goes round, and the warps' sums stand in registers.
template <typename T, class Tile>
__device__ static inline void attend(float (&o_reg)[Tile::HEAD_DIM / 8][4], float (&row_max)[2],
                                     float (&row_sum)[2], uint16_t *ring_smem, const Attention &a,
                                     const Work &work, int group, float score_factor) {
    const int HEAD_DIM = Tile::HEAD_DIM, KEYS = Tile::WARP_KEYS, BUFFERS = Tile::BUFFERS;
    const int BUFFER_UNITS = 2 * Tile::KV_UNITS;
    const Exponent exponent = exponent_of(a.softmax_scale * score_factor, a.softcap);
    T *q_smem = (T *)(ring_smem + Tile::QUERY_AT / 2);
    int *page_smem = (int *)(ring_smem + Tile::PAGES_AT / 2) + threadIdx.x;
    Row row; // of the next copies
    uint32_t q_reg[HEAD_DIM / 16][4];
    int token[2]; // of this lane's two rows
    begin_copies<T, Tile>(ring_smem, page_smem, row, q_smem, a, work, group);
    if (!Tile::QUERY_STAYS)
#pragma unroll
        for (int d = 0; d < HEAD_DIM; d += 16) load_query<T, Tile>(q_reg[d / 16], q_smem, d);
    for (int half = 0; half < 2; half++)
        token[half] =
            (work.first_row + warp_row<Tile>() + half * 8 + (int)threadIdx.x % 32 / 4) / group;

    const int first = key_warp<Tile>() * KEYS;      // of the warp's keys in a block
    int buffer = 0, filled = BUFFERS - 1, slot = 0; // of page numbers
    for (int key = work.keys.first; key < work.keys.end; key += Tile::KEYS) {
        // exercise 2: begin
        cp_async_wait<BUFFERS - 2>(); // this thread's part of the block has arrived
        __syncthreads(); // all threads' parts → all; and all have read the block before (or Q)
        // exercise 2: end
        PHASE("load");
        copy_block<Tile>(ring_smem + filled * BUFFER_UNITS, page_smem + slot * Tile::THREADS, row,
                         a, work, key + (BUFFERS - 1) * Tile::KEYS);
        cp_async_commit();

        const uint16_t *k_smem = ring_smem + buffer * BUFFER_UNITS,
                       *v_smem = k_smem + Tile::KV_UNITS;
        float s_reg[KEYS / 8][4] = {};
        PHASE("products");
        if constexpr (Tile::FP8)
            multiply_query_key_fp8<T, Tile>(s_reg, q_reg, q_smem, k_smem, first);
        else
            multiply_query_key<T, Tile>(s_reg, q_reg, q_smem, (const T *)k_smem, first);
        if (!exponent.plain) adjust_fragments<KEYS>(s_reg, exponent);
        mask_keys<KEYS>(s_reg, a, work, token, key + first);
        update_softmax<HEAD_DIM, KEYS>(s_reg, o_reg, row_max, row_sum, exponent.factor);
        if constexpr (Tile::FP8)
            add_weighted_values_fp8<T, HEAD_DIM, KEYS>(o_reg, s_reg, v_smem, first);
        else
            add_weighted_values<T, HEAD_DIM, KEYS>(o_reg, s_reg, (const T *)v_smem, first);
        filled = buffer;
        buffer = buffer + 1 < BUFFERS ? buffer + 1 : 0;
        slot = slot + 1 < BUFFERS - 1 ? slot + 1 : 0;
    }
    cp_async_wait<0>(); // nothing is under way any more
    __syncthreads();    // and all have read: the buffers are free
}

// What a number of K or V in the tile stands for, times itself: 1, or the scale of its sequence and
// head, and what the way to 16 bits took off.
template <typename T, class Tile>
__device__ static inline float number_factor(const float *scale, const Attention &a,
                                             const Work &work) {
    if (!Tile::FP8) return 1;
    return scale[(int64_t)work.batch * a.kv_heads + work.kv_head] * widened_factor<T>();
}

template <typename T, class Tile>
__global__ void __launch_bounds__(Tile::THREADS, Tile::BLOCKS_PER_SM)
    DECODE_KERNEL(const Attention a, const Plan plan, const Partials partials) {
    extern __shared__ uint4 smem[];
    const Work work = work_of(a, plan, Tile::ROWS, Tile::KEYS);
    float o_reg[Tile::HEAD_DIM / 8][4] = {};
    float row_max[2] = {-CUDART_INF_F, -CUDART_INF_F}, row_sum[2] = {}; // m log2(e); this lane's l
    if (work.keys.first < work.keys.end)
        attend<T, Tile>(o_reg, row_max, row_sum, (uint16_t *)smem, a, work, plan.group,
                        number_factor<T, Tile>(a.k_scale, a, work));
    PHASE("epilogue");
    float *o_smem = (float *)smem;
    leave_sums<Tile>(o_smem, o_reg, row_max, row_sum, number_factor<T, Tile>(a.v_scale, a, work));
    __syncthreads(); // the warps' sums → all threads
#if CLUSTER
    merge_cluster<T, Tile>(o_smem, a, work, plan);
#else
    store_rows<T, Tile>(o_smem, a, work, plan, partials);
#endif
}

#include "launch.h"

#endif
