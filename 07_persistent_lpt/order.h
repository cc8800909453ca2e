// The host's side of an order: which tiles there are, and when each comes, from the problem and the
// device. Who includes it has set ORDER and PACKED (forward.h).
#ifndef ORDER_H
#define ORDER_H

#include "sequences.h"

// The current device: its SMs, and the size of its L2.
typedef struct {
    int sms, l2_bytes;
} DeviceSizes;

static inline cudaError_t device_sizes(DeviceSizes *sizes) {
    int device = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&sizes->sms, cudaDevAttrMultiProcessorCount, device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&sizes->l2_bytes, cudaDevAttrL2CacheSize, device);
    return error;
}

// The order of the tiles of `tile_rows` rows; *most is no less than its places.
static inline cudaError_t make_order(TileOrder *order, int64_t *most, const Attention *a,
                                     int tile_rows, int64_t key_bytes, int64_t l2_bytes) {
    const int group = PACKED ? a->heads / a->kv_heads : 1, heads = a->heads / group;
    const int rows = tile_rows / WGMMA_ROWS * (WGMMA_ROWS / group); // of each head
    const LongestTile longest = longest_tile(a->window_left, a->window_right);
    if (a->varlen) {
        const SortedBy by = {ORDER, longest, heads, rows, key_bytes, l2_budget(l2_bytes), NULL};
        return make_sequences_order(order, most, a, by);
    }
    *order = make_tile_order(ORDER, a->batch, heads, a->kv_heads, tiles_of(a->seqlen_q, rows),
                             a->seqlen_k * key_bytes, l2_budget(l2_bytes), longest);
    *most = places_of(order);
    return cudaSuccess;
}

#endif
