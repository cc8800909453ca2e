// From a problem to a kernel variant: dtype and head_dim are compile-time, all else is run-time.
#ifndef DISPATCH_H
#define DISPATCH_H

#include <stdio.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "device/index.h"
#include "harness/attention.h"
#include "harness/variants.h"

// Defines `name(const Attention *a)`, which calls launch<T, HEAD_DIM>(a) for the problem's variant.
#define DEFINE_DISPATCH(name, launch)                                                              \
    template <typename T> static cudaError_t name##_of(const Attention *a) {                       \
        FOR_EACH_HEAD_DIM(DISPATCH_IF_##launch)                                                    \
        return cudaErrorInvalidValue;                                                              \
    }                                                                                              \
    static cudaError_t name(const Attention *a) {                                                  \
        if (a->dtype == DTYPE_FP32) return name##_of<float>(a);                                    \
        if (a->dtype == DTYPE_FP16) return name##_of<__half>(a);                                   \
        if (a->dtype == DTYPE_BF16) return name##_of<__nv_bfloat16>(a);                            \
        return cudaErrorInvalidValue;                                                              \
    }

// The same for steps on tensor cores, which multiply 16-bit numbers.
#define DEFINE_DISPATCH_16_BIT(name, launch)                                                       \
    template <typename T> static cudaError_t name##_of(const Attention *a) {                       \
        FOR_EACH_HEAD_DIM(DISPATCH_IF_##launch)                                                    \
        return cudaErrorInvalidValue;                                                              \
    }                                                                                              \
    static cudaError_t name(const Attention *a) {                                                  \
        if (a->dtype == DTYPE_FP16) return name##_of<__half>(a);                                   \
        if (a->dtype == DTYPE_BF16) return name##_of<__nv_bfloat16>(a);                            \
        return cudaErrorInvalidValue;                                                              \
    }

// The two launchers that a step may have, for each head_dim that is built.
#define DISPATCH_IF_launch_forward(D)                                                              \
    if (a->head_dim == D) return launch_forward<T, D>(a);
#define DISPATCH_IF_launch_backward(D)                                                             \
    if (a->head_dim == D) return launch_backward<T, D>(a);

// Is the head_dim one of those built?
static inline bool head_dim_is_built(int head_dim) {
#define HEAD_DIM_CASE(D)                                                                           \
    if (head_dim == D) return true;
    FOR_EACH_HEAD_DIM(HEAD_DIM_CASE)
#undef HEAD_DIM_CASE
    return false;
}

// What no step on CUDA cores can do, as one sentence, or NULL. `blocks` is its largest grid.
static inline const char *refuses_on_cuda_cores(const Attention *a, int64_t blocks) {
    static char sentence[160];
    if (a->dtype == DTYPE_FP8)
        return "inputs are fp16 or bf16 (chapter 6 makes fp8 numbers of them itself); use --dtype "
               "fp16 or bf16";
    if (!head_dim_is_built(a->head_dim)) {
        snprintf(sentence, sizeof sentence,
                 "head_dim %d is not built; build it with: make chapter-N HEAD_DIMS=\"%d\"",
                 a->head_dim, a->head_dim);
        return sentence;
    }
    if (blocks > MAX_GRID_BLOCKS)
        return "the problem needs more than 2^31 - 1 thread blocks; use a smaller --batch, --heads "
               "or --seqlen";
    return NULL;
}

// Lets a kernel have `bytes` of dynamic shared memory; above 48 KB it must be asked for.
template <typename Kernel> static cudaError_t allow_shared_memory(Kernel kernel, size_t bytes) {
    return cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                (int)bytes);
}

#endif
