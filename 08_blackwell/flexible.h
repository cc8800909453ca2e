// Score mods and mask mods, and blocks of keys that are never visited.
#ifndef FLEXIBLE_STEP_H
#define FLEXIBLE_STEP_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step flexible_step;

// The step's kernels, one for each score mod, each in a file of its own: they compile side by side.
cudaError_t forward_none(const Attention *a);
cudaError_t forward_alibi(const Attention *a);
cudaError_t forward_softcap(const Attention *a);

#ifdef __cplusplus
}
#endif

#endif
