// A warpgroup's softmax runs while its own P V does: FlashAttention-3.
#ifndef INTRA_WARPGROUP_STEP_H
#define INTRA_WARPGROUP_STEP_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step intra_warpgroup_step;

#ifdef __cplusplus
}
#endif

#endif
