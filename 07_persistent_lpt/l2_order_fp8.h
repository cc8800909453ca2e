// l2-order in e4m3: Q, K and V come as bf16, and are quantised as chapter 6's step hadamard does.
#ifndef L2_ORDER_FP8_H
#define L2_ORDER_FP8_H

#include "harness/attention.h"

// O (bf16) and lse of a problem of DTYPE_FP8; two kernels on a->stream. Returns the launch's error.
cudaError_t l2_order_fp8(const Attention *a);
size_t l2_order_fp8_workspace(const Attention *a);
// What l2-order can do in bf16 and this can't, or NULL.
const char *l2_order_fp8_refuses(const Attention *a);

#endif
