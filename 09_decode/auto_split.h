// As many splits as the GPU needs.
#ifndef AUTO_SPLIT_STEP_H
#define AUTO_SPLIT_STEP_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step auto_split_step;

#ifdef __cplusplus
}
#endif

#endif
