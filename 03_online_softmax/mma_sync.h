// Both products on the tensor cores; operands fetched number by number.
#ifndef MMA_SYNC_H
#define MMA_SYNC_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step mma_sync_step;

#ifdef __cplusplus
}
#endif

#endif
