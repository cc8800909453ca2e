// Products by wgmma, copies by TMA; one buffer of K and of V.
#ifndef WGMMA_STEP_H
#define WGMMA_STEP_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step wgmma_step;

#ifdef __cplusplus
}
#endif

#endif
