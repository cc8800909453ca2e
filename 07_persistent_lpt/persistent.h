// One thread block for each SM.
#ifndef PERSISTENT_STEP_H
#define PERSISTENT_STEP_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step persistent_step;

#ifdef __cplusplus
}
#endif

#endif
