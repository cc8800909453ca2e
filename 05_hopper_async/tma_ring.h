// Two buffers of K and of V: the next block comes while this one is worked on.
#ifndef TMA_RING_STEP_H
#define TMA_RING_STEP_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step tma_ring_step;

#ifdef __cplusplus
}
#endif

#endif
