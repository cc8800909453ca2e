// What all of chapter 8's forward kernels share beside arithmetic: tensor maps, copies of whole
// tiles, and what they refuse.
#ifndef MAPS_H
#define MAPS_H

#include "device/dispatch.h"
#include "device/phase.h"
#include "device/tensor_map.h"
#include "device/tma.h"
#include "work.h"

typedef struct {
    CUtensorMap q, k, v, o;
} ForwardMaps;

__device__ static inline void prefetch_maps(const ForwardMaps &maps) {
    tma_prefetch_map(&maps.q);
    tma_prefetch_map(&maps.k);
    tma_prefetch_map(&maps.v);
    tma_prefetch_map(&maps.o);
}

// Starts copying 128 rows of a head, a box of COLUMNS columns after the other. The barrier's phase
// ends when all of their bytes are there; rows past the last come as zeros and count too.
template <typename T, int HEAD_DIM>
__device__ static inline void load_tile(T *to_smem, const CUtensorMap *map, uint64_t *full, int row,
                                        int head, int batch) {
    using Tile = ForwardTile<HEAD_DIM>;
    PHASE("load");
    mbarrier_arrive_expect(full, Tile::BYTES);
#pragma unroll
    for (int box = 0; box < Tile::BOXES; box++)
        tma_load_4d(to_smem + box * ROWS * COLUMNS, map, full, box * COLUMNS, row, head, batch);
}

// Starts storing 128 rows of O, but those past the last.
template <typename T, int HEAD_DIM>
__device__ static inline void store_tile(const CUtensorMap *map, const T *o_smem, const Work &work,
                                         int first_row) {
    PHASE("store");
#pragma unroll
    for (int box = 0; box < ForwardTile<HEAD_DIM>::BOXES; box++)
        tma_store_4d(map, o_smem + box * ROWS * COLUMNS, box * COLUMNS, first_row, work.head,
                     work.batch);
    tma_commit();
}

// ---- host

template <typename T, int HEAD_DIM>
static cudaError_t make_forward_maps(ForwardMaps *maps, const Attention *a) {
    const CUtensorMapDataType type =
        IsBf16<T>::VALUE ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    cudaError_t error = make_head_map(&maps->q, "Q", a->q, type, 2, a->batch, a->seqlen_q, a->heads,
                                      HEAD_DIM, ROWS, COLUMNS);
    if (error == cudaSuccess)
        error = make_head_map(&maps->o, "O", a->o, type, 2, a->batch, a->seqlen_q, a->heads,
                              HEAD_DIM, ROWS, COLUMNS);
    maps->k = maps->v = maps->q; // without keys nothing is loaded, and no map of them could be made
    if (error == cudaSuccess && a->seqlen_k > 0)
        error = make_head_map(&maps->k, "K", a->k, type, 2, a->batch, a->seqlen_k, a->kv_heads,
                              HEAD_DIM, KEYS, COLUMNS);
    if (error == cudaSuccess && a->seqlen_k > 0)
        error = make_head_map(&maps->v, "V", a->v, type, 2, a->batch, a->seqlen_k, a->kv_heads,
                              HEAD_DIM, KEYS, COLUMNS);
    return error;
}

// Defines forward(a), which calls launch_forward<T, HEAD_DIM>(a): for the head_dims that are built
// and that this chapter has.
#define FORWARD_CASE(D)                                                                            \
    if (a->head_dim == D)                                                                          \
        return a->dtype == DTYPE_BF16 ? launch_forward<__nv_bfloat16, D>(a)                        \
                                      : launch_forward<__half, D>(a);
#define DEFINE_FORWARD                                                                             \
    static cudaError_t forward(const Attention *a) {                                               \
        IF_BUILT_64(FORWARD_CASE)                                                                  \
        IF_BUILT_128(FORWARD_CASE)                                                                 \
        return cudaErrorInvalidValue;                                                              \
    }

// What the forward can't do, or NULL.
static inline const char *refuses_forward(const Attention *a, bool backward) {
    if (backward) return "this chapter has no backward; chapter 5's step intra-warpgroup has one";
    if (a->dtype == DTYPE_FP8)
        return "tcgen05 multiplies fp16 and bf16 here; chapters 6 and 7 have --dtype fp8";
    if (a->dtype == DTYPE_FP32)
        return "tcgen05 multiplies fp16 and bf16; use --dtype fp16 or bf16, or chapter 3's step "
               "normalise-once for fp32";
    if (max(a->seqlen_q, a->seqlen_k) > MAX_FORWARD_SEQLEN)
        return "TMA's coordinates are 32-bit; use a --seqlen below 2^31 - 512";
    return refuses_on_cuda_cores(a, tiles_of(a->seqlen_q, ROWS) * a->batch * a->heads);
}

#endif
