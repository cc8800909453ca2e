// Chapter 8, step lazy-rescale: as long as a row's maximum grows little, its weights stay relative to the
// older one, and O as it is. Exact all the same: O and the sum of the weights are relative to the
// same number.
#include "lazy_rescale.h"

#define FORWARD_KERNEL lazy_rescale
static const bool EMULATED = true;
static const bool LAZY = true;
static const bool PERSISTENT = false;
static const bool SOFTMAX = true;
#include "forward.h"

const Step lazy_rescale_step = {
    .chapter = 8,
    .name = "lazy-rescale",
    .idea = "O is rescaled only where a maximum has grown by more than 2^8",
    .exhibit = false,
    .refuses = refuses_forward,
    .forward_workspace = forward_workspace,
    .forward = forward,
    .backward_workspace = NULL,
    .backward = NULL,
};
