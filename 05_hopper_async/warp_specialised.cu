// Chapter 5, step warp-specialised: copies are started by a warpgroup that does nothing else. It
// waits for empty buffers in the others' stead, and has given them its registers: setmaxnreg.
#include "warp_specialised.h"

#define FORWARD_KERNEL warp_specialised
static const int STAGES = 2;
static const bool SPECIALISED = true;
static const bool PINGPONG = false;
static const bool OVERLAP = false;
static const bool SOFTMAX = true;
#include "forward.h"

const Step warp_specialised_step = {
    .chapter = 5,
    .name = "warp-specialised",
    .idea = "one warpgroup only starts copies, the others compute with its registers",
    .exhibit = false,
    .refuses = refuses_forward,
    .forward_workspace = no_workspace,
    .forward = forward,
    .backward_workspace = NULL,
    .backward = NULL,
};
