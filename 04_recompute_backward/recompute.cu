// Chapter 4, step recompute: no S and no P in HBM, forward or backward. The forward (chapter 3's
// normalise-once) leaves O and one number a row, lse = m + ln l. From it the backward gets P back
// whenever it needs it:
//
//   forward                      backward, beside the line that it differentiates
//   O = P V                      dV = Pᵀ dO           dP = dO Vᵀ
//   P = e^(S - lse)              dS = P ∘ (dP - D)    D_i = dO_i · O_i
//   S = scale * Q Kᵀ             dQ = scale * dS K    dK = scale * dSᵀ Q
//
// A block owns a tile of keys: K and V in shared memory, dK and dV in registers. It walks the query
// rows that see them, and the query heads that share them, so dK and dV are summed without a word
// to other blocks. dQ's sums go across blocks: fp32 atomics, or turns if the order must be fixed.
#include "recompute.h"

#include "../03_online_softmax/normalise_once.h"
#include "gradient_tile.h"
#include "recompute_workspace.h"

// Where dQ's sums lie among those of neighbouring rows: in each run of 32 columns those first that
// are the first of their four, then the second, …, so that the eight lanes of a row add to eight
// neighbours.
template <int HEAD_DIM> struct RowLayout {
    __device__ static inline int position(int row, int column) {
        return row * HEAD_DIM + column / 32 * 32 + column % 4 * 8 + column % 32 / 4;
    }
};

// One tile of keys and the head it belongs to.
template <typename T> struct KeyWork {
    int batch, kv_head;
    int64_t first_key;
    KeyRange rows; // the query rows that see any of the keys
};

template <typename T, int HEAD_DIM>
__device__ static inline KeyWork<T> key_work(const Attention &a, unsigned place) {
    using Tile = GradientTile<HEAD_DIM>;
    const BlockWork block = block_work(place, tiles_of(a.seqlen_k, Tile::KEYS), a.kv_heads);
    KeyWork<T> work;
    work.batch = block.batch;
    work.kv_head = block.head;
    work.first_key = block.tile * Tile::KEYS;
    const int64_t last_key = min(work.first_key + Tile::KEYS, a.seqlen_k) - 1;
    work.rows = rows_seeing_any(work.first_key, last_key, a.seqlen_q, a.seqlen_k, a.window_left,
                                a.window_right);
    return work;
}

// A head's numbers, one for each query row.
struct RowNumbers {
    const float *lse, *lse_rest, *row_dots;
};

__device__ static inline RowNumbers row_numbers(const Attention &a, const RecomputeWorkspace &w,
                                                int64_t head_index) {
    const int64_t at = head_index * a.seqlen_q;
    return {a.lse + at, w.lse_rest + at, w.row_dots + head_index * w.padded_rows};
}

// P = e^(S - lse - rest). S - lse is rounded to one float near -lse, which in fp32 would show in P:
// what the rounding took off comes back as a factor, with the rest. (Dekker's fast two-sum, exact
// where |S| <= |lse|.)
__device__ static inline float weight_of(float score, float lse, float rest) {
    // exercise 1: begin
    const float exponent = score - lse, lost = score - (exponent + lse);
    const float p = expf(exponent);
    return p == 0 ? 0 : fmaf(p, lost - rest, p);
    // exercise 1: end
}

// From the products: s_reg becomes P = e^(S - lse), dp_reg becomes dS = P ∘ (dP - D), with the
// cap's slope 1 - tanh². What the mask forbids is 0 in both: it had no part in the forward.
template <typename T, int HEAD_DIM>
__device__ static inline void differentiate_softmax(WeightPiece<HEAD_DIM> &s_reg,
                                                    WeightPiece<HEAD_DIM> &dp_reg,
                                                    const Attention &a, const KeyWork<T> &work,
                                                    const RowNumbers &numbers, int64_t first_row) {
    using Tile = GradientTile<HEAD_DIM>;
    const int64_t last_row = min(first_row + Tile::ROWS, a.seqlen_q) - 1;
    const KeyRange all = keys_seen_by_all(first_row, last_row, a.seqlen_q, a.seqlen_k,
                                          a.window_left, a.window_right);
    const bool unmasked = all.begin <= work.first_key && work.first_key + Tile::KEYS <= all.end;
#pragma unroll
    for (int r = 0; r < Tile::THREAD_ROWS; r++) {
        const int64_t row = first_row + Tile::ty() + r * Tile::ROW_STEP;
        // Rows past the last, and rows that see no key (lse = -inf), have P = e^-inf = 0.
        float row_lse = CUDART_INF_F, lse_rest = 0, row_dot = 0;
        if (row < a.seqlen_q) {
            row_dot = numbers.row_dots[row];
            if (numbers.lse[row] != -CUDART_INF_F) row_lse = numbers.lse[row];
            lse_rest = numbers.lse_rest[row];
        }
        KeyRange seen = {0, INT64_MAX};
        if (!unmasked)
            seen = visible_keys(row, a.seqlen_q, a.seqlen_k, a.window_left, a.window_right);
#pragma unroll
        for (int c = 0; c < Tile::THREAD_KEYS; c++) {
            const int64_t key = work.first_key + Tile::tx() + c * Tile::LANES;
            const float score = score_of(s_reg[r][c], a.softmax_scale, a.softcap);
            const bool visible = seen.begin <= key && key < seen.end;
            const float p = visible ? weight_of(score, row_lse, lse_rest) : 0;
            // exercise 2: begin
            float slope = 1; // of the cap: S = c tanh(x / c)
            if (a.softcap > 0) slope -= score / a.softcap * (score / a.softcap);
            s_reg[r][c] = p;
            dp_reg[r][c] = p == 0 ? 0 : p * (dp_reg[r][c] - row_dot) * slope;
            // exercise 2: end
        }
    }
}

// dq_reg → dQ's sums of one tile of rows, of which there are `rows`.
template <int HEAD_DIM>
__device__ static inline void add_to_dq(float *sums, const RowPiece<HEAD_DIM> &dq_reg,
                                        int64_t rows) {
    using Tile = GradientTile<HEAD_DIM>;
    using Layout = RowLayout<HEAD_DIM>;
#pragma unroll
    for (int r = 0; r < Tile::THREAD_ROWS; r++) {
        const int row = Tile::ty() + r * Tile::ROW_STEP;
        if (row >= rows) continue;
#pragma unroll
        for (int c = 0; c < Tile::ROW_PIECES; c++) {
            const int column = (Tile::tx() + c * Tile::LANES) * 4;
            atomicAdd(&sums[Layout::position(row, column)], dq_reg[r][c].x);
            atomicAdd(&sums[Layout::position(row, column + 1)], dq_reg[r][c].y);
            atomicAdd(&sums[Layout::position(row, column + 2)], dq_reg[r][c].z);
            atomicAdd(&sums[Layout::position(row, column + 3)], dq_reg[r][c].w);
        }
    }
}

template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(TILE_THREADS, HEAD_DIM <= 128 ? 2 : 1)
    recompute_backward(const Attention a, const RecomputeWorkspace w) {
    using Tile = GradientTile<HEAD_DIM>;
    extern __shared__ float4 smem[];
    float *k_smem = (float *)smem;
    float *v_smem = k_smem + Tile::KEY_FLOATS;
    float *q_smem = v_smem + Tile::KEY_FLOATS;
    float *dout_smem = q_smem + Tile::ROW_FLOATS;
    float *w_smem = dout_smem + Tile::ROW_FLOATS; // P, then dS

    const KeyWork<T> work = key_work<T, HEAD_DIM>(a, block_place(a, w));
    load_tile<T, HEAD_DIM>(
        k_smem, head_rows<T>(a.k, work.batch, work.kv_head, a.seqlen_k, a.kv_heads, HEAD_DIM),
        work.first_key, Tile::KEYS);
    load_tile<T, HEAD_DIM>(
        v_smem, head_rows<T>(a.v, work.batch, work.kv_head, a.seqlen_k, a.kv_heads, HEAD_DIM),
        work.first_key, Tile::KEYS);

    KeyPiece<HEAD_DIM> dk_reg = {}, dv_reg = {};
    const int group = a.heads / a.kv_heads; // query heads per K/V head
    for (int head = work.kv_head * group; head < (work.kv_head + 1) * group; head++) {
        const int64_t head_index = (int64_t)work.batch * a.heads + head;
        const HeadRows<T> q = head_rows<T>(a.q, work.batch, head, a.seqlen_q, a.heads, HEAD_DIM);
        const HeadRows<T> dout =
            head_rows<T>(a.dout, work.batch, head, a.seqlen_q, a.heads, HEAD_DIM);

        for (int64_t row = work.rows.begin - work.rows.begin % Tile::ROWS; row < work.rows.end;
             row += Tile::ROWS) {
            load_tile<T, HEAD_DIM>(q_smem, q, row, Tile::ROWS);
            load_tile<T, HEAD_DIM>(dout_smem, dout, row, Tile::ROWS);
            __syncthreads(); // every thread's part of Q, dO (at first K, V) → all threads

            WeightPiece<HEAD_DIM> s_reg, dp_reg;
            multiply_rows<HEAD_DIM>(s_reg, q_smem, k_smem);     // S  = Q Kᵀ, once more
            multiply_rows<HEAD_DIM>(dp_reg, dout_smem, v_smem); // dP = dO Vᵀ
            differentiate_softmax<T, HEAD_DIM>(s_reg, dp_reg, a, work,
                                               row_numbers(a, w, head_index), row);

            // exercise 3: begin
            store_weight_piece<HEAD_DIM>(w_smem, s_reg);
            __syncthreads(); // every thread's part of P → all threads
            add_over_rows<HEAD_DIM>(dv_reg, w_smem, dout_smem); // dV += Pᵀ dO
            __syncthreads(); // all threads have read P: dS may take its place
            // exercise 3: end
            // exercise 4: begin
            store_weight_piece<HEAD_DIM>(w_smem, dp_reg);
            __syncthreads(); // every thread's part of dS → all threads
            add_over_rows<HEAD_DIM>(dk_reg, w_smem, q_smem); // dK += dSᵀ Q

            RowPiece<HEAD_DIM> dq_reg = {};
            add_over_keys<HEAD_DIM>(dq_reg, w_smem, k_smem); // dQ += dS K
            // exercise 4: end
            unsigned *turns = w.turns + head_index * w.row_tiles + row / Tile::ROWS;
            const unsigned turn =
                a.deterministic ? turn_of<Tile::ROWS, Tile::KEYS>(a, row, work.first_key) : 0;
            if (a.deterministic) turn_wait(turns, turn); // the tiles of keys before have added
            add_to_dq<HEAD_DIM>(w.dq_sums + (head_index * w.padded_rows + row) * HEAD_DIM, dq_reg,
                                a.seqlen_q - row);
            if (a.deterministic) turn_end(turns, turn);
            // exercise 5: begin
            __syncthreads(); // all threads have read Q, dO and dS: the next may take their place
            // exercise 5: end
        }
    }

    const int64_t stride = (int64_t)a.kv_heads * HEAD_DIM;
    const int64_t offset =
        row_offset(work.batch, 0, work.kv_head, a.seqlen_k, a.kv_heads, HEAD_DIM);
    store_key_piece<T, HEAD_DIM>((T *)a.dk + offset, stride, work.first_key, a.seqlen_k,
                                 a.softmax_scale, dk_reg);
    store_key_piece<T, HEAD_DIM>((T *)a.dv + offset, stride, work.first_key, a.seqlen_k, 1, dv_reg);
}

template <typename T, int HEAD_DIM> static cudaError_t launch_backward(const Attention *a) {
    using Tile = GradientTile<HEAD_DIM>;
    const RecomputeWorkspace w = recompute_workspace(a, Tile::ROWS, false);
    const int64_t blocks = tiles_of(a->seqlen_k, Tile::KEYS) * a->batch * a->kv_heads;
    return launch_recompute<T, HEAD_DIM, RowLayout<HEAD_DIM>>(a, w, [&] {
        if (blocks == 0) return cudaSuccess; // no keys, no dK and dV
        const cudaError_t error =
            allow_shared_memory(recompute_backward<T, HEAD_DIM>, Tile::FUSED_BYTES);
        if (error != cudaSuccess) return error;
        recompute_backward<T, HEAD_DIM>
            <<<(unsigned)blocks, TILE_THREADS, Tile::FUSED_BYTES, a->stream>>>(*a, w);
        return cudaGetLastError();
    });
}

DEFINE_DISPATCH(backward, launch_backward)

// The tile sizes of a problem's head_dim, for the functions that launch nothing.
typedef struct {
    int rows, keys, bytes;
} TileSizes;

static TileSizes tile_sizes(int head_dim) {
#define TILE_SIZES(D)                                                                              \
    if (head_dim == D)                                                                             \
        return {GradientTile<D>::ROWS, GradientTile<D>::KEYS, GradientTile<D>::FUSED_BYTES};
    FOR_EACH_HEAD_DIM(TILE_SIZES)
#undef TILE_SIZES
    return {32, 32, 0};
}

static size_t backward_workspace(const Attention *a) {
    return recompute_workspace(a, tile_sizes(a->head_dim).rows, false).bytes;
}

static size_t forward_workspace(const Attention *a) {
    return lse_rest_bytes(a);
}

static cudaError_t forward(const Attention *a) {
    Attention with_rest = *a;
    with_rest.lse_rest = recompute_workspace(a, tile_sizes(a->head_dim).rows, false).lse_rest;
    return normalise_once_step.forward(&with_rest);
}

static const char *refuses(const Attention *a, bool backward) {
    const TileSizes tile = tile_sizes(a->head_dim);
    return refuses_recompute(a, backward, tile.keys, tile.bytes);
}

const Step recompute_step = {
    .chapter = 4,
    .name = "recompute",
    .idea = "keep lse alone; the backward computes S and P again, tile by tile",
    .exhibit = false,
    .refuses = refuses,
    .forward_workspace = forward_workspace,
    .forward = forward,
    .backward_workspace = backward_workspace,
    .backward = backward,
};
