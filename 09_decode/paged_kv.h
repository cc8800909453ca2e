// Keys and values in pages.
#ifndef PAGED_KV_STEP_H
#define PAGED_KV_STEP_H

#include "harness/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step paged_kv_step;

#ifdef __cplusplus
}
#endif

#endif
