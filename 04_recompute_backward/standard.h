// S and P stay in HBM, and the backward reads P back. Matrix products on CUDA cores.
#ifndef STANDARD_STEP_H
#define STANDARD_STEP_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step standard_step;

#ifdef __cplusplus
}
#endif

#endif
