// Chapter 7, step l2-order with --dtype fp8: chapter 6's quantisation (a scale for each block, Q and
// K rotated), and then its attention in l2-order's blocks.
#include "l2_order_fp8.h"

#include "../06_fp8_hadamard/quantise.h"
#include "forward_fp8.h"

static const OrderKind ORDER = ORDER_L2;
#include "order.h"

// The head_dims that are built and that this kernel has.
#define FOR_EACH_FP8_HEAD_DIM(X) IF_BUILT_64(X) IF_BUILT_128(X)

template <int HEAD_DIM>
static cudaError_t make_maps(Maps *maps, const Attention *a, const Quantised *x) {
    using Tile = Fp8Tile<HEAD_DIM>;
    const CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_UINT8;
    cudaError_t error = make_head_map(&maps->q, "Q in e4m3", x->q, type, 1, a->batch, a->seqlen_q,
                                      a->heads, HEAD_DIM, Tile::ROWS, Tile::LINE);
    maps->k = maps->v = maps->q; // without keys nothing is loaded, and no map of them could be made
    if (error == cudaSuccess && a->seqlen_k > 0)
        error = make_head_map(&maps->k, "K in e4m3", x->k, type, 1, a->batch, a->seqlen_k,
                              a->kv_heads, HEAD_DIM, Tile::KEYS, Tile::LINE);
    if (error == cudaSuccess && a->seqlen_k > 0)
        error = make_head_map(&maps->v, "V in e4m3", x->v, type, 1, a->batch, a->seqlen_k,
                              a->kv_heads, HEAD_DIM, Tile::KEYS, Tile::LINE);
    return error;
}

// The workspace: what chapter 6's quantisation leaves there, and then the counter.
template <int HEAD_DIM> static cudaError_t launch(Attention problem) {
    using Tile = Fp8Tile<HEAD_DIM>;
    if (problem.batch == 0 || problem.seqlen_q == 0)
        return cudaSuccess;     // no query rows, no outputs
    problem.dtype = DTYPE_BF16; // of the tensors
    const Attention *a = &problem;
    const Quantised x = quantised_of(a);
    uint32_t *taken = (uint32_t *)((char *)a->workspace + quantised_workspace(a));
    DeviceSizes device;
    TileOrder order;
    Maps maps;
    int64_t places = 0;
    cudaError_t error = quantise_hadamard(a);
    if (error == cudaSuccess) error = device_sizes(&device);
    if (error == cudaSuccess)
        error = make_order(&order, &places, a, Tile::ROWS, 2 * HEAD_DIM, device.l2_bytes);
    if (error == cudaSuccess) error = make_maps<HEAD_DIM>(&maps, a, &x);
    if (error == cudaSuccess) // no place has been taken
        error = cudaMemsetAsync(taken, 0, sizeof *taken, a->stream);
    if (error == cudaSuccess) error = allow_shared_memory(forward_fp8<HEAD_DIM>, Tile::BYTES);
    if (error != cudaSuccess) return error;
    const int blocks = (int)min(places, (int64_t)device.sms);
    forward_fp8<HEAD_DIM>
        <<<blocks, Tile::THREADS, Tile::BYTES, a->stream>>>(*a, x, maps, order, taken);
    return cudaGetLastError();
}

#define LAUNCH_IF(D)                                                                               \
    if (a->head_dim == D) return launch<D>(*a);

cudaError_t l2_order_fp8(const Attention *a) {
    FOR_EACH_FP8_HEAD_DIM(LAUNCH_IF)
    return cudaErrorInvalidValue;
}

size_t l2_order_fp8_workspace(const Attention *a) {
    return quantised_workspace(a) + TAKEN_BYTES;
}

const char *l2_order_fp8_refuses(const Attention *a) {
    if (a->varlen)
        return "chapter 6 quantises sequences of one length only; use --dtype bf16 with --varlen";
    if (a->head_dim == 256)
        return "softmax and O take the registers that a producer needs to choose tiles; use "
               "--head-dim 64 or 128, or chapter 6's step hadamard";
    if (a->head_dim != 64 && a->head_dim != 128)
        return "a Hadamard transform's length is a power of two; use --head-dim 64 or 128";
    return NULL;
}
