// O is rescaled only where it must be.
#ifndef LAZY_RESCALE_STEP_H
#define LAZY_RESCALE_STEP_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step lazy_rescale_step;

#ifdef __cplusplus
}
#endif

#endif
