// Chapter 5, step intra-warpgroup: also within a warpgroup, softmax and products run together. Q Kᵀ
// of the next block is started before P V of this one, so its scores are there while P V still
// runs. It costs registers: S of the one and P of the other are held together. FlashAttention-3's
// forward.
#include "intra_warpgroup.h"

#define FORWARD_KERNEL intra_warpgroup
static const int STAGES = 2;
static const bool SPECIALISED = true;
static const bool PINGPONG = true;
static const bool OVERLAP = true;
static const bool SOFTMAX = true;
#include "forward.h"
#include "backward.h"

// What the forward or the backward can't do.
static const char *refuses(const Attention *a, bool backward) {
    return backward ? hopper_backward_refuses(a) : refuses_forward(a, false);
}

const Step intra_warpgroup_step = {
    .chapter = 5,
    .name = "intra-warpgroup",
    .idea = "the softmax of block j + 1 runs while P V of block j does: FlashAttention-3",
    .exhibit = false,
    .refuses = refuses,
    .forward_workspace = no_workspace,
    .forward = forward,
    .backward_workspace = hopper_backward_workspace,
    .backward = hopper_backward,
};
