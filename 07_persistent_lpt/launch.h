// The host's side of chapter 7's forward: tensor maps, and a thread block for each SM.
#ifndef LAUNCH_H
#define LAUNCH_H

#include "order.h"

// Sequences of several lengths stand one after the other, as one batch of all rows.
template <typename T, int HEAD_DIM, int KEYS>
static cudaError_t make_forward_maps(ForwardMaps *maps, const Attention *a) {
    using Tile = ForwardTile<HEAD_DIM, KEYS>;
    const CUtensorMapDataType type =
        IsHalf<T>::VALUE ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    const int batch = a->varlen ? 1 : a->batch;
    const int64_t rows = a->varlen ? a->total_q : a->seqlen_q;
    const int64_t room = CACHED && a->cache ? a->cache_rows : a->seqlen_k; // rows of a sequence
    const int64_t keys = a->varlen ? a->total_k : room;
    cudaError_t error = cudaSuccess;
    if (PACKED) {
        const int group = a->heads / a->kv_heads;
        error = make_group_map(&maps->q, "Q", a->q, type, 2, batch, rows, a->heads, HEAD_DIM, group,
                               Tile::COLUMNS);
        if (error == cudaSuccess)
            error = make_group_map(&maps->o, "O", a->o, type, 2, batch, rows, a->heads, HEAD_DIM,
                                   group, Tile::COLUMNS);
    } else {
        error = make_head_map(&maps->q, "Q", a->q, type, 2, batch, rows, a->heads, HEAD_DIM,
                              Tile::ROWS, Tile::COLUMNS);
        if (error == cudaSuccess)
            error = make_head_map(&maps->o, "O", a->o, type, 2, batch, rows, a->heads, HEAD_DIM,
                                  WGMMA_ROWS, Tile::COLUMNS);
    }
    maps->k = maps->v = maps->q; // without keys nothing is loaded, and no map of them could be made
    if (error == cudaSuccess && keys > 0)
        error = make_head_map(&maps->k, "K", a->k, type, 2, batch, keys, a->kv_heads, HEAD_DIM,
                              KEYS, Tile::COLUMNS);
    if (error == cudaSuccess && keys > 0)
        error = make_head_map(&maps->v, "V", a->v, type, 2, batch, keys, a->kv_heads, HEAD_DIM,
                              KEYS, Tile::COLUMNS);
    return error;
}

template <typename T, int HEAD_DIM, int KEYS>
static cudaError_t launch_forward_tile(const Attention *a) {
    using Tile = ForwardTile<HEAD_DIM, KEYS>;
    static_assert(FORWARD_BYTES(HEAD_DIM, KEYS) <= MAX_SHARED_BYTES, "the tiles must fit");
    if (a->batch == 0 || (a->varlen ? a->total_q : a->seqlen_q) == 0)
        return cudaSuccess; // no query rows, no outputs
    DeviceSizes device;
    TileOrder order;
    ForwardMaps maps;
    int64_t places = 0;
    cudaError_t error = device_sizes(&device);
    if (error == cudaSuccess)
        error = make_order(&order, &places, a, Tile::ROWS, 2 * HEAD_DIM * (int64_t)sizeof(T),
                           device.l2_bytes);
    if (error == cudaSuccess) error = make_forward_maps<T, HEAD_DIM, KEYS>(&maps, a);
    if (error == cudaSuccess && DYNAMIC) // no place has been taken
        error = cudaMemsetAsync(a->workspace, 0, TAKEN_BYTES, a->stream);
    if (error == cudaSuccess)
        error =
            allow_shared_memory(FORWARD_KERNEL<T, HEAD_DIM, KEYS>, FORWARD_BYTES(HEAD_DIM, KEYS));
    if (error != cudaSuccess) return error;
    const int blocks = (int)min(places, (int64_t)device.sms);
    FORWARD_KERNEL<T, HEAD_DIM, KEYS>
        <<<blocks, FORWARD_THREADS(HEAD_DIM, KEYS), FORWARD_BYTES(HEAD_DIM, KEYS), a->stream>>>(
            *a, maps, order);
    return cudaGetLastError();
}

// Head_dim 128 has a second tile, for masks.
template <typename T, int HEAD_DIM> static cudaError_t launch_forward(const Attention *a) {
    const bool masked = a->window_left >= 0 || a->window_right >= 0;
    if (masked) return launch_forward_tile<T, HEAD_DIM, FORWARD_KEYS(HEAD_DIM, true)>(a);
    return launch_forward_tile<T, HEAD_DIM, FORWARD_KEYS(HEAD_DIM, false)>(a);
}

DEFINE_DISPATCH_16_BIT(forward, launch_forward)

static inline size_t forward_workspace(const Attention *a) {
    return places_workspace(a, DYNAMIC);
}

// What the forward can't do, or NULL.
static inline const char *refuses_forward(const Attention *a, bool backward) {
    if (backward) return "this chapter has no backward; chapter 5's step intra-warpgroup has one";
    if (a->dtype == DTYPE_FP8)
        return "wgmma multiplies fp16 and bf16 here; step l2-order has --dtype fp8";
    if (a->dtype == DTYPE_FP32)
        return "wgmma multiplies fp16 and bf16; use --dtype fp16 or bf16, or chapter 3's step "
               "normalise-once for fp32";
    if (max(a->seqlen_q, a->seqlen_k) > MAX_FORWARD_SEQLEN)
        return "TMA's coordinates are 32-bit; use a --seqlen below 2^31 - 256";
    const int64_t rows = a->varlen ? a->total_q : a->seqlen_q * a->batch;
    const int64_t tiles = rows / WGMMA_ROWS + a->batch; // and more
    return refuses_on_cuda_cores(a, tiles * a->heads);  // a block counts them in 32 bits
}

#endif
