// Chapter 9, step prefill-kernel: chapter 7's kernel as it is, with a tile of 128 query rows
// for each head. Of one query token it fills one row; of 132 SMs, as many as there are heads
// have work.
#include "prefill_kernel.h"

#include "../07_persistent_lpt/schedule.h"

#define FORWARD_KERNEL prefill_kernel
#define CACHED         true
static const OrderKind ORDER = ORDER_L2;
static const bool DYNAMIC = true;
static const bool OVERLAPPED = true;
static const bool PACKED = false;
#include "../07_persistent_lpt/forward.h"

static const char *refuses(const Attention *a, bool backward) {
    if (a->page_size > 0)
        return "chapter 7's kernel copies boxes of rows that follow each other; use step paged-kv "
               "for --page-size";
    if (a->new_keys > 0 || a->rotary_dim > 0)
        return "chapter 7's kernel appends no keys; use step paged-kv for that";
    if (a->kv_dtype != a->dtype)
        return "chapter 7's kernel multiplies keys and values of the queries' type; use step "
               "paged-kv for a cache of fp8";
    return refuses_forward(a, backward);
}

const Step prefill_kernel_step = {
    .chapter = 9,
    .name = "prefill-kernel",
    .idea = "chapter 7's kernel: one tile a head, and its rows and most SMs are idle",
    .exhibit = false,
    .refuses = refuses,
    .forward_workspace = forward_workspace,
    .forward = forward,
    .backward_workspace = NULL,
    .backward = NULL,
    .varlen = false,
    .sinks = true,
    .cache = true,
    .whole_gpu = true,
};
