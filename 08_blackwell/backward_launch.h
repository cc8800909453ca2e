// The host's side of chapter 8's backward: tensor maps, the three kernels in their order, what the
// steps refuse, and whose forward they have.
#ifndef BLACKWELL_BACKWARD_LAUNCH_H
#define BLACKWELL_BACKWARD_LAUNCH_H

#include "backward_tile.h"
#include "device/dispatch.h"
#include "device/tensor_map.h"
#include "lazy_rescale.h"

// The map of Q or dO, or of K, V or their gradients (`of_keys`), in boxes of rows and columns.
template <typename T, int HEAD_DIM>
static cudaError_t make_map(CUtensorMap *map, const char *name, const void *tensor,
                            const Attention *a, bool of_keys, int rows, int columns) {
    const CUtensorMapDataType type =
        IsBf16<T>::VALUE ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    return make_head_map(map, name, tensor, type, 2, a->batch, of_keys ? a->seqlen_k : a->seqlen_q,
                         of_keys ? a->kv_heads : a->heads, HEAD_DIM, rows, columns);
}

// Boxes of COLUMNS columns: `box_rows` query rows of Q and dO, KEYS keys of the others.
template <typename T, int HEAD_DIM>
static cudaError_t make_backward_maps(BackwardMaps *maps, const Attention *a, int box_rows) {
    cudaError_t error = make_map<T, HEAD_DIM>(&maps->k, "K", a->k, a, true, KEYS, COLUMNS);
    if (error == cudaSuccess)
        error = make_map<T, HEAD_DIM>(&maps->v, "V", a->v, a, true, KEYS, COLUMNS);
    if (error == cudaSuccess)
        error = make_map<T, HEAD_DIM>(&maps->dk, "dK", a->dk, a, true, KEYS, COLUMNS);
    if (error == cudaSuccess)
        error = make_map<T, HEAD_DIM>(&maps->dv, "dV", a->dv, a, true, KEYS, COLUMNS);
    maps->q = maps->dout = maps->k; // without rows nobody asks for them, and no map could be made
    if (error == cudaSuccess && a->seqlen_q > 0)
        error = make_map<T, HEAD_DIM>(&maps->q, "Q", a->q, a, false, box_rows, COLUMNS);
    if (error == cudaSuccess && a->seqlen_q > 0)
        error = make_map<T, HEAD_DIM>(&maps->dout, "dO", a->dout, a, false, box_rows, COLUMNS);
    return error;
}

static inline BackwardWorkspace workspace_of(const Attention *a) {
    return backward_workspace(a, ROWS);
}

static inline size_t backward_workspace_bytes(const Attention *a) {
    return workspace_of(a).bytes;
}

// D, lse and zeros for the sums; the step's kernel; the sums → dQ.
template <typename T, int HEAD_DIM, typename Main>
static cudaError_t launch_kernels(const Attention *a, int box_rows, Main main) {
    const BackwardWorkspace w = workspace_of(a);
    const int64_t heads = (int64_t)a->batch * a->heads;
    const unsigned prepare = (unsigned)(w.sums.row_tiles * heads);
    const unsigned finish = (unsigned)(tiles_of(a->seqlen_q, FINISH_ROWS) * heads);
    if (prepare > 0)
        prepare_hopper_backward<T, HEAD_DIM, ROWS><<<prepare, ROWS, 0, a->stream>>>(*a, w);
    if (a->seqlen_k > 0) { // else there are no dK and dV
        BackwardMaps maps;
        cudaError_t error = make_backward_maps<T, HEAD_DIM>(&maps, a, box_rows);
        // The first kernel zeroes turns and ticket, too; where a sample of SMs runs it, only some.
        if (error == cudaSuccess && prepare > 0 && a->deterministic)
            error = cudaMemsetAsync(w.sums.turns, 0,
                                    (heads * w.sums.row_tiles + 1) * sizeof(unsigned), a->stream);
        if (error == cudaSuccess) error = main(a, w, maps);
        if (error != cudaSuccess) return error;
    }
    if (finish > 0)
        finish_dq<T, HEAD_DIM, PieceLayout<HEAD_DIM>>
            <<<finish, HEAD_DIM, 0, a->stream>>>(*a, w.sums);
    return cudaGetLastError();
}

// Defines backward(a), which calls launch_backward<T, HEAD_DIM>(a): for the head_dims that are
// built and that this chapter has.
#define BACKWARD_CASE(D)                                                                           \
    if (a->head_dim == D)                                                                          \
        return a->dtype == DTYPE_BF16 ? launch_backward<__nv_bfloat16, D>(a)                       \
                                      : launch_backward<__half, D>(a);
#define DEFINE_BACKWARD                                                                            \
    static cudaError_t backward(const Attention *a) {                                              \
        IF_BUILT_64(BACKWARD_CASE)                                                                 \
        IF_BUILT_128(BACKWARD_CASE)                                                                \
        return cudaErrorInvalidValue;                                                              \
    }

// What the backward can't do, or NULL.
static inline const char *refuses_backward(const Attention *a) {
    if (a->dtype == DTYPE_FP8)
        return "gradients are of fp16 and bf16; chapters 6 and 7 have a forward with --dtype fp8";
    if (a->dtype == DTYPE_FP32)
        return "tcgen05 multiplies fp16 and bf16; chapter 4's step recompute has a backward for "
               "fp32";
    if (max(a->seqlen_q, a->seqlen_k) > MAX_FORWARD_SEQLEN)
        return "TMA's coordinates are 32-bit; use a --seqlen below 2^31 - 512";
    return refuses_recompute(a, true, KEYS, MAX_SHARED_BYTES);
}

// These steps are about the backward. It needs O and lse, and has them from another step: not the
// last, whose blocks share out the work, so that a sample of SMs can't stand for all.
static inline cudaError_t forward(const Attention *a) {
    return lazy_rescale_step.forward(a);
}
static inline size_t forward_workspace(const Attention *a) {
    return lazy_rescale_step.forward_workspace(a);
}
static inline const char *refuses(const Attention *a, bool) {
    const char *reason = refuses_backward(a);
    return reason != NULL ? reason : lazy_rescale_step.refuses(a, false);
}

#endif
