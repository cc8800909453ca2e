// Chapter 8, exhibit gemm-only: WRONG BY DESIGN. The last step's kernel without its softmax and its
// mask: (Q Kᵀ) V, with the same copies, hand-offs and products. Its time is what the softmax has to
// hide in.
#include "gemm_only.h"

#define FORWARD_KERNEL gemm_only
static const bool EMULATED = false;
static const bool LAZY = true;
static const bool PERSISTENT = true;
static const bool SOFTMAX = false;
#include "forward.h"

const Step gemm_only_step = {
    .chapter = 8,
    .name = "gemm-only",
    .idea = "wrong by design: the same kernel without its softmax, (Q Kᵀ) V",
    .exhibit = true,
    .refuses = refuses_forward,
    .forward_workspace = forward_workspace,
    .forward = forward,
    .backward_workspace = NULL,
    .backward = NULL,
    .whole_gpu = true,
};
