// Chapter 4, step recompute-tensor-cores: `recompute` with its five products on tensor cores, which
// is FlashAttention-2's backward. fp16 and bf16, head_dim 64 and 128.
//
// A block of eight warps owns 128 keys, 16 a warp. S and dP are computed the other way round:
//
//   Sᵀ = K Qᵀ    dPᵀ = V dOᵀ      16 keys x ROWS query rows in a warp's registers
//   dV += Pᵀ dO  dK += dSᵀ Q      Pᵀ and dSᵀ are already where A fragments have to be
//   dQ  = dS K                    sums over all keys: dSᵀ goes through shared memory
//
// so P never leaves its registers, and a warp's dK and dV belong to no other warp. While a tile of
// Q and dO is worked on, cp.async brings the next one.
#include "recompute_tensor_cores.h"

#include "../03_online_softmax/cp_async.h"
#include "device/exp2.h"
#include "recompute_workspace.h"
#include "tensor_tile.h"

static const int WARPS = 8, THREADS = 32 * WARPS;
static const int KEYS = 16 * WARPS;

template <int HEAD_DIM> struct TensorTile {
    static constexpr int ROWS =
        HEAD_DIM <= 64 ? 64 : 32; // query rows; more would not fit registers
    // The warps' shares of the dQ tile: 16 rows x COLUMNS each.
    static constexpr int ROW_GROUPS = ROWS / 16;
    static constexpr int COLUMNS = HEAD_DIM / (WARPS / ROW_GROUPS);
    static constexpr int KEY_NUMBERS = KEYS * HEAD_DIM, ROW_NUMBERS = ROWS * HEAD_DIM;
    // K, V; Q and dO twice, for this tile and the next; dSᵀ. Then a row's three numbers, twice.
    static constexpr int BYTES =
        (2 * KEY_NUMBERS + 4 * ROW_NUMBERS + KEYS * ROWS) * 2 + 2 * 3 * ROWS * (int)sizeof(float);
    static_assert(BYTES <= (HEAD_DIM <= 64 ? 99 : 163) * 1024, "must fit in shared memory");
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

// What the loop over query tiles and heads needs to know.
template <typename T> struct LoopWork {
    int batch, kv_head, group; // query heads that share the K/V head
    int64_t first_key;
    int64_t first_tile, tiles; // of query rows, in each head

    __device__ inline int head(int64_t step) const {
        return kv_head * group + (int)((uint32_t)step / (uint32_t)tiles);
    }
    __device__ inline int64_t tile(int64_t step) const {
        return first_tile + (uint32_t)step % (uint32_t)tiles;
    }
};

// A tile of query rows in shared memory, as one step of the loop uses it.
template <typename T> struct RowTile {
    T *q_smem, *dout_smem;
    TwoFloats *lse_smem; // in units of log 2
    float *row_dots_smem;
};

// Starts to bring the tile of a step: Q and dO by cp.async, lse and D by hand. Rows past the last,
// and rows that see no key (lse = -inf), get lse = +inf: P = 2^-inf = 0.
template <typename T, int HEAD_DIM>
__device__ static inline void fetch_row_tile(const RowTile<T> &tile, const Attention &a,
                                             const RecomputeWorkspace &w, const LoopWork<T> &work,
                                             int64_t step) {
    const int ROWS = TensorTile<HEAD_DIM>::ROWS;
    const int head = work.head(step);
    const int64_t first_row = work.tile(step) * ROWS;
    copy_tile<T, ROWS, HEAD_DIM, THREADS>(
        tile.q_smem, head_rows<T>(a.q, work.batch, head, a.seqlen_q, a.heads, HEAD_DIM), first_row);
    copy_tile<T, ROWS, HEAD_DIM, THREADS>(
        tile.dout_smem, head_rows<T>(a.dout, work.batch, head, a.seqlen_q, a.heads, HEAD_DIM),
        first_row);
    const int64_t row = first_row + threadIdx.x;
    if (threadIdx.x >= ROWS) return;
    TwoFloats lse = {CUDART_INF_F, 0};
    float row_dot = 0;
    if (row < a.seqlen_q) {
        const int64_t at = vector_offset(work.batch, head, row, a.heads, a.seqlen_q);
        if (a.lse[at] != -CUDART_INF_F) lse = to_base_2(a.lse[at], w.lse_rest[at]);
        row_dot = w.row_dots[at];
    }
    tile.lse_smem[threadIdx.x] = lse;
    tile.row_dots_smem[threadIdx.x] = row_dot;
}

// c = left rightᵀ: the warp's 16 keys, all query rows of the tile.
template <typename T, int HEAD_DIM>
__device__ static inline void multiply_keys(Accumulator<TensorTile<HEAD_DIM>::ROWS> &c,
                                            const T *key_smem, const T *row_smem, int warp_key) {
#pragma unroll
    for (int d = 0; d < HEAD_DIM; d += 16) {
        uint32_t a[4];
        load_a<HEAD_DIM>(a, key_smem, warp_key, d);
#pragma unroll
        for (int row = 0; row < TensorTile<HEAD_DIM>::ROWS; row += 16) {
            uint32_t b[4];
            load_b<HEAD_DIM>(b, row_smem, d, row);
            multiply_add<T>(c, a, b, row);
        }
    }
}

// c += weightsᵀ rows: the weights from registers, 16 keys x the query rows of the tile.
template <typename T, int HEAD_DIM>
__device__ static inline void add_weighted_rows(
    Accumulator<HEAD_DIM> &c, const Accumulator<TensorTile<HEAD_DIM>::ROWS> &weights,
    const T *row_smem) {
#pragma unroll
    for (int row = 0; row < TensorTile<HEAD_DIM>::ROWS; row += 16) {
        uint32_t a[4];
        accumulator_to_a<T>(a, weights, row);
#pragma unroll
        for (int d = 0; d < HEAD_DIM; d += 16) {
            uint32_t b[4];
            load_b_transposed<HEAD_DIM>(b, row_smem, row, d);
            multiply_add<T>(c, a, b, d);
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

// From the products: s becomes Pᵀ = e^(Sᵀ - lse), dp becomes dSᵀ = Pᵀ ∘ (dPᵀ - D), with the cap's
// slope 1 - tanh².
template <typename T, int HEAD_DIM>
__device__ static inline void differentiate_softmax(Accumulator<TensorTile<HEAD_DIM>::ROWS> &s,
                                                    Accumulator<TensorTile<HEAD_DIM>::ROWS> &dp,
                                                    const Attention &a, const RowTile<T> &tile,
                                                    int64_t first_row, int64_t first_key,
                                                    int warp_key) {
    const int ROWS = TensorTile<HEAD_DIM>::ROWS;
    const Exponent exponent = exponent_of(a.softmax_scale, a.softcap);
    if (!exponent.plain)
#pragma unroll
        for (int n = 0; n < ROWS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) s.number[n][i] = adjusted(s.number[n][i], exponent);

    // The cap's slope goes into dP - D, where P = 0 cannot make it harmless: so before the mask.
    const int pair = threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < ROWS / 8; n++) {
        const float2 row_dots = *(const float2 *)&tile.row_dots_smem[n * 8 + pair];
#pragma unroll
        for (int i = 0; i < 4; i++) dp.number[n][i] -= i % 2 ? row_dots.y : row_dots.x;
    }
    if (exponent.capped)
#pragma unroll
        for (int n = 0; n < ROWS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) dp.number[n][i] *= fmaf(-s.number[n][i], s.number[n][i], 1);

    const int64_t last_row = min(first_row + ROWS, a.seqlen_q) - 1;
    const KeyRange all = keys_seen_by_all(first_row, last_row, a.seqlen_q, a.seqlen_k,
                                          a.window_left, a.window_right);
    if (first_key < all.begin || first_key + KEYS > all.end)
        mask_pair<ROWS>(s, dp, a, first_row, first_key + warp_key + threadIdx.x % 32 / 4);

#pragma unroll
    for (int n = 0; n < ROWS / 8; n++) {
        const float4 lse = *(const float4 *)&tile.lse_smem[n * 8 + pair]; // of two rows
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float high = i % 2 ? lse.z : lse.x, low = i % 2 ? lse.w : lse.y;
            s.number[n][i] = exp2_approximate(fmaf(s.number[n][i], exponent.factor, -high) - low);
            dp.number[n][i] *= s.number[n][i];
        }
    }
}

// This warp's piece of dQ = dS K, added to the sums of a tile of rows.
template <typename T, int HEAD_DIM>
__device__ static inline void add_to_dq(float *sums, const T *ds_smem, const T *k_smem,
                                        int64_t first_row) {
    using Tile = TensorTile<HEAD_DIM>;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = warp % Tile::ROW_GROUPS * 16, column = warp / Tile::ROW_GROUPS * Tile::COLUMNS;
    Accumulator<Tile::COLUMNS> dq = {};
#pragma unroll
    for (int key = 0; key < KEYS; key += 16) {
        uint32_t a[4];
        load_a_transposed<Tile::ROWS>(a, ds_smem, row, key);
#pragma unroll
        for (int n = 0; n < Tile::COLUMNS; n += 16) {
            uint32_t b[4];
            load_b_transposed<HEAD_DIM>(b, k_smem, key, column + n);
            multiply_add<T>(dq, a, b, n);
        }
    }
    sums += ((first_row + row) / 16 * (HEAD_DIM / 8) + column / 8) * 128 + lane;
#pragma unroll
    for (int n = 0; n < Tile::COLUMNS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) atomicAdd(&sums[n * 128 + i * 32], dq.number[n][i]);
}

// dK or dV of the block through shared memory to their rows, so that whole sectors are written.
template <typename T, int HEAD_DIM>
__device__ static inline void store_keys(void *out, T *tile_smem, const Attention &a,
                                         const LoopWork<T> &work, const Accumulator<HEAD_DIM> &c,
                                         float factor) {
    accumulator_to_tile<T, HEAD_DIM>(tile_smem, threadIdx.x / 32 * 16, 0, c, factor);
    __syncthreads(); // every warp's keys → all threads
    T *head = (T *)out + row_offset(work.batch, 0, work.kv_head, a.seqlen_k, a.kv_heads, HEAD_DIM);
    store_tile<T, KEYS, HEAD_DIM, THREADS>(head, (int64_t)a.kv_heads * HEAD_DIM, work.first_key,
                                           a.seqlen_k, tile_smem);
}

template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(THREADS)
    recompute_backward_tensor(const Attention a, const RecomputeWorkspace w) {
    using Tile = TensorTile<HEAD_DIM>;
    extern __shared__ uint4 smem[];
    T *k_smem = (T *)smem;
    T *v_smem = k_smem + Tile::KEY_NUMBERS;
    T *rows_smem = v_smem + Tile::KEY_NUMBERS; // Q, dO, and those of the next step
    T *ds_smem = rows_smem + 4 * Tile::ROW_NUMBERS;
    float *numbers_smem = (float *)(ds_smem + KEYS * Tile::ROWS);
    const auto row_tile = [&](int64_t step) {
        T *tile = rows_smem + step % 2 * 2 * Tile::ROW_NUMBERS;
        float *numbers = numbers_smem + step % 2 * 3 * Tile::ROWS;
        return RowTile<T>{tile, tile + Tile::ROW_NUMBERS, (TwoFloats *)numbers,
                          numbers + 2 * Tile::ROWS};
    };

    const BlockWork block = block_work(block_place(a, w), tiles_of(a.seqlen_k, KEYS), a.kv_heads);
    LoopWork<T> work;
    work.batch = block.batch;
    work.kv_head = block.head;
    work.group = a.heads / a.kv_heads;
    work.first_key = block.tile * KEYS;
    const int64_t last_key = min(work.first_key + KEYS, a.seqlen_k) - 1;
    const KeyRange rows = rows_seeing_any(work.first_key, last_key, a.seqlen_q, a.seqlen_k,
                                          a.window_left, a.window_right);
    work.first_tile = rows.begin / Tile::ROWS;
    work.tiles = max(tiles_of(rows.end, Tile::ROWS) - work.first_tile, (int64_t)0);
    const int64_t steps = work.tiles * work.group;
    const int warp_key = threadIdx.x / 32 * 16;

    copy_tile<T, KEYS, HEAD_DIM, THREADS>(
        k_smem, head_rows<T>(a.k, work.batch, work.kv_head, a.seqlen_k, a.kv_heads, HEAD_DIM),
        work.first_key);
    copy_tile<T, KEYS, HEAD_DIM, THREADS>(
        v_smem, head_rows<T>(a.v, work.batch, work.kv_head, a.seqlen_k, a.kv_heads, HEAD_DIM),
        work.first_key);
    if (steps > 0) fetch_row_tile<T, HEAD_DIM>(row_tile(0), a, w, work, 0);
    cp_async_commit();

    Accumulator<HEAD_DIM> dk = {}, dv = {};
    for (int64_t step = 0; step < steps; step++) {
        const RowTile<T> tile = row_tile(step);
        const int64_t first_row = work.tile(step) * Tile::ROWS;
        const int64_t head_index = (int64_t)work.batch * a.heads + work.head(step);
        cp_async_wait<0>();
        __syncthreads(); // every thread's copies of this step → all; the step before is done with
                         // the other buffer and with dS
        if (step + 1 < steps) fetch_row_tile<T, HEAD_DIM>(row_tile(step + 1), a, w, work, step + 1);
        cp_async_commit();

        Accumulator<Tile::ROWS> s = {}, dp = {};
        multiply_keys<T, HEAD_DIM>(s, k_smem, tile.q_smem, warp_key);     // Sᵀ  = K Qᵀ
        multiply_keys<T, HEAD_DIM>(dp, v_smem, tile.dout_smem, warp_key); // dPᵀ = V dOᵀ
        differentiate_softmax<T, HEAD_DIM>(s, dp, a, tile, first_row, work.first_key, warp_key);
        add_weighted_rows<T, HEAD_DIM>(dv, s, tile.dout_smem); // dV += Pᵀ dO
        add_weighted_rows<T, HEAD_DIM>(dk, dp, tile.q_smem);   // dK += dSᵀ Q
        accumulator_to_tile<T, Tile::ROWS>(ds_smem, warp_key, 0, dp, 1);
        __syncthreads(); // every warp's keys of dSᵀ → all warps

        unsigned *turns = w.turns + head_index * w.row_tiles + work.tile(step);
        const unsigned turn =
            a.deterministic ? turn_of<Tile::ROWS, KEYS>(a, first_row, work.first_key) : 0;
        if (a.deterministic) turn_wait(turns, turn); // the tiles of keys before have added
        add_to_dq<T, HEAD_DIM>(w.dq_sums + head_index * w.padded_rows * HEAD_DIM, ds_smem, k_smem,
                               first_row); // dQ += dS K
        if (a.deterministic) turn_end(turns, turn);
    }
    cp_async_wait<0>(); // of a block without steps: K and V
    __syncthreads();    // all warps have read K (V: a step ago): dK and dV may take their places
    store_keys<T, HEAD_DIM>(a.dk, k_smem, a, work, dk, a.softmax_scale);
    store_keys<T, HEAD_DIM>(a.dv, v_smem, a, work, dv, 1);
}

template <typename T, int HEAD_DIM> static cudaError_t launch_tensor(const Attention *a) {
    using Tile = TensorTile<HEAD_DIM>;
    const RecomputeWorkspace w = recompute_workspace(a, Tile::ROWS);
    const int64_t blocks = tiles_of(a->seqlen_k, KEYS) * a->batch * a->kv_heads;
    return launch_recompute<T, HEAD_DIM, FragmentLayout<HEAD_DIM>>(a, w, [&] {
        if (blocks == 0) return cudaSuccess; // no keys, no dK and dV
        const auto kernel = recompute_backward_tensor<T, HEAD_DIM>;
        const cudaError_t error = allow_shared_memory(kernel, Tile::BYTES);
        if (error != cudaSuccess) return error;
        kernel<<<(unsigned)blocks, THREADS, Tile::BYTES, a->stream>>>(*a, w);
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
    return recompute_workspace(a, tile_rows(a)).bytes;
}

static size_t forward_workspace(const Attention *a) {
    return lse_rest_bytes(a);
}

static cudaError_t forward(const Attention *a) {
    Attention with_rest = *a;
    with_rest.lse_rest = recompute_workspace(a, tile_rows(a)).lse_rest;
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
