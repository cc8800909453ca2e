// Chapter 1's step: attention in three kernels, S and P in HBM. The yardstick of every later step.
#ifndef NAIVE_H
#define NAIVE_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step naive_step;

#ifdef __cplusplus
}
#endif

#endif
