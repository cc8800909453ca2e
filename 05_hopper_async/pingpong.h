// Warpgroups take turns on the tensor cores.
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
