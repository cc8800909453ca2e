// Operands fetched by ldmatrix from shared memory without bank conflicts.
#ifndef SWIZZLED_H
#define SWIZZLED_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step swizzled_step;

#ifdef __cplusplus
}
#endif

#endif
