// Chapter 8, step tcgen05: one thread starts all products, and their results stay in tensor memory:
// S, which the softmax reads from there, and O, which it rescales there. The weights P go to the
// second product as to any other: through shared memory.
#include "tcgen05.h"

#define FORWARD_KERNEL tcgen05
static const bool P_IN_TMEM = false;
#include "one_tile.h"

const Step tcgen05_step = {
    .chapter = 8,
    .name = "tcgen05",
    .idea = "one thread multiplies; S and O in tensor memory, P through shared memory",
    .exhibit = false,
    .refuses = refuses_forward,
    .forward_workspace = no_workspace,
    .forward = forward,
    .backward_workspace = NULL,
    .backward = NULL,
};
