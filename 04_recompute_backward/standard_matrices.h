// What the two standard steps keep in HBM, and the kernels that work on it element by element or
// row by row. The matrices are batch x heads x seqlen_q x seqlen_k, in the input dtype:
//
//   S    written by the forward (with a softcap, read by the backward too)
//   P    written by the forward, read twice by the backward
//   dP   written by the backward, and dS in its place
//
// The rows of a matrix may be padded: `stride` numbers from one to the next.
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

// Lays them out as chapter 1 does, with rows of a multiple of `multiple` numbers.
static inline StandardMatrices standard_matrices(const Attention *a, int multiple) {
    const size_t rows = (size_t)a->batch * a->heads * a->seqlen_q;
    StandardMatrices m;
    m.stride = tiles_of(a->seqlen_k, multiple) * multiple;
    const size_t matrix = round_up_to_256(rows * m.stride * (a->dtype == DTYPE_FP32 ? 4 : 2));
    m.scores = (char *)a->workspace;
    m.probabilities = m.scores + matrix;
    m.gradients = m.probabilities + matrix;
    m.row_dots = (float *)(m.gradients + matrix);
    m.forward_bytes = 2 * matrix;
    m.backward_bytes = 3 * matrix + round_up_to_256(rows * sizeof(float));
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

// dS = P ∘ (dP - D), in place of dP. With a softcap, S = c tanh(x / c) has the slope 1 - (S / c)².
template <typename T>
__global__ void __launch_bounds__(ROW_THREADS)
    softmax_gradients(const StandardMatrices m, int64_t rows, int64_t seqlen_k, float softcap) {
    const int64_t row = (int64_t)blockIdx.x * ROW_WARPS + threadIdx.x / 32;
    if (row >= rows) return;
    const T *scores = (const T *)m.scores + row * m.stride;
    const T *probabilities = (const T *)m.probabilities + row * m.stride;
    T *gradients = (T *)m.gradients + row * m.stride;
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
}

// D, and from dP and P, dS.
template <typename T, int HEAD_DIM>
static cudaError_t launch_softmax_gradients(const Attention *a, const StandardMatrices &m) {
    const int64_t heads = (int64_t)a->batch * a->heads, rows = heads * a->seqlen_q;
    const unsigned dot_blocks = (unsigned)(tiles_of(a->seqlen_q, PREPARE_ROWS) * heads);
    standard_row_dots<T, HEAD_DIM><<<dot_blocks, PREPARE_THREADS, 0, a->stream>>>(*a, m.row_dots);
    const unsigned blocks = (unsigned)tiles_of(rows, ROW_WARPS);
    softmax_gradients<T><<<blocks, ROW_THREADS, 0, a->stream>>>(m, rows, a->seqlen_k, a->softcap);
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
