// What the two standard steps keep in HBM, and the kernels that work on it element by element or
// row by row. The matrices are batch x heads x seqlen_q x seqlen_k:
//
//   S    written by the forward (with a softcap, read by the backward too)
//   P    written by the forward, read twice by the backward; in the input dtype
//   dP   written by the backward, and dS in its place
//
// S, dP and dS are what sums and softmax work on, not what is multiplied: `standard` keeps them in
// the input dtype, `standard-tensor-cores` in fp32. The rows of a matrix may be padded: `stride`
// numbers from one to the next. dS's padding is 0.
#ifndef STANDARD_MATRICES_H
#define STANDARD_MATRICES_H

#include "../01_naive/standard.h"
#include "device/dispatch.h"
#include "recompute_workspace.h"

// The matrices of a problem, and D.
typedef struct {
    char *scores, *probabilities, *gradients;
    float *row_dots;
    int64_t stride;
    size_t forward_bytes, backward_bytes;
} StandardMatrices;

// Lays them out as chapter 1 does, with rows of a multiple of `multiple` numbers; `wide` takes fp32
// for S, dP and dS.
static inline StandardMatrices standard_matrices(const Attention *a, int multiple, bool wide) {
    const size_t rows = (size_t)a->batch * a->heads * a->seqlen_q;
    StandardMatrices m;
    m.stride = tiles_of(a->seqlen_k, multiple) * multiple;
    const size_t numbers = rows * m.stride, number_bytes = a->dtype == DTYPE_FP32 ? 4 : 2;
    const size_t probabilities = round_up_to_256(numbers * number_bytes);
    const size_t scores = round_up_to_256(numbers * (wide ? sizeof(float) : number_bytes));
    m.scores = (char *)a->workspace;
    m.probabilities = m.scores + scores;
    m.gradients = m.probabilities + probabilities;
    m.row_dots = (float *)(m.gradients + scores);
    m.forward_bytes = scores + probabilities;
    m.backward_bytes = 2 * scores + probabilities + round_up_to_256(rows * sizeof(float));
    return m;
}

static const int ROW_THREADS = 256;
static const int ROW_WARPS = ROW_THREADS / 32; // a warp takes a row

// D_i = dO_i · O_i, a thread a row.
template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(PREPARE_THREADS)
    standard_row_dots(const Attention a, float *row_dots) {
    const BlockWork work = block_work(blockIdx.x, tiles_of(a.seqlen_q, PREPARE_ROWS), a.heads);
    const int64_t row = work.tile * PREPARE_ROWS + threadIdx.x;
    if (row >= a.seqlen_q) return;
    const int64_t offset = row_offset(work.batch, row, work.head, a.seqlen_q, a.heads, HEAD_DIM);
    const int64_t at = vector_offset(work.batch, work.head, row, a.heads, a.seqlen_q);
    row_dots[at] = row_dot<T, HEAD_DIM>((const T *)a.dout + offset, (const T *)a.o + offset);
    if (a.dlse != NULL) row_dots[at] -= a.dlse[at]; // dS = P ∘ (dP - D + dlse)
}

// dS = P ∘ (dP - D), in place of dP; S and dP are of type Wide. With a softcap, S = c tanh(x / c)
// has the slope 1 - (S / c)².
template <typename T, typename Wide>
__global__ void __launch_bounds__(ROW_THREADS)
    softmax_gradients(const StandardMatrices m, int64_t rows, int64_t seqlen_k, float softcap) {
    const int64_t row = (int64_t)blockIdx.x * ROW_WARPS + threadIdx.x / 32;
    if (row >= rows) return;
    const Wide *scores = (const Wide *)m.scores + row * m.stride;
    const T *probabilities = (const T *)m.probabilities + row * m.stride;
    Wide *gradients = (Wide *)m.gradients + row * m.stride;
    const float row_dot = m.row_dots[row];
#pragma unroll 4
    for (int64_t col = threadIdx.x % 32; col < seqlen_k; col += 32) {
        const float p = to_float(probabilities[col]);
        float gradient = p * (to_float(gradients[col]) - row_dot);
        if (softcap > 0) {
            const float tanh = to_float(scores[col]) / softcap;
            gradient *= 1 - tanh * tanh;
        }
        // Masked elements have P = 0 and S = -inf, and 0 * inf would be NaN.
        store(&gradients[col], p == 0 ? 0 : gradient);
    }
    const int64_t padding = seqlen_k + threadIdx.x % 32;
    if (padding < m.stride) store(&gradients[padding], 0);
}

// D, and from dP and P, dS.
template <typename T, typename Wide, int HEAD_DIM>
static cudaError_t launch_softmax_gradients(const Attention *a, const StandardMatrices &m) {
    const int64_t heads = (int64_t)a->batch * a->heads, rows = heads * a->seqlen_q;
    const unsigned dot_blocks = (unsigned)(tiles_of(a->seqlen_q, PREPARE_ROWS) * heads);
    standard_row_dots<T, HEAD_DIM><<<dot_blocks, PREPARE_THREADS, 0, a->stream>>>(*a, m.row_dots);
    const unsigned blocks = (unsigned)tiles_of(rows, ROW_WARPS);
    softmax_gradients<T, Wide>
        <<<blocks, ROW_THREADS, 0, a->stream>>>(m, rows, a->seqlen_k, a->softcap);
    return cudaGetLastError();
}

// The largest grid of a standard step: tiles of a matrix, or rows.
static inline int64_t standard_blocks(const Attention *a, int tile) {
    const int64_t heads = (int64_t)a->batch * a->heads;
    const int64_t tiles = tiles_of(a->seqlen_q, tile) * tiles_of(a->seqlen_k, tile) * heads;
    const int64_t rows = tiles_of(a->seqlen_q * heads, ROW_WARPS);
    const int64_t keys = tiles_of(a->seqlen_k, tile) * heads;
    return max(max(tiles, rows), keys);
}

#endif
