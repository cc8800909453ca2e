// Chapter 7, step lpt: under a causal mask the last rows' tiles are the longest. They come first, and
// who is ready takes the next one: the short ones fill up the end (longest processing time first).
#include "lpt.h"

#include "schedule.h"

#define FORWARD_KERNEL lpt
static const OrderKind ORDER = ORDER_LONGEST_FIRST;
static const bool DYNAMIC = true;
static const bool OVERLAPPED = true;
static const bool PACKED = false;
#include "forward.h"

const Step lpt_step = {
    .chapter = 7,
    .name = "lpt",
    .idea = "causal: the longest tiles first, and a block takes the next one when it is ready",
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
