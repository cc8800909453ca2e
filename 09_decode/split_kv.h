// Keys shared out among thread blocks: Flash-Decoding.
#ifndef SPLIT_KV_STEP_H
#define SPLIT_KV_STEP_H

#include "harness/attention.h"
#include "split.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const Step split_kv_step;

// This step's kernel and the one that merges its splits, with any plan: the next two steps are
// nothing else. The workspace holds partial_bytes(a, plan.splits).
cudaError_t decode_dense(const Attention *a, Plan plan);

// What it can't do, or NULL.
const char *refuses_dense(const Attention *a, bool backward);

#ifdef __cplusplus
}
#endif

#endif
