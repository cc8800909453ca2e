// Longest tiles first.
#ifndef LPT_STEP_H
#define LPT_STEP_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step lpt_step;

#ifdef __cplusplus
}
#endif

#endif
