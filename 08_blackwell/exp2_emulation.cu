// Chapter 8, step exp2-emulation: 16 exponentials a clock are as slow as 8192 products; a share of them
// is computed by a polynomial on units that have time.
#include "exp2_emulation.h"

#define FORWARD_KERNEL exp2_emulation
static const bool EMULATED = true;
static const bool LAZY = false;
static const bool PERSISTENT = false;
static const bool SOFTMAX = true;
#include "forward.h"

const Step exp2_emulation_step = {
    .chapter = 8,
    .name = "exp2-emulation",
    .idea = "a share of the exponentials is computed on the FMA units",
    .exhibit = false,
    .refuses = refuses_forward,
    .forward_workspace = forward_workspace,
    .forward = forward,
    .backward_workspace = NULL,
    .backward = NULL,
};
