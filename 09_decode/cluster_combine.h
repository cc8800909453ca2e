// Splits that merge their parts themselves.
#ifndef CLUSTER_COMBINE_STEP_H
#define CLUSTER_COMBINE_STEP_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step cluster_combine_step;

#ifdef __cplusplus
}
#endif

#endif
