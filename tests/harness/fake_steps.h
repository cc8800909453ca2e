// Steps that run on the CPU over "device" memory: a right one, and one for each way to be wrong.
#ifndef FAKE_STEPS_H
#define FAKE_STEPS_H

#include "harness/chapter.h"
#include "harness/device.h"

extern const Step fake_naive, fake_exhibit, fake_wrong_when_timed, fake_unwritten, fake_faults,
    fake_overruns, fake_refuses, fake_forward_only;

// The GPU that they run on.
extern const Device fake_gpu;

// The next launch is the first of a step.
void fake_steps_reset(void);

#endif
