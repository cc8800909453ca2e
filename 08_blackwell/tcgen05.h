// S and O in tensor memory, P through shared memory.
#ifndef TCGEN05_STEP_H
#define TCGEN05_STEP_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step tcgen05_step;

#ifdef __cplusplus
}
#endif

#endif
