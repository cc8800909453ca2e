// A producer warpgroup starts the copies; the others compute.
#ifndef WARP_SPECIALISED_STEP_H
#define WARP_SPECIALISED_STEP_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step warp_specialised_step;

#ifdef __cplusplus
}
#endif

#endif
