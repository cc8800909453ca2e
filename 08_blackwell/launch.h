// The host's side of chapter 8's forward: a thread block for each pair of tiles, or for each SM.
#ifndef LAUNCH_H
#define LAUNCH_H

#include "block_mask.h"
#include "counters.h"

static inline int64_t pairs_of(const Attention *a) {
    return tiles_of(a->seqlen_q, TILES * ROWS) * a->batch * a->heads;
}

static inline size_t forward_workspace(const Attention *a) {
    if (FLEXIBLE) return block_mask_at(a) + block_mask_bytes(a);
    return PERSISTENT || LAZY ? COUNTERS_BYTES(pairs_of(a)) : 0;
}

// FLEXIBLE: the block mask has sorted them.
static inline LongestTile longest_pair(const Attention *a) {
    if (FLEXIBLE && a->mask_mod != MASK_NONE) return FIRST_IS_LONGEST;
    const LongestTile longest = longest_tile(a->window_left, a->window_right);
    return FLEXIBLE && longest != ALL_EQUAL ? FIRST_IS_LONGEST : longest;
}

// The order of the pairs of tiles: chapter 7's, longest first in sections that the L2 holds the K
// and V of.
static inline cudaError_t make_order(TileOrder *order, int *sms, const Attention *a) {
    int device = 0, l2_bytes = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(sms, cudaDevAttrMultiProcessorCount, device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, device);
    if (error != cudaSuccess) return error;
    *order = make_tile_order(ORDER_L2, a->batch, a->heads, a->kv_heads,
                             tiles_of(a->seqlen_q, TILES * ROWS), a->seqlen_k * a->head_dim * 4,
                             l2_budget(l2_bytes), longest_pair(a));
    return cudaSuccess;
}

template <typename T, int HEAD_DIM> static cudaError_t launch_forward(const Attention *a) {
    const int64_t pairs = pairs_of(a);
    if (pairs == 0) return cudaSuccess; // no query rows, no outputs
    const int bytes = Smem<T, HEAD_DIM>::BYTES;
    ForwardMaps maps;
    TileOrder order = {0};
    int sms = 0;
    cudaError_t error = make_forward_maps<T, HEAD_DIM>(&maps, a);
    if (error == cudaSuccess && PERSISTENT) error = make_order(&order, &sms, a);
    if (error == cudaSuccess && PERSISTENT) // no place has been taken
        error = cudaMemsetAsync(a->workspace, 0, sizeof(Counters), a->stream);
    if (error == cudaSuccess) error = allow_shared_memory(FORWARD_KERNEL<T, HEAD_DIM>, bytes);
    if (error != cudaSuccess) return error;
    const int64_t blocks = PERSISTENT ? min(pairs, (int64_t)sms) : pairs;
    FORWARD_KERNEL<T, HEAD_DIM><<<(unsigned)blocks, THREADS, bytes, a->stream>>>(*a, maps, order);
    return cudaGetLastError();
}

DEFINE_FORWARD

#endif
