// Chapter 6's steps: each quantises Q, K and V in its way, then one kernel attends.
#ifndef FP8_STEPS_H
#define FP8_STEPS_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step per_tensor_step, per_block_step, hadamard_step, two_level_step;

#ifdef __cplusplus
}
#endif

#endif
