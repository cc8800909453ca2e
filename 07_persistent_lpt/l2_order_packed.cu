// Chapter 7, step l2-order where queries are few and heads share K and V: packing.h.
#include "l2_order_packed.h"

#include "schedule.h"

#define FORWARD_KERNEL l2_order_packed_kernel
static const OrderKind ORDER = ORDER_L2;
static const bool DYNAMIC = true;
static const bool OVERLAPPED = true;
static const bool PACKED = true;
#include "forward.h"

cudaError_t l2_order_packed(const Attention *a) {
    return forward(a);
}
