// Chapter 8, step p-in-tmem: P goes back to tensor memory, over the S that it was made of, and the
// second product takes its left operand from there. Shared memory holds no P, and is read for V
// alone.
#include "p_in_tmem.h"

#define FORWARD_KERNEL p_in_tmem
static const bool P_IN_TMEM = true;
#include "one_tile.h"

const Step p_in_tmem_step = {
    .chapter = 8,
    .name = "p-in-tmem",
    .idea = "P goes back to tensor memory, and P V takes it from there",
    .exhibit = false,
    .refuses = refuses_forward,
    .forward_workspace = no_workspace,
    .forward = forward,
    .backward_workspace = NULL,
    .backward = NULL,
};
