// A batch of sequences of varying lengths, as naive does it: each sequence is a problem of its own,
// one after the other. That fills no GPU, but it leaves nothing to get wrong: the kernels know
// nothing of it, and what they compute is the measure of those that do.
#ifndef SEQUENCES_H
#define SEQUENCES_H

#include <stdlib.h>

#include "harness/attention.h"
#include "standard.h"

// Bytes of the workspace that each sequence has: what the longest needs, forward and backward alike,
// since the backward pass looks for P where the forward pass left it.
static inline size_t sequence_workspace(const Attention *a) {
    Attention longest = *a;
    longest.batch = 1;
    return standard_workspace(&longest).backward_bytes;
}

// Moves a pointer by rows of a tensor of `heads` heads. NULL, a tensor that isn't there, stays.
static inline void skip_rows(const Attention *a, const void **tensor, int64_t rows, int heads) {
    const int64_t element = a->dtype == DTYPE_FP32 ? 4 : 2;
    if (*tensor != NULL) *tensor = (const char *)*tensor + rows * heads * a->head_dim * element;
}

// Sequence b: its rows of q and k begin at `query` and `key`.
static inline Attention one_sequence(const Attention *a, int b, const int *query, const int *key) {
    Attention one = *a;
    one.batch = 1;
    one.seqlen_q = query[b + 1] - query[b];
    one.seqlen_k = key[b + 1] - key[b];
    skip_rows(a, &one.q, query[b], a->heads);
    skip_rows(a, (const void **)&one.o, query[b], a->heads);
    skip_rows(a, &one.dout, query[b], a->heads);
    skip_rows(a, (const void **)&one.dq, query[b], a->heads);
    skip_rows(a, &one.k, key[b], a->kv_heads);
    skip_rows(a, &one.v, key[b], a->kv_heads);
    skip_rows(a, (const void **)&one.dk, key[b], a->kv_heads);
    skip_rows(a, (const void **)&one.dv, key[b], a->kv_heads);
    one.lse += query[b]; // its heads are total_q apart
    one.workspace = (char *)a->workspace + b * sequence_workspace(a);
    return one;
}

// Calls `run` for each sequence. The lengths are on the device: the host fetches them first.
static inline cudaError_t run_sequences(const Attention *a,
                                        cudaError_t (*run)(const Attention *one)) {
    const size_t bytes = (a->batch + 1) * sizeof(int);
    int *lengths = (int *)malloc(2 * bytes), *query = lengths, *key = lengths + a->batch + 1;
    if (lengths == NULL) return cudaErrorMemoryAllocation;
    cudaError_t error =
        cudaMemcpyAsync(query, a->cu_seqlens_q, bytes, cudaMemcpyDeviceToHost, a->stream);
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(key, a->cu_seqlens_k, bytes, cudaMemcpyDeviceToHost, a->stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(a->stream);
    for (int b = 0; b < a->batch && error == cudaSuccess; b++) {
        const Attention one = one_sequence(a, b, query, key);
        error = run(&one);
    }
    free(lengths);
    return error;
}

#endif
