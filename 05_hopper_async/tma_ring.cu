// Chapter 5, step tma-ring: K and V have two buffers each. While a block is worked on, the next
// comes.
//
// Thread 0 starts the copies between its own products, and before it does it waits until the
// slowest warp has left the buffer: so the warpgroups can't drift apart by more than a block.
#include "tma_ring.h"

#define FORWARD_KERNEL tma_ring
static const int STAGES = 2;
static const bool SPECIALISED = false;
static const bool PINGPONG = false;
static const bool OVERLAP = false;
static const bool SOFTMAX = true;
#include "forward.h"

const Step tma_ring_step = {
    .chapter = 5,
    .name = "tma-ring",
    .idea = "a ring of two buffers with full and empty mbarriers: the next block comes meanwhile",
    .exhibit = false,
    .refuses = refuses_forward,
    .forward_workspace = no_workspace,
    .forward = forward,
    .backward_workspace = NULL,
    .backward = NULL,
};
