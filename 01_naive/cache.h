// A cache of keys and values (chapter 9), as naive reads it: first all keys of all sequences are
// copied to where they stand one after the other, then each sequence is a problem of its own. New
// keys go into the cache on the way, and with a rotary embedding queries are copied too.
//
// The workspace: k and v, each batch x seqlen_k x kv_heads x head_dim; with a rotary embedding q,
// batch x seqlen_q x heads x head_dim; then what one sequence's standard attention needs.
#ifndef NAIVE_CACHE_H
#define NAIVE_CACHE_H

#include <stdlib.h>

#include "device/number.h"
#include "harness/attention.h"
#include "standard.h"

static const int COPY_THREADS = 256;

typedef struct {
    char *k, *v, *q, *standard;
    size_t bytes;
} CacheCopies;

static inline CacheCopies cache_copies(const Attention *a) {
    const size_t element = a->dtype == DTYPE_FP32 ? 4 : 2;
    const size_t row = element * a->head_dim;
    const size_t keys = round_up_to_256(row * a->batch * a->seqlen_k * a->kv_heads);
    const size_t queries =
        a->rotary_dim == 0 ? 0 : round_up_to_256(row * a->batch * a->seqlen_q * a->heads);
    Attention one = *a;
    one.batch = 1;
    CacheCopies copies;
    copies.k = (char *)a->workspace;
    copies.v = copies.k + keys;
    copies.q = copies.v + keys;
    copies.standard = copies.q + queries;
    copies.bytes = 2 * keys + queries + standard_workspace(&one).forward_bytes;
    return copies;
}

// Column `col` of a row, turned by the rotary embedding of a position: both numbers of its pair are
// read, and this one's new value comes out.
template <typename T>
__device__ static float turned(const Attention &a, const T *row, int col, int64_t position) {
    if (col >= a.rotary_dim) return to_float(row[col]);
    const int half = a.rotary_dim / 2;
    const int pair = a.rotary_interleaved ? col / 2 : col % half;
    const int other = a.rotary_interleaved ? col ^ 1 : (col + half) % a.rotary_dim;
    const bool second = a.rotary_interleaved ? col % 2 == 1 : col >= half;
    const float cosine = a.rotary_cos[position * half + pair];
    const float sine = a.rotary_sin[position * half + pair];
    const float x = to_float(row[col]) * cosine, y = to_float(row[other]) * sine;
    return second ? y + x : x - y;
}

// First element of key j of sequence b in the cache, head 0.
__device__ static inline int64_t cached_key(const Attention &a, int64_t batch, int64_t key) {
    const int64_t row =
        a.page_size == 0
            ? batch * a.cache_rows + key
            : (int64_t)a.block_table[batch * a.table_columns + key / a.page_size] * a.page_size +
                  key % a.page_size;
    return row * a.kv_heads * a.head_dim;
}

// A thread copies one number of k and one of v.
template <typename T>
__global__ void __launch_bounds__(COPY_THREADS) copy_keys(const Attention a, T *k, T *v) {
    const int64_t row_size = (int64_t)a.kv_heads * a.head_dim;
    const int64_t i = (int64_t)blockIdx.x * COPY_THREADS + threadIdx.x;
    const int64_t key = i / row_size % a.seqlen_k, batch = i / row_size / a.seqlen_k;
    if (batch >= a.batch) return;
    const int col = (int)(i % a.head_dim);
    const int64_t cached = a.cache_seqlens[batch], place = i % row_size; // within the key
    if (key >= cached + a.new_keys) return;
    const int64_t stored = cached_key(a, batch, key) + place;
    if (key < cached) {
        k[i] = ((const T *)a.k)[stored];
        v[i] = ((const T *)a.v)[stored];
        return;
    }
    const int64_t fresh = (batch * a.new_keys + key - cached) * row_size + place;
    store(&k[i], turned(a, (const T *)a.k_new + fresh - col, col, key));
    v[i] = ((const T *)a.v_new)[fresh];
    ((T *)a.k_cache)[stored] = k[i];
    ((T *)a.v_cache)[stored] = v[i];
}

// A thread copies one number of q, turned.
template <typename T>
__global__ void __launch_bounds__(COPY_THREADS) copy_queries(const Attention a, T *q) {
    const int64_t row_size = (int64_t)a.heads * a.head_dim;
    const int64_t i = (int64_t)blockIdx.x * COPY_THREADS + threadIdx.x;
    const int64_t row = i / row_size % a.seqlen_q, batch = i / row_size / a.seqlen_q;
    if (batch >= a.batch) return;
    const int col = (int)(i % a.head_dim);
    const bool by_row = a.window_left >= 0 || a.window_right >= 0;
    const int64_t position = a.cache_seqlens[batch] + (by_row ? row : 0);
    store(&q[i], turned(a, (const T *)a.q + i - col, col, position));
}

// Blocks of the larger of the two grids.
static inline int64_t copy_blocks(const Attention *a) {
    const int64_t keys = a->seqlen_k * a->kv_heads, queries = a->seqlen_q * a->heads;
    return tiles_of(a->batch * max(keys, queries) * a->head_dim, COPY_THREADS);
}

template <typename T> static cudaError_t copy_cache(const Attention *a, const CacheCopies *to) {
    const int64_t numbers = a->batch * a->seqlen_k * a->kv_heads * a->head_dim;
    const int64_t queries = a->batch * a->seqlen_q * a->heads * a->head_dim;
    if (numbers > 0)
        copy_keys<T><<<(unsigned)tiles_of(numbers, COPY_THREADS), COPY_THREADS, 0, a->stream>>>(
            *a, (T *)to->k, (T *)to->v);
    if (a->rotary_dim > 0 && queries > 0)
        copy_queries<T><<<(unsigned)tiles_of(queries, COPY_THREADS), COPY_THREADS, 0, a->stream>>>(
            *a, (T *)to->q);
    return cudaGetLastError();
}

// Calls `run` for each sequence. The lengths are on the device: the host fetches them.
static inline cudaError_t run_cache(const Attention *a, cudaError_t (*run)(const Attention *one)) {
    const size_t element = a->dtype == DTYPE_FP32 ? 4 : 2, row = element * a->head_dim;
    const CacheCopies copies = cache_copies(a);
    cudaError_t error = a->dtype == DTYPE_FP32   ? copy_cache<float>(a, &copies)
                        : a->dtype == DTYPE_FP16 ? copy_cache<__half>(a, &copies)
                                                 : copy_cache<__nv_bfloat16>(a, &copies);
    int *cached = (int *)malloc((a->batch + 1) * sizeof(int));
    if (cached == NULL) return cudaErrorMemoryAllocation;
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(cached, a->cache_seqlens, a->batch * sizeof(int),
                                cudaMemcpyDeviceToHost, a->stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(a->stream);
    for (int b = 0; b < a->batch && error == cudaSuccess; b++) {
        Attention one = *a;
        const size_t keys = b * a->seqlen_k * a->kv_heads * row;
        const size_t queries = b * a->seqlen_q * a->heads * row;
        one.batch = 1;
        one.cache = false;
        one.seqlen_k = cached[b] + a->new_keys;
        one.q = (a->rotary_dim > 0 ? copies.q : (const char *)a->q) + queries;
        one.k = copies.k + keys;
        one.v = copies.v + keys;
        one.o = (char *)a->o + queries;
        one.lse = a->lse + b * a->heads * a->seqlen_q;
        one.workspace = copies.standard;
        error = run(&one);
    }
    free(cached);
    return error;
}

#endif
