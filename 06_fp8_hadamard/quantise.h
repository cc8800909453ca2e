// Three ways from 16-bit Q, K and V to e4m3 numbers and the scales of their blocks, each as one
// kernel that reads Q, K and V once (per_tensor reads them twice). They write what quantised.h
// lays out in the workspace, on a->stream, and return the launch's error.
//
// A scale is the largest magnitude of its block / 448, e4m3's largest number. What counts are the
// finite numbers. Inf and NaN become e4m3's NaN, and with them, where rows are transformed, their
// whole row. A block of zeros has scale 1. A scale is at least 2^-60: blocks whose largest number
// is below 448 · 2^-60 keep fewer bits of it.
#ifndef QUANTISE_H
#define QUANTISE_H

#include "quantised.h"

#ifdef __cplusplus
extern "C" {
#endif

// One scale for all of Q, one for all of K, one for all of V: in the scales of all their blocks.
cudaError_t quantise_per_tensor(const Attention *a);
// A scale for each block.
cudaError_t quantise_per_block(const Attention *a);
// The same, after x → x D H / √head_dim for each row x of Q and K: D are signs, H is Hadamard's
// matrix. (Q D H)(K D H)ᵀ / head_dim = Q Kᵀ.
cudaError_t quantise_hadamard(const Attention *a);

// How they round, and the attention kernel after them: where a step's limits come from.
extern const Fp8 per_tensor_rounding, per_block_rounding, hadamard_rounding, two_level_rounding;

#ifdef __cplusplus
}
#endif

#endif
