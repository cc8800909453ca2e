// Attention of a Quantised: what the fp8 steps share. Each step quantises in its own way into its
// workspace and then calls one of the two.
#ifndef FP8_ATTENTION_H
#define FP8_ATTENTION_H

#include "device/dispatch.h"
#include "quantised.h"

// The head_dims that are built and that this chapter has.
#define FOR_EACH_FP8_HEAD_DIM(X) IF_BUILT_64(X) IF_BUILT_128(X) IF_BUILT_256(X)

// O and lse of a->dtype (fp16, bf16) from x, launched on a->stream; returns the launch's error.
cudaError_t fp8_attention(const Attention *a, const Quantised *x);

// The same with O's sum over the blocks of keys in fp32.
cudaError_t fp8_attention_two_level(const Attention *a, const Quantised *x);

// What the fp8 steps can't do, or NULL.
const char *fp8_refuses(const Attention *a, bool backward);

#endif
