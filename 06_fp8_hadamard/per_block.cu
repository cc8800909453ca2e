// Chapter 6, step per-block: a scale for each 64 rows of Q and each tile of keys. An outlier only takes
// bits from its block, and the kernel multiplies with scales that it has to multiply with anyway.
#include "fp8_attention.h"
#include "quantise.h"
#include "steps.h"

static cudaError_t forward(const Attention *a) {
    const cudaError_t error = quantise_per_block(a);
    if (error != cudaSuccess) return error;
    const Quantised x = quantised_of(a);
    return fp8_attention(a, &x);
}

const Step per_block_step = {
    .chapter = 6,
    .name = "per-block",
    .idea = "a scale for each tile: an outlier spoils its own block only",
    .exhibit = false,
    .refuses = fp8_refuses,
    .forward_workspace = quantised_workspace,
    .forward = forward,
    .backward_workspace = NULL,
    .backward = NULL,
    .fp8 = &per_block_rounding,
};
