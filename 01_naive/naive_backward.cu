// Chapter 1, backward: the standard one, from the saved P. Each line beside the forward line
// that it differentiates; ∘ is the product element by element.
//
//   O = P V              dV = Pᵀ dO             weighted_query_rows
//                        dP = dO Vᵀ             query_key_product
//   P = softmax(S)       dS = P ∘ (dP - D)      softmax_backward,  D_i = dO_i · O_i   (row_dot)
//   S = scale * Q Kᵀ     dQ = scale * dS K      weighted_key_rows
//                        dK = scale * dSᵀ Q     weighted_query_rows
//
// D_i is Σ_j P_ij dP_ij: since O_i = Σ_j P_ij V_j, that is the same as dO_i · O_i, a sum over
// head_dim instead of seqlen_k. A sink changes none of it: its P is no column of this matrix, its V
// is 0, and so O and D are the same sums over the keys. (What its own gradient would be, -P_sink D,
// isn't computed.) Each output element is summed by one thread in a fixed order, so
// the gradients are the same in every run.
#include "backward.h"

#include "device/dispatch.h"
#include "products.h"
#include "sequences.h"
#include "standard.h"

static const int ELEMENTWISE_THREADS = 256;

// D_i = dO_i · O_i in fp32. Eight lanes take one row, and sum it in the order in which
// query_key_product sums dP: a row that sees one key has O = V, dP = D, and so dS = 0 exactly.
template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(PRODUCT_THREADS)
    row_dot(const Attention a, const T *dout, const T *o, float *row_dots) {
    const int64_t tiles = tiles_of(a.seqlen_q, ROWS_PER_BLOCK);
    const BlockWork work = block_work(blockIdx.x, tiles, a.heads);
    const int64_t row = work.tile * ROWS_PER_BLOCK + threadIdx.x / ROW_LANES;
    const bool inside = row < a.seqlen_q;
    const int lane = threadIdx.x % ROW_LANES;

    float dot = 0;
    if (inside) {
        const int64_t offset =
            row_offset(work.batch, row, work.head, a.seqlen_q, a.heads, HEAD_DIM);
        float4 dout_reg[HEAD_DIM / 32], o_reg[HEAD_DIM / 32];
        load_pieces<T, HEAD_DIM>(dout_reg, dout + offset, lane);
        load_pieces<T, HEAD_DIM>(o_reg, o + offset, lane);
        dot = dot_pieces<HEAD_DIM>(dout_reg, o_reg);
    }
    dot = row_lanes_sum(dot); // rows outside take part
    if (!inside || lane != 0) return;
    const int64_t at = vector_offset(work.batch, work.head, row, a.heads, a.seqlen_q);
    row_dots[at] = a.dlse != NULL ? dot - a.dlse[at] : dot; // dS = P ∘ (dP - D + dlse)
}

// dS = P ∘ (dP - D), in place of dP. With a softcap, S = c tanh(x / c) has the slope 1 - (S / c)².
template <typename T>
__global__ void __launch_bounds__(ELEMENTWISE_THREADS)
    softmax_backward(const T *scores, const T *probabilities, const float *row_dots, T *gradients,
                     int64_t seqlen_k, int64_t elements, float softcap) {
    const int64_t threads = (int64_t)gridDim.x * ELEMENTWISE_THREADS;
    int64_t at = (int64_t)blockIdx.x * ELEMENTWISE_THREADS + threadIdx.x;
    for (; at < elements; at += threads) {
        const float p = to_float(probabilities[at]);
        float gradient = p * (to_float(gradients[at]) - row_dots[at / seqlen_k]);
        if (softcap > 0) {
            const float tanh = to_float(scores[at]) / softcap;
            gradient *= 1 - tanh * tanh;
        }
        // Masked elements have P = 0 and S = -inf, and 0 * inf would be NaN.
        store(&gradients[at], p == 0 ? 0 : gradient);
    }
}

template <typename T, int HEAD_DIM> static cudaError_t launch_backward(const Attention *a) {
    const StandardWorkspace workspace = standard_workspace(a);
    const T *scores = (const T *)workspace.scores;
    const T *probabilities = (const T *)workspace.probabilities;
    T *gradients = (T *)workspace.score_gradients;
    const T *q = (const T *)a->q, *k = (const T *)a->k, *v = (const T *)a->v;
    const T *dout = (const T *)a->dout;

    const int64_t row_blocks = tiles_of(a->seqlen_q, ROWS_PER_BLOCK) * a->batch * a->heads;
    const int64_t key_blocks = tiles_of(a->seqlen_k, ROWS_PER_BLOCK) * a->batch * a->kv_heads;
    const int64_t score_blocks = tiles_of(a->seqlen_q, PRODUCT_QUERIES) *
                                 tiles_of(a->seqlen_k, PRODUCT_KEYS) * a->batch * a->heads;

    // dV = Pᵀ dO; without query rows the sum is empty and dV = 0
    if (key_blocks > 0)
        weighted_query_rows<T, HEAD_DIM><<<(unsigned)key_blocks, PRODUCT_THREADS, 0, a->stream>>>(
            *a, probabilities, dout, (T *)a->dv, 1.0f);
    if (score_blocks > 0) {
        // dP = dO Vᵀ
        query_key_product<T, HEAD_DIM><<<(unsigned)score_blocks, PRODUCT_THREADS, 0, a->stream>>>(
            *a, dout, v, gradients, false);
        // dS = P ∘ (dP - D)
        row_dot<T, HEAD_DIM><<<(unsigned)row_blocks, PRODUCT_THREADS, 0, a->stream>>>(
            *a, dout, (const T *)a->o, workspace.row_dots);
        const int64_t elements = (int64_t)a->batch * a->heads * a->seqlen_q * a->seqlen_k;
        int64_t blocks = tiles_of(elements, ELEMENTWISE_THREADS);
        if (blocks > MAX_GRID_BLOCKS) blocks = MAX_GRID_BLOCKS;
        softmax_backward<T><<<(unsigned)blocks, ELEMENTWISE_THREADS, 0, a->stream>>>(
            scores, probabilities, workspace.row_dots, gradients, a->seqlen_k, elements,
            a->softcap);
    }
    // dQ = scale dS K;  dK = scale dSᵀ Q
    if (row_blocks > 0)
        weighted_key_rows<T, HEAD_DIM><<<(unsigned)row_blocks, PRODUCT_THREADS, 0, a->stream>>>(
            *a, gradients, k, (T *)a->dq, a->softmax_scale);
    if (key_blocks > 0)
        weighted_query_rows<T, HEAD_DIM><<<(unsigned)key_blocks, PRODUCT_THREADS, 0, a->stream>>>(
            *a, gradients, q, (T *)a->dk, a->softmax_scale);
    return cudaGetLastError();
}

DEFINE_DISPATCH(dispatch_backward, launch_backward)

cudaError_t naive_backward(const Attention *a) {
    return a->varlen ? run_sequences(a, dispatch_backward) : dispatch_backward(a);
}
