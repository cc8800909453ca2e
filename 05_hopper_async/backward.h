// The backward pass of this chapter: TMA, wgmma and specialised warps. It needs of the forward only
// O and lse, so any step of the chapter may use it as its own.
#ifndef HOPPER_BACKWARD_H
#define HOPPER_BACKWARD_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

// As the members of Step with the same names; `refuses` speaks of the backward alone.
const char *hopper_backward_refuses(const Attention *a);
size_t hopper_backward_workspace(const Attention *a);
cudaError_t hopper_backward(const Attention *a);

#ifdef __cplusplus
}
#endif

#endif
