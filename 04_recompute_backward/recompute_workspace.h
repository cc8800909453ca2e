// What the recomputing backward keeps in HBM beside inputs and outputs, all of it linear in seqlen:
//
//   lse_rest      what rounding took off lse         fp32, one number a query row
//   row_dots      D_i = dO_i · O_i (less dlse_i)     fp32, one number a query row (padded)
//   lse_base_2    lse and its rest in units of log 2 fp32, two numbers a query row (padded);
//                                                    for recompute-tensor-cores only
//   dq_sums       dQ before the last rounding        fp32, shaped like Q (rows padded to a tile)
//   turns         how many blocks have added to dQ   one number a tile of query rows
//   ticket        how many blocks have begun         one number
//
// and the two kernels around the main one: prepare_backward fills D and lse_base_2 and zeroes sums,
// turns and ticket, finish_dq turns dq_sums into dQ. turns and ticket serve the deterministic order
// only; lse_rest comes from the forward, so it stands first, where a forward alone has it too.
#ifndef RECOMPUTE_WORKSPACE_H
#define RECOMPUTE_WORKSPACE_H

#include "device/dispatch.h"
#include "device/exp2.h"
#include "device/mask.h"
#include "device/number.h"
#include "device/turn.h"

static const int PADDED_ROWS = 64; // what is marked "padded", and dq_sums, has a multiple of this
static const int PREPARE_ROWS = 128, PREPARE_THREADS = 128;
static const int FINISH_ROWS = 64; // of finish_dq's blocks: HEAD_DIM threads

typedef struct {
    float *lse_rest, *row_dots, *dq_sums;
    TwoFloats *lse_base_2; // or NULL
    unsigned *turns, *ticket;
    int64_t padded_rows; // of one head
    int64_t row_tiles;   // of one head: numbers in turns
    size_t bytes;
} RecomputeWorkspace;

static inline size_t padded_to_256(size_t bytes) {
    return (bytes + 255) & ~(size_t)255;
}

// The bytes of lse_rest. An error of lse is a relative one of P = e^(S - lse), and a float near an lse
// of 40 errs by up to 2e-6, near 10,000 by up to 5e-4: fp32 gradients show the first, fp16 the other.
static inline size_t lse_rest_bytes(const Attention *a) {
    return padded_to_256((size_t)a->batch * a->heads * a->seqlen_q * sizeof(float));
}

// Lays the parts out one after the other; `tile_rows` divides PADDED_ROWS, `base_2` asks for
// lse_base_2.
static inline RecomputeWorkspace recompute_workspace(const Attention *a, int tile_rows,
                                                     bool base_2) {
    const size_t heads = (size_t)a->batch * a->heads;
    RecomputeWorkspace w;
    w.padded_rows = tiles_of(a->seqlen_q, PADDED_ROWS) * PADDED_ROWS;
    w.row_tiles = tiles_of(a->seqlen_q, tile_rows);
    const size_t rows = heads * w.padded_rows; // 64 floats, 256 bytes: all parts begin aligned
    const size_t sums = rows * a->head_dim * sizeof(float), dots = rows * sizeof(float);
    const size_t logarithms = base_2 ? rows * sizeof(TwoFloats) : 0;
    const size_t turns = a->deterministic ? (heads * w.row_tiles + 1) * sizeof(unsigned) : 0;
    char *at = (char *)a->workspace + lse_rest_bytes(a);
    w.lse_rest = (float *)a->workspace;
    w.dq_sums = (float *)at;
    w.row_dots = (float *)(at + sums);
    w.lse_base_2 = base_2 ? (TwoFloats *)(at + sums + dots) : NULL;
    w.turns = (unsigned *)(at + sums + dots + logarithms);
    w.ticket = w.turns + heads * w.row_tiles;
    w.bytes = lse_rest_bytes(a) + sums + dots + logarithms + turns;
    return w;
}

// dO_i · O_i, the columns in rising order as multiply_rows sums dP: a row that sees one key has
// O = V, dP = D, and so dS = 0 exactly.
template <typename T, int HEAD_DIM>
__device__ static inline float row_dot(const T *dout, const T *o) {
    float dot = 0;
#pragma unroll 4
    for (int d = 0; d < HEAD_DIM; d += 4) {
        const float4 x = load4(dout + d), y = load4(o + d);
        dot = fmaf(x.x, y.x, dot);
        dot = fmaf(x.y, y.y, dot);
        dot = fmaf(x.z, y.z, dot);
        dot = fmaf(x.w, y.w, dot);
    }
    return dot;
}

// A row's lse as the tensor-core kernel wants it. Rows past the last, and rows that see no key
// (lse = -inf), get lse = +inf: P = 2^-inf = 0.
__device__ static inline TwoFloats row_lse_base_2(const Attention &a, const RecomputeWorkspace &w,
                                                  int64_t head_index, int64_t row) {
    const int64_t at = head_index * a.seqlen_q + row;
    const TwoFloats none = {CUDART_INF_F, 0};
    if (row >= a.seqlen_q || a.lse[at] == -CUDART_INF_F) return none;
    return to_base_2(a.lse[at], w.lse_rest[at]);
}

// A thread takes a query row for D and lse; the block together zeroes its rows of dq_sums and its
// turns.
template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(PREPARE_THREADS)
    prepare_backward(const Attention a, const RecomputeWorkspace w) {
    const BlockWork work = block_work(blockIdx.x, tiles_of(a.seqlen_q, PREPARE_ROWS), a.heads);
    const int64_t head_index = (int64_t)work.batch * a.heads + work.head;
    const int64_t first_row = work.tile * PREPARE_ROWS, row = first_row + threadIdx.x;

    if (row < w.padded_rows) {
        float dot = 0;
        if (row < a.seqlen_q) {
            const int64_t offset =
                row_offset(work.batch, row, work.head, a.seqlen_q, a.heads, HEAD_DIM);
            dot = row_dot<T, HEAD_DIM>((const T *)a.dout + offset, (const T *)a.o + offset);
            // dS = P ∘ (dP - D + dlse)
            if (a.dlse != NULL) dot -= a.dlse[head_index * a.seqlen_q + row];
        }
        const int64_t at = head_index * w.padded_rows + row;
        w.row_dots[at] = dot;
        if (w.lse_base_2 != NULL) w.lse_base_2[at] = row_lse_base_2(a, w, head_index, row);
    }

    const int rows = (int)min(w.padded_rows - first_row, (int64_t)PREPARE_ROWS);
    float *sums = w.dq_sums + (head_index * w.padded_rows + first_row) * HEAD_DIM;
    for (int at = threadIdx.x * 4; at < rows * HEAD_DIM; at += PREPARE_THREADS * 4)
        *(float4 *)&sums[at] = make_float4(0, 0, 0, 0);

    if (!a.deterministic) return;
    // The last block's share holds the ticket too.
    const int64_t count = (int64_t)a.batch * a.heads * w.row_tiles + 1;
    const int64_t share = tiles_of(count, gridDim.x), begin = blockIdx.x * share;
    const int64_t end = min(begin + share, count);
    for (int64_t at = begin + threadIdx.x; at < end; at += PREPARE_THREADS) w.turns[at] = 0;
}

// dQ = scale * dq_sums, rounded. Layout::position says where a number lies within the sums of
// FINISH_ROWS rows. A warp takes 32 columns, and of them two rows at a time.
template <typename T, int HEAD_DIM, typename Layout>
__global__ void __launch_bounds__(HEAD_DIM)
    finish_dq(const Attention a, const RecomputeWorkspace w) {
    const BlockWork work = block_work(blockIdx.x, tiles_of(a.seqlen_q, FINISH_ROWS), a.heads);
    const int64_t head_index = (int64_t)work.batch * a.heads + work.head;
    const int64_t first_row = work.tile * FINISH_ROWS;
    const int rows = (int)min(a.seqlen_q - first_row, (int64_t)FINISH_ROWS);
    const float *sums = w.dq_sums + (head_index * w.padded_rows + first_row) * HEAD_DIM;
    const int column = threadIdx.x / 32 * 32 + threadIdx.x % 16 * 2;
    const int lane_row = threadIdx.x % 32 / 16;
    const int64_t stride = (int64_t)a.heads * HEAD_DIM;
    T *to = (T *)a.dq + column + lane_row * stride +
            row_offset(work.batch, first_row, work.head, a.seqlen_q, a.heads, HEAD_DIM);

#pragma unroll 8
    for (int turn = 0; turn < FINISH_ROWS / 2; turn++) {
        const int row = turn * 2 + lane_row;
        if (row < rows)
            store2(to, a.softmax_scale * sums[Layout::position(row, column)],
                   a.softmax_scale * sums[Layout::position(row, column + 1)]);
        to += 2 * stride;
    }
}

// The block's place in the order of work. In the deterministic order a block may wait for one with
// a smaller place, so places are given out as blocks begin: whoever is waited for is running.
__device__ static inline unsigned block_place(const Attention &a, const RecomputeWorkspace &w) {
    if (!a.deterministic || a.seqlen_q == 0) return blockIdx.x; // no rows, no turns
    __shared__ unsigned place;
    if (threadIdx.x == 0) place = atomicAdd(w.ticket, 1u);
    __syncthreads(); // thread 0's place → all threads
    return place;
}

// A tile of query rows gets its parts of dQ from the tiles of keys that it sees, in rising order.
// The blocks of keys between the first and the last all have a part: the keys that neighbouring
// rows see follow each other without a gap. So the turn of a tile of keys is its distance from the
// first, and no block has to pass on a turn that it does not need.
template <int ROWS, int KEYS>
__device__ static inline unsigned turn_of(const Attention &a, int64_t first_row,
                                          int64_t first_key) {
    const int64_t last_row = min(first_row + ROWS, a.seqlen_q) - 1;
    const KeyRange keys = keys_seen_by_any(first_row, last_row, a.seqlen_q, a.seqlen_k,
                                           a.window_left, a.window_right);
    return (unsigned)(first_key / KEYS - keys.begin / KEYS);
}

// What every recomputing step refuses, or NULL.
static inline const char *refuses_recompute(const Attention *a, bool backward, int tile_keys,
                                            size_t shared_bytes) {
    const int64_t heads = (int64_t)a->batch * a->heads;
    int64_t blocks = tiles_of(a->seqlen_q, 32) * heads; // the forward's smallest tile
    if (tiles_of(a->seqlen_q, FINISH_ROWS) * heads > blocks)
        blocks = tiles_of(a->seqlen_q, FINISH_ROWS) * heads;
    if (tiles_of(a->seqlen_k, tile_keys) * heads > blocks)
        blocks = tiles_of(a->seqlen_k, tile_keys) * heads;
    const char *reason = refuses_on_cuda_cores(a, blocks);
    if (reason != NULL || !backward) return reason;

    int device = 0, most = 0;
    if (cudaGetDevice(&device) == cudaSuccess &&
        cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) ==
            cudaSuccess &&
        shared_bytes > (size_t)most)
        return "this head_dim's tiles need more shared memory than a thread block of this GPU can "
               "have; use a smaller --head-dim, or an A100 or later";
    return NULL;
}

// Runs the three kernels; Main launches the middle one.
template <typename T, int HEAD_DIM, typename Layout, typename Main>
static cudaError_t launch_recompute(const Attention *a, const RecomputeWorkspace &w, Main main) {
    const int64_t heads = (int64_t)a->batch * a->heads;
    const unsigned prepare = (unsigned)(tiles_of(a->seqlen_q, PREPARE_ROWS) * heads);
    const unsigned finish = (unsigned)(tiles_of(a->seqlen_q, FINISH_ROWS) * heads);
    if (prepare > 0)
        prepare_backward<T, HEAD_DIM><<<prepare, PREPARE_THREADS, 0, a->stream>>>(*a, w);
    const cudaError_t error = main();
    if (error != cudaSuccess) return error;
    if (finish > 0) finish_dq<T, HEAD_DIM, Layout><<<finish, HEAD_DIM, 0, a->stream>>>(*a, w);
    return cudaGetLastError();
}

#endif
