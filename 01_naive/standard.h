// What every standard attention (this chapter's, and chapter 2's tiled one) has in common: the
// matrices it keeps in HBM, and the softmax of their rows.
#ifndef STANDARD_H
#define STANDARD_H

#include "device/mask.h"
#include "device/number.h"
#include "harness/attention.h"

// The workspace: S, P and, for the backward, dS, each batch x heads x seqlen_q x seqlen_k in the
// input dtype; then rowsum(dO * O), fp32. P is what the forward keeps for the backward.
typedef struct {
    char *scores, *probabilities, *score_gradients;
    float *row_dots;
    size_t forward_bytes, backward_bytes;
} StandardWorkspace;

static inline size_t round_up_to_256(size_t bytes) {
    return (bytes + 255) & ~(size_t)255;
}

// Lays the matrices out one after the other.
static inline StandardWorkspace standard_workspace(const Attention *a) {
    const size_t rows = (size_t)a->batch * a->heads * a->seqlen_q;
    const size_t element = a->dtype == DTYPE_FP32 ? 4 : 2;
    const size_t matrix = round_up_to_256(rows * a->seqlen_k * element);
    StandardWorkspace workspace;
    workspace.scores = (char *)a->workspace;
    workspace.probabilities = workspace.scores + matrix;
    workspace.score_gradients = workspace.probabilities + matrix;
    workspace.row_dots = (float *)(workspace.score_gradients + matrix);
    workspace.forward_bytes = 2 * matrix;
    workspace.backward_bytes = 3 * matrix + round_up_to_256(rows * sizeof(float));
    return workspace;
}

// Sum and maximum over the 32 lanes of a warp; every lane gets them.
__device__ static inline float warp_sum(float x) {
    for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffffu, x, lanes);
    return x;
}

__device__ static inline float warp_max(float x) {
    for (int lanes = 16; lanes > 0; lanes /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lanes));
    return x;
}

static const int SOFTMAX_THREADS = 256;
static const int SOFTMAX_ROWS = SOFTMAX_THREADS / 32; // a warp takes a row

// What a row asks of its head: its sink, and a place for lse where heads are not seqlen_q apart.
typedef struct {
    const float *sink; // NULL: there is none
    int64_t seqlen_q, lse_stride;
    int heads;
} SoftmaxHeads;

// P = softmax(S) by rows, and lse. Each lane takes every 32nd column, so a warp reads 32
// neighbours. Without BY_HEAD rows of all heads are alike, and `by_head` isn't looked at.
template <typename T, bool BY_HEAD>
__global__ void __launch_bounds__(SOFTMAX_THREADS)
    softmax_rows(const T *scores, T *probabilities, float *lse, int64_t rows, int64_t seqlen_k,
                 const SoftmaxHeads by_head) {
    const int lane = threadIdx.x % 32;
    const int64_t row = (int64_t)blockIdx.x * SOFTMAX_ROWS + threadIdx.x / 32;
    if (row >= rows) return;
    scores += row * seqlen_k;
    probabilities += row * seqlen_k;

    const int64_t head = BY_HEAD ? row / by_head.seqlen_q : 0; // of all sequences
    const bool has_sink = BY_HEAD && by_head.sink != NULL;
    const float sink = has_sink ? by_head.sink[head % by_head.heads] : -CUDART_INF_F;

    float row_max = sink;
    // exercise 3: begin
    for (int64_t col = lane; col < seqlen_k; col += 32)
        row_max = fmaxf(row_max, to_float(scores[col]));
    row_max = warp_max(row_max);

    const float base = finite_max(row_max);
    float row_sum = 0;
    for (int64_t col = lane; col < seqlen_k; col += 32)
        row_sum += expf(to_float(scores[col]) - base);
    row_sum = warp_sum(row_sum);
    if (has_sink) row_sum += expf(sink - base);
    // exercise 3: end

    // exercise 4: begin
    const float inverse = row_sum == 0 ? 0 : 1 / row_sum;
    for (int64_t col = lane; col < seqlen_k; col += 32)
        store(&probabilities[col], expf(to_float(scores[col]) - base) * inverse);
    // exercise 4: end
    const int64_t at = BY_HEAD ? head * by_head.lse_stride + row % by_head.seqlen_q : row;
    if (lane == 0) lse[at] = log_sum_exp(row_max, row_sum);
}

// Runs softmax_rows over the workspace's S.
template <typename T>
static cudaError_t launch_softmax(const Attention *a, const StandardWorkspace *workspace) {
    const int64_t rows = (int64_t)a->batch * a->heads * a->seqlen_q;
    const unsigned blocks = (unsigned)tiles_of(rows, SOFTMAX_ROWS);
    const T *scores = (const T *)workspace->scores;
    T *probabilities = (T *)workspace->probabilities;
    const SoftmaxHeads by_head = {.sink = a->has_sink ? a->sink : NULL,
                                  .seqlen_q = a->seqlen_q,
                                  .lse_stride = a->varlen ? a->total_q : a->seqlen_q,
                                  .heads = a->heads};
    if (a->varlen || a->has_sink)
        softmax_rows<T, true><<<blocks, SOFTMAX_THREADS, 0, a->stream>>>(
            scores, probabilities, a->lse, rows, a->seqlen_k, by_head);
    else
        softmax_rows<T, false><<<blocks, SOFTMAX_THREADS, 0, a->stream>>>(
            scores, probabilities, a->lse, rows, a->seqlen_k, by_head);
    return cudaGetLastError();
}

#endif
