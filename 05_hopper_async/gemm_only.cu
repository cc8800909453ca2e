// Chapter 5, exhibit gemm-only: WRONG BY DESIGN. The last step's kernel without its softmax and its
// mask: (Q Kᵀ) V, with the same copies, barriers and products. Its time is what the softmax has to
// hide in.
#include "gemm_only.h"

#define FORWARD_KERNEL gemm_only
static const int STAGES = 2;
static const bool SPECIALISED = true;
static const bool PINGPONG = true;
static const bool OVERLAP = true;
static const bool SOFTMAX = false;
#include "forward.h"

const Step gemm_only_step = {
    .chapter = 5,
    .name = "gemm-only",
    .idea = "wrong by design: the same kernel without its softmax, (Q Kᵀ) V",
    .exhibit = true,
    .refuses = refuses_forward,
    .forward_workspace = no_workspace,
    .forward = forward,
    .backward_workspace = NULL,
    .backward = NULL,
};
