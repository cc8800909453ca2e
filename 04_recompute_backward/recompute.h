// Only lse is kept; the backward computes S and P again. Matrix products on CUDA cores.
#ifndef RECOMPUTE_H
#define RECOMPUTE_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step recompute_step;

#ifdef __cplusplus
}
#endif

#endif
