// Chapter 8, step pingpong: two query tiles, so that the tensor core multiplies for the one while the
// other is in its softmax; and a warp or warpgroup for each role, so that nobody waits with work
// left to do. O is rescaled by a warpgroup that does nothing else, beside the exponentials.
#include "pingpong.h"

#define FORWARD_KERNEL pingpong
static const bool EMULATED = false;
static const bool LAZY = false;
static const bool PERSISTENT = false;
static const bool SOFTMAX = true;
#include "forward.h"

const Step pingpong_step = {
    .chapter = 8,
    .name = "pingpong",
    .idea = "two tiles take turns on the tensor core; each role has warps of its own",
    .exhibit = false,
    .refuses = refuses_forward,
    .forward_workspace = forward_workspace,
    .forward = forward,
    .backward_workspace = NULL,
    .backward = NULL,
};
