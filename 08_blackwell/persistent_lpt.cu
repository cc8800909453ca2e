// Chapter 8, step persistent-lpt: as many thread blocks as SMs, each taking one pair of tiles after the
// other, in chapter 7's order. FlashAttention-4's forward.
#include "persistent_lpt.h"

#define FORWARD_KERNEL persistent_lpt
static const bool EMULATED = true;
static const bool LAZY = true;
static const bool PERSISTENT = true;
static const bool SOFTMAX = true;
#include "forward.h"

const Step persistent_lpt_step = {
    .chapter = 8,
    .name = "persistent-lpt",
    .idea = "blocks that stay, the longest tiles first: FlashAttention-4",
    .exhibit = false,
    .refuses = refuses_forward,
    .forward_workspace = forward_workspace,
    .forward = forward,
    .backward_workspace = NULL,
    .backward = NULL,
    .whole_gpu = true,
};
