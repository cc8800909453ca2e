// Chapter 4, step recompute-tensor-cores: `recompute` with its five products on tensor cores, which
// is FlashAttention-2's backward. fp16 and bf16, head_dim 64 and 128.
//
// A block owns 128 keys, one or two strips of 16 a warp. S and dP are computed the other way round:
//
//   Sᵀ = K Qᵀ    dPᵀ = V dOᵀ      a warp's keys x PART query rows in its registers
//   dV += Pᵀ dO  dK += dSᵀ Q      Pᵀ and dSᵀ are already where A fragments have to be
//   dQ  = dS K                    sums over all keys: dSᵀ goes through shared memory
//
// so P never leaves its registers, and a warp's dK and dV belong to no other warp. While a tile of
// Q and dO is worked on, cp.async brings the next one.
//
// What limits is how often a fragment is used that ldmatrix has fetched: an x4 takes shared memory
// four clocks and serves two mma.sync, which take the tensor cores four. With two strips of keys
// every fragment of Q and dO serves both, and dQ's tiles of 32 x 32 use theirs twice as well. At
// head_dim 64 there is room for that: a block is four warps of 255 registers, and an SM holds two,
// so that one's products run while the other is at its softmax or waits at a barrier.
#include "recompute_tensor_cores.h"

#include "../03_online_softmax/cp_async.h"
#include "device/exp2.h"
#include "recompute_workspace.h"
#include "tensor_tile.h"

static const int KEYS = 128;

template <int HEAD_DIM> struct TensorTile {
    static constexpr int STRIPS = HEAD_DIM <= 64 ? 2 : 1; // of 16 keys, a warp's
    static constexpr int WARPS = KEYS / 16 / STRIPS, THREADS = 32 * WARPS;
    static constexpr int BLOCKS_PER_SM = STRIPS;
    // Query rows of a tile, and of the part of it whose S and dP are in registers at a time.
    static constexpr int ROWS = HEAD_DIM <= 64 ? 64 : 32, PART = 32;
    // The warps' shares of the dQ tile: 16 DQ_STRIPS rows x COLUMNS each.
    static constexpr int DQ_STRIPS = STRIPS;
    static constexpr int ROW_GROUPS = ROWS / 16 / DQ_STRIPS;
    static constexpr int COLUMNS = HEAD_DIM / (WARPS / ROW_GROUPS);
    static constexpr int KEY_NUMBERS = KEYS * HEAD_DIM, ROW_NUMBERS = ROWS * HEAD_DIM;
    // K, V; Q and dO twice, for this tile and the next; dSᵀ. Then a row's three numbers.
    static constexpr int BYTES =
        (2 * KEY_NUMBERS + 4 * ROW_NUMBERS + KEYS * ROWS) * 2 + 3 * ROWS * (int)sizeof(float);
    static_assert(BYTES <= (HEAD_DIM <= 64 ? 99 : 163) * 1024, "must fit in shared memory");
    // 164 KB an SM of an A100, of which the system takes 1 KB a block.
    static_assert(BLOCKS_PER_SM * (BYTES + 1024) <= 164 * 1024,
                  "as many blocks as registers allow");
};

// Where dQ's sums lie among those of a tile of rows: fragment by fragment, and in a fragment as the warp
// holds it. Each of the four atomics of a fragment then adds to 32 neighbours, 128 bytes.
template <int HEAD_DIM> struct FragmentLayout {
    __device__ static inline int position(int row, int column) {
        const int fragment = row / 16 * (HEAD_DIM / 8) + column / 8;
        const int lane = row % 8 * 4 + column % 8 / 2;
        const int number = row % 16 / 8 * 2 + column % 2;
        return fragment * 128 + number * 32 + lane;
    }
};

// What a block works on: a tile of keys of one K/V head, with a tile of query rows at a time.
typedef struct {
    int batch, kv_head;
    int64_t first_key;
    int first_tile, end_tile;   // of the query rows that see any of the keys, in each head
    int first_plain, end_plain; // of those that see all of them: they need no mask
} KeyWork;

template <int ROWS>
__device__ static inline KeyWork key_work(const Attention &a, const RecomputeWorkspace &w) {
    const BlockWork block = block_work(block_place(a, w), tiles_of(a.seqlen_k, KEYS), a.kv_heads);
    KeyWork work;
    work.batch = block.batch;
    work.kv_head = block.head;
    work.first_key = block.tile * KEYS;
    const int64_t last_key = min(work.first_key + KEYS, a.seqlen_k) - 1;
    const KeyRange first =
        seeing_rows(work.first_key, a.seqlen_q, a.seqlen_k, a.window_left, a.window_right);
    const KeyRange last =
        seeing_rows(last_key, a.seqlen_q, a.seqlen_k, a.window_left, a.window_right);
    work.first_tile = (int)(first.begin / ROWS); // both ends grow with the key
    work.end_tile = (int)tiles_of(last.end, ROWS);
    work.first_plain = (int)tiles_of(last.begin, ROWS);
    work.end_plain = (int)(first.end == a.seqlen_q ? tiles_of(first.end, ROWS) : first.end / ROWS);
    if (work.first_key + KEYS > a.seqlen_k) work.end_plain = 0;
    // Found once: the empty asm keeps the compiler from finding them again in each step.
    asm("" : "+r"(work.end_tile), "+r"(work.first_plain), "+r"(work.end_plain));
    return work;
}

// A step: a tile of query rows of one of the heads that share the K/V head. Its places are kept,
// not found again: 64-bit products would cost more than the copies that they are for.
typedef struct {
    int head, tile;
    int64_t from;       // of the tile's first row, in Q and dO
    int64_t padded_row; // the same among all heads' padded rows: where its numbers and sums lie
} RowStep;

template <int HEAD_DIM>
__device__ static inline RowStep first_step_of(const Attention &a, const RecomputeWorkspace &w,
                                               const KeyWork &work, int head) {
    const int64_t row = (int64_t)work.first_tile * TensorTile<HEAD_DIM>::ROWS;
    RowStep step;
    step.head = head;
    step.tile = work.first_tile;
    step.from = row_offset(work.batch, row, head, a.seqlen_q, a.heads, HEAD_DIM);
    step.padded_row = ((int64_t)work.batch * a.heads + head) * w.padded_rows + row;
    return step;
}

template <int HEAD_DIM>
__device__ static inline void advance(RowStep &step, const Attention &a,
                                      const RecomputeWorkspace &w, const KeyWork &work) {
    const int ROWS = TensorTile<HEAD_DIM>::ROWS;
    step.tile++;
    step.from += (int64_t)a.heads * (ROWS * HEAD_DIM);
    step.padded_row += ROWS;
    if (step.tile == work.end_tile) step = first_step_of<HEAD_DIM>(a, w, work, step.head + 1);
}

// Starts to bring a step's tiles of Q and dO.
template <typename T, int HEAD_DIM>
__device__ static inline void copy_row_tiles(T *tiles_smem, const Attention &a,
                                             const RowStep &step) {
    using Tile = TensorTile<HEAD_DIM>;
    HeadRows<T> rows = {(const T *)a.q + step.from, (int64_t)a.heads * HEAD_DIM,
                        a.seqlen_q - (int64_t)step.tile * Tile::ROWS};
    copy_tile<T, Tile::ROWS, HEAD_DIM, Tile::THREADS>(tiles_smem, rows, 0);
    rows.first = (const T *)a.dout + step.from;
    copy_tile<T, Tile::ROWS, HEAD_DIM, Tile::THREADS>(tiles_smem + Tile::ROW_NUMBERS, rows, 0);
}

// Starts to bring lse and D of a step's rows, as prepare_backward left them.
template <int HEAD_DIM>
__device__ static inline void copy_row_numbers(TwoFloats *lse_smem, float *row_dots_smem,
                                               const RecomputeWorkspace &w, int64_t padded_row) {
    const int ROWS = TensorTile<HEAD_DIM>::ROWS;
    const int i = threadIdx.x, lse_pieces = ROWS / 2, dot_pieces = ROWS / 4; // of 16 bytes
    if (i < lse_pieces)
        cp_async16(lse_smem + i * 2, w.lse_base_2 + padded_row + i * 2);
    else if (i < lse_pieces + dot_pieces)
        cp_async16(row_dots_smem + (i - lse_pieces) * 4,
                   w.row_dots + padded_row + (i - lse_pieces) * 4);
}

// This lane's places in the operands of ldmatrix (tensor_tile.h: rows first, columns first), found
// once, too.
typedef struct {
    int rows_first, columns_first;
} Lanes;

template <int COLUMNS> __device__ static inline Lanes lanes_of(int row, int column) {
    Lanes lanes = {rows_first<COLUMNS>(row, column), columns_first<COLUMNS>(row, column)};
    asm("" : "+r"(lanes.rows_first), "+r"(lanes.columns_first));
    return lanes;
}

// c += left rightᵀ over columns d … d + 15: the warp's keys, which begin at key_smem, and PART
// query rows.
template <typename T, int HEAD_DIM, int STRIPS, int PART>
__device__ static inline void multiply_columns(Accumulator<PART> (&c)[STRIPS], const T *key_smem,
                                               const T *row_smem, const Lanes &lanes, int d) {
    uint32_t a[STRIPS][4];
#pragma unroll
    for (int strip = 0; strip < STRIPS; strip++)
        load_matrix_x4(a[strip], &key_smem[lane_row_at(HEAD_DIM, lanes.rows_first, strip * 16, d)]);
#pragma unroll
    for (int row = 0; row < PART; row += 16) {
        uint32_t b[4];
        load_matrix_x4(b, &row_smem[lane_row_at(HEAD_DIM, lanes.columns_first, row, d)]);
#pragma unroll
        for (int strip = 0; strip < STRIPS; strip++) multiply_add<T>(c[strip], a[strip], b, row);
    }
}

template <typename T, int HEAD_DIM, int STRIPS, int PART>
__device__ static inline void multiply_keys(Accumulator<PART> (&c)[STRIPS], const T *key_smem,
                                            const T *row_smem, const Lanes &lanes) {
#pragma unroll
    for (int d = 0; d < HEAD_DIM; d += 16)
        multiply_columns<T, HEAD_DIM>(c, key_smem, row_smem, lanes, d);
}

// c += weightsᵀ rows: the weights from registers, the warp's keys x PART query rows.
template <typename T, int HEAD_DIM, int STRIPS, int PART>
__device__ static inline void add_weighted_rows(Accumulator<HEAD_DIM> (&c)[STRIPS],
                                                const Accumulator<PART> (&weights)[STRIPS],
                                                const T *row_smem, const Lanes &lanes) {
#pragma unroll
    for (int row = 0; row < PART; row += 16) {
        uint32_t a[STRIPS][4];
#pragma unroll
        for (int strip = 0; strip < STRIPS; strip++)
            accumulator_to_a<T>(a[strip], weights[strip], row);
#pragma unroll
        for (int d = 0; d < HEAD_DIM; d += 16) {
            uint32_t b[4];
            load_matrix_x4_transposed(b,
                                      &row_smem[lane_row_at(HEAD_DIM, lanes.rows_first, row, d)]);
#pragma unroll
            for (int strip = 0; strip < STRIPS; strip++) multiply_add<T>(c[strip], a[strip], b, d);
        }
    }
}

// What the mask, or the end of the keys, forbids had no part in the forward: -inf as a score, and
// nothing as dP. A lane's keys are first_key + group and eight further, its rows pairs of each eight.
template <int ROWS>
__device__ static inline void mask_pair(Accumulator<ROWS> &s, Accumulator<ROWS> &dp,
                                        const Attention &a, int64_t first_row, int64_t lane_key) {
    const int pair = threadIdx.x % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int64_t key = lane_key + half * 8;
        KeyRange rows = {0, 0};
        if (key < a.seqlen_k)
            rows = seeing_rows(key, a.seqlen_q, a.seqlen_k, a.window_left, a.window_right);
        // Counted from this tile's first row they are small: 32-bit comparisons do.
        const int begin = (int)min(max(rows.begin - first_row, (int64_t)0), (int64_t)ROWS);
        const int end = (int)min(max(rows.end - first_row, (int64_t)0), (int64_t)ROWS);
#pragma unroll
        for (int n = 0; n < ROWS / 8; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int row = n * 8 + pair + i;
                if (begin <= row && row < end) continue;
                s.number[n][half * 2 + i] = -CUDART_INF_F;
                dp.number[n][half * 2 + i] = 0;
            }
    }
}

// What dPᵀ's products are added to: -D, so that dP - D comes out of the tensor cores.
template <int PART, int STRIPS>
__device__ static inline void start_with_row_dots(Accumulator<PART> (&dp)[STRIPS],
                                                  const float *row_dots_smem) {
#pragma unroll
    for (int n = 0; n < PART / 8; n++) {
        const float2 row_dots = *(const float2 *)&row_dots_smem[n * 8 + threadIdx.x % 4 * 2];
#pragma unroll
        for (int strip = 0; strip < STRIPS; strip++)
#pragma unroll
            for (int i = 0; i < 4; i++) dp[strip].number[n][i] = -(i % 2 ? row_dots.y : row_dots.x);
    }
}

// s becomes Pᵀ = e^(Sᵀ - lse), for eight query rows.
template <int PART, int STRIPS>
__device__ static inline void exponentiate(Accumulator<PART> (&s)[STRIPS],
                                           const TwoFloats *lse_smem, float factor, int row) {
    const float4 lse = *(const float4 *)&lse_smem[row + threadIdx.x % 4 * 2]; // of two rows
#pragma unroll
    for (int strip = 0; strip < STRIPS; strip++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float high = i % 2 ? lse.z : lse.x, low = i % 2 ? lse.w : lse.y;
            float &x = s[strip].number[row / 8][i];
            x = exp2_approximate(fmaf(x, factor, -high) - low);
        }
}

// What lies between the products and the exponential where scores aren't plain: a scale that isn't
// positive, the cap, with its slope 1 - tanh² as a factor of dP - D, and then the mask.
template <int PART>
__device__ static inline void adjust_scores(Accumulator<PART> &s, Accumulator<PART> &dp,
                                            const Attention &a, int64_t first_row,
                                            int64_t strip_key, bool masked) {
    float softcap = a.softcap;
    asm volatile("" : "+f"(softcap)); // found here, where it is rare, not kept in registers
    const Exponent exponent = exponent_of(a.softmax_scale, softcap);
#pragma unroll
    for (int n = 0; n < PART / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float x = adjusted(s.number[n][i], exponent);
            s.number[n][i] = x;
            // P = 0 cannot make dP harmless, so the cap comes before the mask.
            if (exponent.capped) dp.number[n][i] *= fmaf(-x, x, 1);
        }
    if (masked) mask_pair<PART>(s, dp, a, first_row, strip_key + threadIdx.x % 32 / 4);
}

// This warp's piece of dQ = dS K, added to the sums of a tile of rows.
template <typename T, int HEAD_DIM>
__device__ static inline void add_to_dq(float *sums, const T *ds_smem, const T *k_smem) {
    using Tile = TensorTile<HEAD_DIM>;
    const int STRIPS = Tile::DQ_STRIPS;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = warp % Tile::ROW_GROUPS * STRIPS * 16;
    const int column = warp / Tile::ROW_GROUPS * Tile::COLUMNS;
    const int ds_lane = columns_first<Tile::ROWS>(0, row), k_lane = rows_first<HEAD_DIM>(0, column);
    Accumulator<Tile::COLUMNS> dq[STRIPS] = {};
#pragma unroll
    for (int key = 0; key < KEYS; key += 16) {
        uint32_t a[STRIPS][4];
#pragma unroll
        for (int strip = 0; strip < STRIPS; strip++)
            load_matrix_x4_transposed(a[strip],
                                      &ds_smem[lane_row_at(Tile::ROWS, ds_lane, key, strip * 16)]);
#pragma unroll
        for (int n = 0; n < Tile::COLUMNS; n += 16) {
            uint32_t b[4];
            load_matrix_x4_transposed(b, &k_smem[lane_row_at(HEAD_DIM, k_lane, key, n)]);
#pragma unroll
            for (int strip = 0; strip < STRIPS; strip++) multiply_add<T>(dq[strip], a[strip], b, n);
        }
    }
#pragma unroll
    for (int strip = 0; strip < STRIPS; strip++) {
        const int fragment = row / 16 + strip;
        float *to = sums + (fragment * (HEAD_DIM / 8) + column / 8) * 128 + lane;
#pragma unroll
        for (int n = 0; n < Tile::COLUMNS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) atomicAdd(&to[n * 128 + i * 32], dq[strip].number[n][i]);
    }
}

// dK or dV of the block through shared memory to their rows, so that whole sectors are written.
template <typename T, int HEAD_DIM, int STRIPS>
__device__ static inline void store_keys(void *out, T *tile_smem, const Attention &a,
                                         const KeyWork &work,
                                         const Accumulator<HEAD_DIM> (&c)[STRIPS], int warp_key,
                                         float factor) {
#pragma unroll
    for (int strip = 0; strip < STRIPS; strip++)
        accumulator_to_tile<T, HEAD_DIM>(tile_smem, warp_key + strip * 16, 0, c[strip], factor);
    __syncthreads(); // every warp's keys → all threads
    T *head = (T *)out + row_offset(work.batch, 0, work.kv_head, a.seqlen_k, a.kv_heads, HEAD_DIM);
    store_tile<T, KEYS, HEAD_DIM, TensorTile<HEAD_DIM>::THREADS>(
        head, (int64_t)a.kv_heads * HEAD_DIM, work.first_key, a.seqlen_k, tile_smem);
}

template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(TensorTile<HEAD_DIM>::THREADS,
                                  TensorTile<HEAD_DIM>::BLOCKS_PER_SM)
    recompute_backward_tensor(const Attention a, const RecomputeWorkspace w) {
    using Tile = TensorTile<HEAD_DIM>;
    const int STRIPS = Tile::STRIPS, ROWS = Tile::ROWS, PART = Tile::PART;
    extern __shared__ uint4 smem[];
    T *k_smem = (T *)smem;
    T *v_smem = k_smem + Tile::KEY_NUMBERS;
    T *rows_smem = v_smem + Tile::KEY_NUMBERS; // Q, dO, and those of the next step
    T *ds_smem = rows_smem + 4 * Tile::ROW_NUMBERS;
    TwoFloats *lse_smem = (TwoFloats *)(ds_smem + KEYS * ROWS);
    float *row_dots_smem = (float *)(lse_smem + ROWS);

    const KeyWork work = key_work<ROWS>(a, w);
    const int group = a.heads / a.kv_heads;
    const int warp_key = threadIdx.x / 32 * 16 * STRIPS;

    copy_tile<T, KEYS, HEAD_DIM, Tile::THREADS>(
        k_smem, head_rows<T>(a.k, work.batch, work.kv_head, a.seqlen_k, a.kv_heads, HEAD_DIM),
        work.first_key);
    copy_tile<T, KEYS, HEAD_DIM, Tile::THREADS>(
        v_smem, head_rows<T>(a.v, work.batch, work.kv_head, a.seqlen_k, a.kv_heads, HEAD_DIM),
        work.first_key);
    int steps = max(work.end_tile - work.first_tile, 0) * group;
    RowStep next = first_step_of<HEAD_DIM>(a, w, work, work.kv_head * group);
    if (steps > 0) {
        copy_row_tiles<T, HEAD_DIM>(rows_smem, a, next);
        copy_row_numbers<HEAD_DIM>(lse_smem, row_dots_smem, w, next.padded_row);
    }
    cp_async_commit();

    const Lanes lanes = lanes_of<HEAD_DIM>(0, 0);
    const T *k_warp = k_smem + warp_key * HEAD_DIM, *v_warp = v_smem + warp_key * HEAD_DIM;
    const Exponent exponent = exponent_of(a.softmax_scale, a.softcap);
    const float factor = exponent.factor;
    const bool plain = exponent.plain;
    Accumulator<HEAD_DIM> dk[STRIPS] = {}, dv[STRIPS] = {};
    int buffer = 0;
    for (; steps > 0; steps--) {
        const T *q_smem = rows_smem + buffer * 2 * Tile::ROW_NUMBERS;
        const T *dout_smem = q_smem + Tile::ROW_NUMBERS;
        const int head = next.head, row_tile = next.tile;
        const int64_t first_row = (int64_t)row_tile * ROWS;
        cp_async_wait<0>();
        __syncthreads(); // every thread's copies of this step → all; the step before is done with
                         // the other buffer and with dS
        buffer ^= 1;
        if (steps > 1) {
            advance<HEAD_DIM>(next, a, w, work);
            copy_row_tiles<T, HEAD_DIM>(rows_smem + buffer * 2 * Tile::ROW_NUMBERS, a, next);
        }
        cp_async_commit();

        const bool masked = row_tile < work.first_plain || row_tile >= work.end_plain;
#pragma unroll
        for (int part = 0; part < ROWS; part += PART) {
            const T *q_part = q_smem + part * HEAD_DIM, *dout_part = dout_smem + part * HEAD_DIM;
            const TwoFloats *lse_part = lse_smem + part;
            Accumulator<PART> s[STRIPS] = {}, dp[STRIPS];
            multiply_keys<T, HEAD_DIM>(s, k_warp, q_part, lanes); // Sᵀ = K Qᵀ
            start_with_row_dots<PART>(dp, row_dots_smem + part);
            if (masked || !plain) {
                multiply_keys<T, HEAD_DIM>(dp, v_warp, dout_part, lanes);
#pragma unroll
                for (int strip = 0; strip < STRIPS; strip++)
                    adjust_scores<PART>(s[strip], dp[strip], a, first_row + part,
                                        work.first_key + warp_key + strip * 16, masked);
#pragma unroll
                for (int row = 0; row < PART; row += 8)
                    exponentiate<PART>(s, lse_part, factor, row);
            } else {
                // Pᵀ = e^(Sᵀ - lse) between the products of dPᵀ - D = V dOᵀ - D: what one warp
                // leaves free of the tensor cores the other takes.
#pragma unroll
                for (int d = 0; d < HEAD_DIM; d += 16) {
                    multiply_columns<T, HEAD_DIM>(dp, v_warp, dout_part, lanes, d);
                    if (d % (8 * HEAD_DIM / PART) == 0)
                        exponentiate<PART>(s, lse_part, factor, d * PART / HEAD_DIM);
                }
            }
#pragma unroll
            for (int strip = 0; strip < STRIPS; strip++) // dSᵀ = Pᵀ ∘ (dPᵀ - D)
#pragma unroll
                for (int n = 0; n < PART / 8; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++) dp[strip].number[n][i] *= s[strip].number[n][i];
            add_weighted_rows<T, HEAD_DIM>(dv, s, dout_part, lanes); // dV += Pᵀ dO
            add_weighted_rows<T, HEAD_DIM>(dk, dp, q_part, lanes);   // dK += dSᵀ Q
#pragma unroll
            for (int strip = 0; strip < STRIPS; strip++)
                accumulator_to_tile<T, ROWS>(ds_smem, warp_key + strip * 16, part, dp[strip], 1);
        }
        __syncthreads(); // every warp's keys of dSᵀ → all warps; all have read lse and D
        if (steps > 1) copy_row_numbers<HEAD_DIM>(lse_smem, row_dots_smem, w, next.padded_row);
        cp_async_commit();

        unsigned *turns = w.turns; // this step's
        unsigned turn = 0;
        if (a.deterministic) {
            turns += ((int64_t)work.batch * a.heads + head) * w.row_tiles + row_tile;
            turn = turn_of<ROWS, KEYS>(a, first_row, work.first_key);
            turn_wait(turns, turn); // the tiles of keys before have added
        }
        const int64_t head_index = (int64_t)work.batch * a.heads + head;
        add_to_dq<T, HEAD_DIM>(w.dq_sums + (head_index * w.padded_rows + first_row) * HEAD_DIM,
                               ds_smem, k_smem); // dQ += dS K
        if (a.deterministic) turn_end(turns, turn);
    }
    cp_async_wait<0>(); // of a block without steps: K and V
    __syncthreads();    // all warps have read K (V: a step ago): dK and dV may take their places
    store_keys<T, HEAD_DIM>(a.dk, k_smem, a, work, dk, warp_key, a.softmax_scale);
    store_keys<T, HEAD_DIM>(a.dv, v_smem, a, work, dv, warp_key, 1);
}

template <typename T, int HEAD_DIM> static cudaError_t launch_tensor(const Attention *a) {
    using Tile = TensorTile<HEAD_DIM>;
    const RecomputeWorkspace w = recompute_workspace(a, Tile::ROWS, true);
    const int64_t blocks = tiles_of(a->seqlen_k, KEYS) * a->batch * a->kv_heads;
    return launch_recompute<T, HEAD_DIM, FragmentLayout<HEAD_DIM>>(a, w, [&] {
        if (blocks == 0) return cudaSuccess; // no keys, no dK and dV
        const auto kernel = recompute_backward_tensor<T, HEAD_DIM>;
        const cudaError_t error = allow_shared_memory(kernel, Tile::BYTES);
        if (error != cudaSuccess) return error;
        kernel<<<(unsigned)blocks, Tile::THREADS, Tile::BYTES, a->stream>>>(*a, w);
        return cudaGetLastError();
    });
}

template <typename T> static cudaError_t launch_of(const Attention *a) {
#if BUILT_64
    if (a->head_dim == 64) return launch_tensor<T, 64>(a);
#endif
#if BUILT_128
    if (a->head_dim == 128) return launch_tensor<T, 128>(a);
#endif
    return cudaErrorInvalidValue;
}

static cudaError_t backward(const Attention *a) {
    return a->dtype == DTYPE_FP16 ? launch_of<__half>(a) : launch_of<__nv_bfloat16>(a);
}

static int tile_rows(const Attention *a) {
    return a->head_dim <= 64 ? TensorTile<64>::ROWS : TensorTile<128>::ROWS;
}

static size_t backward_workspace(const Attention *a) {
    return recompute_workspace(a, tile_rows(a), true).bytes;
}

static size_t forward_workspace(const Attention *a) {
    return lse_rest_bytes(a);
}

static cudaError_t forward(const Attention *a) {
    Attention with_rest = *a;
    with_rest.lse_rest = recompute_workspace(a, tile_rows(a), true).lse_rest;
    return cp_async_step.forward(&with_rest);
}

static const char *refuses(const Attention *a, bool backward) {
    if (a->dtype == DTYPE_FP32)
        return "recompute-tensor-cores takes fp16 and bf16; the step recompute takes fp32";
    if (a->head_dim != 64 && a->head_dim != 128)
        return "recompute-tensor-cores has head_dim 64 and 128; the step recompute has all";
    return refuses_recompute(a, backward, KEYS,
                             a->head_dim <= 64 ? TensorTile<64>::BYTES : TensorTile<128>::BYTES);
}

const Step recompute_tensor_cores_step = {
    .chapter = 4,
    .name = "recompute-tensor-cores",
    .idea = "the same with mma.sync: P stays in registers, cp.async brings the next Q and dO",
    .exhibit = false,
    .refuses = refuses,
    .forward_workspace = forward_workspace,
    .forward = forward,
    .backward_workspace = backward_workspace,
    .backward = backward,
};
