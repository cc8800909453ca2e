// Standard attention, S and P in HBM, with the matrix products on tensor cores.
#ifndef STANDARD_TENSOR_CORES_H
#define STANDARD_TENSOR_CORES_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step standard_tensor_cores_step;

#ifdef __cplusplus
}
#endif

#endif
