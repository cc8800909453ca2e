// When lanes or warps wait for what can't happen (see also report_deadlock in check.h).
#ifndef SOFTGPU_DEADLOCK_H
#define SOFTGPU_DEADLOCK_H

#include "softgpu/machine/machine.h"

// All groups of a warp are parked at .sync or .aligned instructions, each for lanes of another:
// records who waits for whom, and where those are.
void report_divergent(Warp *w);
// Nobody makes progress: warps only read what no one will change, or store it again (spin loops).
void report_spinning(LaunchState *launch);

#endif
