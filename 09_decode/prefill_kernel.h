// Chapter 7's kernel on a decoding problem.
#ifndef PREFILL_KERNEL_STEP_H
#define PREFILL_KERNEL_STEP_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step prefill_kernel_step;

#ifdef __cplusplus
}
#endif

#endif
