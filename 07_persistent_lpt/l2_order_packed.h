// The kernel of l2-order whose tiles take all query heads of a K/V head.
#ifndef L2_ORDER_PACKED_H
#define L2_ORDER_PACKED_H

#include "harness/attention.h"

// O and lse, for fp16 and bf16 and at most 64 query heads to a K/V head; launched on a->stream, in
// l2-order's workspace. Returns the launch's error.
cudaError_t l2_order_packed(const Attention *a);

#endif
