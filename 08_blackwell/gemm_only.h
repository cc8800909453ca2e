// Exhibit: the last step without its softmax.
#ifndef GEMM_ONLY_STEP_H
#define GEMM_ONLY_STEP_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step gemm_only_step;

#ifdef __cplusplus
}
#endif

#endif
