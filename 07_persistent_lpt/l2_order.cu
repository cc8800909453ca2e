// Chapter 7, step l2-order: longest first over all heads reads all heads' K and V at once, and the L2
// doesn't hold them. So the heads come in sections that it does hold, longest first in each.
// FlashAttention-3's forward.
#include "l2_order.h"

#include "../06_fp8_hadamard/quantise.h"
#include "l2_order_fp8.h"
#include "l2_order_packed.h"
#include "schedule.h"

#define FORWARD_KERNEL l2_order
static const OrderKind ORDER = ORDER_L2;
static const bool DYNAMIC = true;
static const bool OVERLAPPED = true;
static const bool PACKED = false;
#include "forward.h"

static const char *refuses(const Attention *a, bool backward) {
    if (a->dtype != DTYPE_FP8) return refuses_forward(a, backward);
    Attention tensors = *a;
    tensors.dtype = DTYPE_BF16;
    const char *sentence = refuses_forward(&tensors, backward);
    return sentence != NULL ? sentence : l2_order_fp8_refuses(a);
}

static size_t workspace(const Attention *a) {
    return a->dtype == DTYPE_FP8 ? l2_order_fp8_workspace(a) : forward_workspace(a);
}

static cudaError_t forward_of_either(const Attention *a) {
    if (a->dtype == DTYPE_FP8) return l2_order_fp8(a);
    return pays_to_pack(a, FORWARD_ROWS(a->head_dim)) ? l2_order_packed(a) : forward(a);
}

const Step l2_order_step = {
    .chapter = 7,
    .name = "l2-order",
    .idea = "longest first within as many heads as the L2 holds the K and V of",
    .exhibit = false,
    .refuses = refuses,
    .forward_workspace = workspace,
    .forward = forward_of_either,
    .backward_workspace = NULL,
    .backward = NULL,
    .fp8 = &hadamard_rounding,
    .varlen = true,
    .sinks = true,
    .whole_gpu = true,
    .fp8_if_asked = true,
};
