// Blocks that stay, the longest tiles first.
#ifndef PERSISTENT_LPT_STEP_H
#define PERSISTENT_LPT_STEP_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step persistent_lpt_step;

#ifdef __cplusplus
}
#endif

#endif
