// Chapter 7, step l2-order: longest first over all heads reads all heads' K and V at once, and the L2
// doesn't hold them. So the heads come in sections that it does hold, longest first in each.
// FlashAttention-3's forward.
#include "l2_order.h"

#include "schedule.h"

#define FORWARD_KERNEL l2_order
static const OrderKind ORDER = ORDER_L2;
static const bool DYNAMIC = true;
static const bool OVERLAPPED = true;
#include "forward.h"

const Step l2_order_step = {
    .chapter = 7,
    .name = "l2-order",
    .idea = "longest first within as many heads as the L2 holds the K and V of",
    .exhibit = false,
    .refuses = refuses_forward,
    .forward_workspace = forward_workspace,
    .forward = forward,
    .backward_workspace = NULL,
    .backward = NULL,
    .varlen = true,
    .sinks = true,
    .whole_gpu = true,
};
