// Recomputation with the matrix products on tensor cores: FlashAttention-2's backward.
#ifndef RECOMPUTE_TENSOR_CORES_H
#define RECOMPUTE_TENSOR_CORES_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step recompute_tensor_cores_step;

#ifdef __cplusplus
}
#endif

#endif
