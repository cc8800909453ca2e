// Chapter 7, step persistent: as many thread blocks as the GPU has SMs. Each takes every gridDim.x-th
// tile, in order. Launch, barriers and registers are paid for once, and while a tile's last products
// run, the next tile's K comes. O still takes Q's place in shared memory, so the next Q has to wait
// until O is stored.
#include "persistent.h"

#include "schedule.h"

#define FORWARD_KERNEL persistent
static const OrderKind ORDER = ORDER_AS_IT_COMES;
static const bool DYNAMIC = false;
static const bool OVERLAPPED = false;
static const bool PACKED = false;
#include "forward.h"

const Step persistent_step = {
    .chapter = 7,
    .name = "persistent",
    .idea = "one thread block an SM, which takes one tile of rows after the other",
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
