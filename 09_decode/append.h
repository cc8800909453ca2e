// New keys on their way into the cache: a kernel of its own, before the attention reads them.
#ifndef APPEND_H
#define APPEND_H

#include "rotary.h"

// The new keys and values of all sequences → the cache. One thread block for each new key of each
// sequence; its threads share the columns of all heads.
static const int APPEND_THREADS = 128;

template <typename T> __global__ void __launch_bounds__(APPEND_THREADS) append(const Attention a) {
    const int batch = blockIdx.x / (uint32_t)a.new_keys, n = blockIdx.x % (uint32_t)a.new_keys;
    const int key = a.cache_seqlens[batch] + n, rows = page_rows(a);
    int page = batch, row = key;
    if (a.page_size > 0) {
        page = a.block_table[(int64_t)batch * a.table_columns + key / a.page_size];
        row = key % a.page_size;
    }
    const int numbers = a.kv_heads * a.head_dim;
    const int64_t to = row_offset(page, row, 0, rows, a.kv_heads, a.head_dim);
    const T *k_new = (const T *)a.k_new + (int64_t)blockIdx.x * numbers;
    const T *v_new = (const T *)a.v_new + (int64_t)blockIdx.x * numbers;
    T *k = (T *)a.k_cache + to, *v = (T *)a.v_cache + to;
    for (int i = threadIdx.x; i < numbers; i += APPEND_THREADS) {
        v[i] = v_new[i];
        if (i % a.head_dim >= a.rotary_dim) k[i] = k_new[i];
    }
    const int pairs = a.rotary_dim / 2;
    for (int i = threadIdx.x; i < a.kv_heads * pairs; i += APPEND_THREADS) {
        const Pair pair = pair_of(a, i % pairs, key);
        const int head = i / pairs * a.head_dim;
        T x = k_new[head + pair.first], y = k_new[head + pair.second];
        turn_pair(&x, &y, a, pair);
        k[head + pair.first] = x;
        k[head + pair.second] = y;
    }
}

static cudaError_t launch_append(const Attention *a) {
    const unsigned blocks = (unsigned)(a->batch * a->new_keys);
    if (blocks == 0) return cudaSuccess;
    if (a->dtype == DTYPE_FP16)
        append<__half><<<blocks, APPEND_THREADS, 0, a->stream>>>(*a);
    else
        append<__nv_bfloat16><<<blocks, APPEND_THREADS, 0, a->stream>>>(*a);
    return cudaGetLastError();
}

#endif
