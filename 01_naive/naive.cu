// Chapter 1, forward: standard attention, one kernel per line of the formula, the matrices in HBM.
//
//   query_key_product   S = scale * Q Kᵀ, masked          writes S
//   softmax_rows        P = softmax(S), lse               reads S, writes P
//   weighted_key_rows   O = P V                           reads P
//
// S and P are stored in the input dtype, as frameworks do; every sum is fp32.
#include "naive.h"

#include "products.h"
#include "standard.h"

#include "backward.h"
#include "cache.h"
#include "device/dispatch.h"
#include "sequences.h"

// Blocks of the largest grid, query_key_product's.
static int64_t score_blocks(const Attention *a) {
    return tiles_of(a->seqlen_q, PRODUCT_QUERIES) * tiles_of(a->seqlen_k, PRODUCT_KEYS) * a->batch *
           a->heads;
}

template <typename T, int HEAD_DIM> static cudaError_t launch_forward(const Attention *a) {
    const StandardWorkspace workspace = standard_workspace(a);
    T *scores = (T *)workspace.scores;
    T *probabilities = (T *)workspace.probabilities;

    if (score_blocks(a) > 0)
        query_key_product<T, HEAD_DIM>
            <<<(unsigned)score_blocks(a), PRODUCT_THREADS, 0, a->stream>>>(
                *a, (const T *)a->q, (const T *)a->k, scores, true);
    const cudaError_t error = launch_softmax<T>(a, &workspace);
    if (error != cudaSuccess) return error;

    const int64_t blocks = tiles_of(a->seqlen_q, ROWS_PER_BLOCK) * a->batch * a->heads;
    weighted_key_rows<T, HEAD_DIM><<<(unsigned)blocks, PRODUCT_THREADS, 0, a->stream>>>(
        *a, probabilities, (const T *)a->v, (T *)a->o, 1.0f);
    return cudaGetLastError();
}

DEFINE_DISPATCH(dispatch_forward, launch_forward)

static cudaError_t forward_of_one_length(const Attention *a) {
    if (a->seqlen_q == 0) return cudaSuccess; // no rows, no outputs
    return dispatch_forward(a);
}

static cudaError_t forward(const Attention *a) {
    if (a->cache) return run_cache(a, forward_of_one_length);
    return a->varlen ? run_sequences(a, forward_of_one_length) : forward_of_one_length(a);
}

static const char *refuses(const Attention *a, bool backward) {
    const int64_t key_blocks = tiles_of(a->seqlen_k, ROWS_PER_BLOCK) * a->batch * a->kv_heads;
    const int64_t row_blocks = tiles_of(a->seqlen_q, SOFTMAX_ROWS) * a->batch * a->heads;
    int64_t blocks = score_blocks(a) > row_blocks ? score_blocks(a) : row_blocks;
    if (backward && key_blocks > blocks) blocks = key_blocks;
    if (a->cache && copy_blocks(a) > blocks) blocks = copy_blocks(a);
    if (a->cache && backward) return "keys of a cache have no gradients; leave --backward out";
    if (a->cache && a->kv_dtype != a->dtype)
        return "it would round the cache's fp8 numbers to its own dtype; chapter 9's steps read "
               "them";
    return refuses_on_cuda_cores(a, blocks);
}

static size_t forward_workspace(const Attention *a) {
    if (a->cache) return cache_copies(a).bytes;
    if (a->varlen) return a->batch * sequence_workspace(a);
    return standard_workspace(a).forward_bytes;
}
static size_t backward_workspace(const Attention *a) {
    if (a->varlen) return a->batch * sequence_workspace(a);
    return standard_workspace(a).backward_bytes;
}

const Step naive_step = {
    .chapter = 1,
    .name = "naive",
    .idea = "three kernels, with S and P in HBM between them",
    .exhibit = false,
    .refuses = refuses,
    .forward_workspace = forward_workspace,
    .forward = forward,
    .backward_workspace = backward_workspace,
    .backward = naive_backward,
    .fp8 = NULL,
    .varlen = true,
    .sinks = true,
    .cache = true,
};
