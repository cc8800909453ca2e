// Launching chapter 9's kernel with a plan, and what merges its splits. decode.h includes it.
#ifndef DECODE_LAUNCH_H
#define DECODE_LAUNCH_H

#if !CLUSTER
#include "combine.h"
#endif

// The kernel; the splits of a tile as a cluster, if they merge their parts themselves.
template <typename T, class Tile>
static cudaError_t launch_tile(const Attention *a, const Plan &plan) {
    const auto kernel = DECODE_KERNEL<T, Tile>;
    cudaError_t error = allow_shared_memory(kernel, Tile::BYTES);
#if CLUSTER // more than 8 blocks: not every GPU has room for such clusters
    if (error == cudaSuccess)
        error = cudaFuncSetAttribute((const void *)kernel,
                                     cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
#endif
    if (error != cudaSuccess) return error;
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = (unsigned)plan.splits;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = (unsigned)plan_blocks(a, &plan);
    config.blockDim = Tile::THREADS;
    config.dynamicSmemBytes = Tile::BYTES;
    config.stream = a->stream;
    config.attrs = &cluster;
    config.numAttrs = CLUSTER;
    return cudaLaunchKernelEx(&config, kernel, *a, plan, partials_of(a, plan.splits));
}

template <typename T, int HEAD_DIM, bool FP8>
static cudaError_t launch_tiles(const Attention *a, const Plan &plan) {
    if (decode_rows(a->seqlen_q * plan.group) == 16)
        return launch_tile<T, DecodeTile<HEAD_DIM, 16, FP8>>(a, plan);
    return launch_tile<T, DecodeTile<HEAD_DIM, 64, FP8>>(a, plan);
}

template <typename T, int HEAD_DIM>
static cudaError_t launch_decode(const Attention *a, const Plan &plan) {
    if (output_rows(a) == 0) return cudaSuccess; // no query rows, no outputs
    cudaError_t error = cudaErrorInvalidValue;
    if (a->kv_dtype == a->dtype) error = launch_tiles<T, HEAD_DIM, false>(a, plan);
#if CACHE_FP8
    if constexpr (HEAD_DIM % 64 == 0)
        if (a->kv_dtype == DTYPE_FP8) error = launch_tiles<T, HEAD_DIM, true>(a, plan);
#endif
#if !CLUSTER
    if (error == cudaSuccess && plan.splits > 1) return launch_combine<T, HEAD_DIM>(a, plan.splits);
#endif
    return error;
}

template <typename T> static cudaError_t decode_of(const Attention *a, const Plan &plan) {
#define LAUNCH_IF(D)                                                                               \
    if (a->head_dim == D) return launch_decode<T, D>(a, plan);
    FOR_EACH_HEAD_DIM(LAUNCH_IF)
#undef LAUNCH_IF
    return cudaErrorInvalidValue;
}

static cudaError_t decode(const Attention *a, const Plan &plan) {
    if (a->dtype == DTYPE_FP16) return decode_of<__half>(a, plan);
    if (a->dtype == DTYPE_BF16) return decode_of<__nv_bfloat16>(a, plan);
    return cudaErrorInvalidValue;
}

#endif
