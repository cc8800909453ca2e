// Chapter 6, step two-level: fp8 wgmma sums with 13 bits, and over a long context its sum stops
// growing. Here it sums over a block of keys only, and fp32 additions over the blocks.
#include "fp8_attention.h"
#include "quantise.h"
#include "steps.h"

static cudaError_t forward(const Attention *a) {
    const cudaError_t error = quantise_hadamard(a);
    if (error != cudaSuccess) return error;
    const Quantised x = quantised_of(a);
    return fp8_attention_two_level(a, &x);
}

const Step two_level_step = {
    .chapter = 6,
    .name = "two-level",
    .idea = "the sum over the key blocks in fp32, not in wgmma's 13 bits",
    .exhibit = false,
    .refuses = fp8_refuses,
    .forward_workspace = quantised_workspace,
    .forward = forward,
    .backward_workspace = NULL,
    .backward = NULL,
    .fp8 = &two_level_rounding,
};
