// Two query tiles take turns on the tensor core; a warp or warpgroup for each role.
#ifndef PINGPONG_STEP_H
#define PINGPONG_STEP_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step pingpong_step;

#ifdef __cplusplus
}
#endif

#endif
