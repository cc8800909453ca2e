// Launching chapter 9's kernel with a plan, and what merges its splits. decode.h includes it.
#ifndef DECODE_LAUNCH_H
#define DECODE_LAUNCH_H

#if !CLUSTER
#include "combine.h"
#endif

// How the kernel is launched; the splits of a tile as a cluster, if they merge their parts themselves.
typedef struct {
    cudaLaunchConfig_t config;
    cudaLaunchAttribute cluster;
} Shape;

// Fills it in (it may not move: it points into itself), and lets the kernel have what it needs.
template <typename T, class Tile>
static cudaError_t shape_launch(const Attention *a, const Plan &plan, Shape *shape) {
    const auto kernel = DECODE_KERNEL<T, Tile>;
    *shape = {};
    shape->cluster.id = cudaLaunchAttributeClusterDimension;
    shape->cluster.val.clusterDim.x = (unsigned)plan.splits;
    shape->cluster.val.clusterDim.y = shape->cluster.val.clusterDim.z = 1;
    shape->config.gridDim = (unsigned)plan_blocks(a, &plan);
    shape->config.blockDim = Tile::THREADS;
    shape->config.dynamicSmemBytes = Tile::BYTES;
    shape->config.stream = a->stream;
    shape->config.attrs = &shape->cluster;
    shape->config.numAttrs = CLUSTER;
    cudaError_t error = allow_shared_memory(kernel, Tile::BYTES);
#if CLUSTER // more than 8 blocks: not every GPU has room for such clusters
    if (error == cudaSuccess)
        error = cudaFuncSetAttribute((const void *)kernel,
                                     cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
#endif
    return error;
}

template <typename T, class Tile>
static cudaError_t launch_tile(const Attention *a, const Plan &plan) {
    Shape shape;
    const cudaError_t error = shape_launch<T, Tile>(a, plan, &shape);
    if (error != cudaSuccess) return error;
    return cudaLaunchKernelEx(&shape.config, DECODE_KERNEL<T, Tile>, *a, plan,
                              partials_of(a, plan.splits));
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

#if CLUSTER
// Of the plan's clusters, how many the GPU holds at once; 0: a cluster stands within a GPC, and none
// has so many SMs. -1: the device doesn't say, so the launch will.
template <typename T, class Tile> static int tile_clusters(const Attention *a, const Plan &plan) {
    Shape shape;
    int clusters = -1;
    cudaError_t error = shape_launch<T, Tile>(a, plan, &shape);
    if (error == cudaSuccess)
        error = cudaOccupancyMaxActiveClusters(&clusters, DECODE_KERNEL<T, Tile>, &shape.config);
    if (error == cudaSuccess) return clusters;
    cudaGetLastError();
    return -1;
}

template <typename T> static int clusters_of(const Attention *a, const Plan &plan) {
    const bool low = decode_rows(a->seqlen_q * plan.group) == 16;
#define COUNT_IF(D)                                                                                \
    if (a->head_dim == D)                                                                          \
        return low ? tile_clusters<T, DecodeTile<D, 16, false>>(a, plan)                           \
                   : tile_clusters<T, DecodeTile<D, 64, false>>(a, plan);
    FOR_EACH_HEAD_DIM(COUNT_IF)
#undef COUNT_IF
    return -1;
}

static int clusters_at_once(const Attention *a, const Plan &plan) {
    if (output_rows(a) == 0) return -1; // none is launched
    if (a->dtype == DTYPE_FP16) return clusters_of<__half>(a, plan);
    if (a->dtype == DTYPE_BF16) return clusters_of<__nv_bfloat16>(a, plan);
    return -1;
}
#endif

#endif
