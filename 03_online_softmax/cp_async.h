// K and V copied while the tensor cores work: FlashAttention-2.
#ifndef CP_ASYNC_STEP_H
#define CP_ASYNC_STEP_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step cp_async_step;

#ifdef __cplusplus
}
#endif

#endif
