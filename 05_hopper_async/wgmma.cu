// Chapter 5, step wgmma: the products are a warpgroup's, and read K and V where TMA has put them.
// No thread loads an operand, and none computes an address of one.
//
// There is one buffer of K and one of V, so a block's copy starts when the block before is done
// with, and all wait for it at once: copies and products take turns. The next steps bring them
// together.
#include "wgmma.h"

#define FORWARD_KERNEL wgmma
static const int STAGES = 1;
static const bool SPECIALISED = false;
static const bool PINGPONG = false;
static const bool OVERLAP = false;
static const bool SOFTMAX = true;
#include "forward.h"

const Step wgmma_step = {
    .chapter = 5,
    .name = "wgmma",
    .idea = "wgmma reads K and V from shared memory; TMA brings them, and is waited for at once",
    .exhibit = false,
    .refuses = refuses_forward,
    .forward_workspace = no_workspace,
    .forward = forward,
    .backward_workspace = NULL,
    .backward = NULL,
};
